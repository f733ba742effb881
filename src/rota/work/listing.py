"""Sources of the kind `list`: a YAML, JSON or JSONL file of items, for work without a tracker. Read only.

The output of `gh issue list --json number,title,body,state,labels` is understood too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from rota.errors import escape_unprintable
from rota.work.json_lines import DECODE_ERRORS, split_documents
from rota.work.model import Item, ItemDependency
from rota.work.source import InvalidContent, ReadItems, SourceItems, is_item_id, is_settled, read_file, stamp_file
from rota.workflows.document import MAX_BYTES, decode_text, parse_yaml
from rota.workflows.fields import (
    describe_kind,
    quote_value,
    read_integer,
    read_list,
    read_text,
    read_texts,
    refuse_unknown_keys,
)
from rota.workflows.scalars import DocumentPath, Fault, SourcePosition, find_position, format_path, is_empty

STATUSES = ("open", "in_progress", "hooked", "blocked", "deferred", "closed")
_STATUS_ALIASES = {"todo": "open", "done": "closed", "completed": "closed"}
_KEYS = ("id", "title", "prompt", "depends", "priority", "labels", "target", "status")
_MAX_TITLE = 80

_ROOT: DocumentPath = ()

_decode_object = msgspec.json.Decoder(dict[str, Any]).decode


class _Entry(NamedTuple):
    """Raw item, or the problem of one that cannot be parsed."""

    path: DocumentPath
    value: Any
    line: int | None
    problem: str | None = None


class ListSource(ReadItems):
    """File that lists items."""

    def __init__(self, name: str, path: Path) -> None:
        self._name = name
        self._path = path

    def signature(self) -> object:
        stamp = stamp_file(self._path)
        return (stamp,) if is_settled((stamp,)) else None

    def items(self) -> SourceItems:
        items: list[Item] = []
        warnings: list[str] = []
        for entry in self._read_entries(read_file(self._path, max_bytes=MAX_BYTES)):
            try:
                if entry.problem is not None:
                    raise Fault((), entry.problem)
                items.append(_read_item(entry, self._name))
            except Fault as fault:
                warnings.append(self._format_fault(entry, fault))
        return SourceItems(items=tuple(items), warnings=tuple(warnings), is_partial=bool(warnings))

    def _read_entries(self, data: bytes) -> Iterator[_Entry]:
        try:
            text = decode_text(data)
        except Fault as fault:
            at = f":{fault.position[0]}" if fault.position else ""
            raise InvalidContent(f"{self._path.name}{at}: {fault.message}") from None
        is_lines = self._path.suffix in (".jsonl", ".ndjson")
        if is_lines or text.lstrip()[:1] in ("{", "["):
            entries = list(_read_json(text.encode()))
            if is_lines or any(entry.problem is None for entry in entries):
                return iter(entries)
        return self._read_yaml(text)  # YAML can begin like JSON

    def _read_yaml(self, text: str) -> Iterator[_Entry]:
        positions: dict[DocumentPath, SourcePosition] = {}
        try:
            data, path = parse_yaml(text, positions), _ROOT
        except Fault as fault:
            at = f":{fault.position[0]}" if fault.position else ""
            raise InvalidContent(f"{self._path.name}{at}: {fault.message}") from None
        if isinstance(data, dict) and isinstance(data.get("items"), list):
            data, path = data["items"], ("items",)
        if is_empty(data):
            return iter(())
        if not isinstance(data, list):
            raise InvalidContent(f"{self._path.name}: expected a list of items, not {describe_kind(data)}")
        return (
            _Entry((*path, n), value, position[0] if (position := find_position((*path, n), positions)) else None)
            for n, value in enumerate(data)
        )

    def _format_fault(self, entry: _Entry, fault: Fault) -> str:
        at = f":{entry.line}" if entry.line is not None else ""
        path = format_path(fault.path)
        return f"{self._path.name}{at}: {f'{path}: ' if path else ''}{escape_unprintable(fault.message)}"


def _read_json(data: bytes) -> Iterator[_Entry]:
    for n, document in enumerate(split_documents(data)):
        try:
            yield _Entry((n,), _decode_object(document.text), document.line)
        except msgspec.ValidationError:
            yield _Entry((n,), None, document.line, "expected an item, which is a JSON object")
        except DECODE_ERRORS as error:
            yield _Entry((n,), None, document.line, f"not JSON: {error}")


def _read_item(entry: _Entry, source: str) -> Item:
    value = entry.value
    if not isinstance(value, dict):
        raise Fault((), f"expected an item with id and prompt, not {describe_kind(value)}")
    values = {key: raw for key, raw in value.items() if not is_empty(raw)}
    if "number" in values and "id" not in values:
        return _read_github_issue(values, source, entry.line)
    refuse_unknown_keys(values, _KEYS, ())
    item_id = _read_id(values.get("id"), "id")
    prompt = _read(values, "prompt", read_text, "")
    title = _read(values, "title", read_text, "").strip() or _first_line(prompt) or item_id
    priority = _read(values, "priority", read_integer, None)
    depends = _read(values, "depends", read_texts, [])
    return Item(
        id=item_id,
        source=source,
        title=title,
        status=_read_status(values),
        priority=priority,
        job_priority=priority,
        labels=tuple(_read(values, "labels", read_texts, [])),
        target=_read(values, "target", read_text, None),
        prompt=prompt or title,
        depends=tuple(ItemDependency(id=_read_id(other, "depends")) for other in depends),
        line=entry.line,
    )


def _read(values: Mapping[str, Any], key: str, read: Callable[[Any, DocumentPath], Any], default: Any) -> Any:
    return read(values[key], (key,)) if key in values else default


def _read_id(value: Any, key: str) -> str:
    if is_empty(value):
        raise Fault((), "the item has no id; add one that stays the same, such as id: fix-login")
    text = read_text(value, (key,))
    if not is_item_id(text):
        raise Fault((key,), f"{quote_value(text)} cannot be an id; use 1 to 200 characters without spaces or /")
    return text


def _read_status(values: Mapping[str, Any]) -> str:
    text = str(_read(values, "status", read_text, "open")).lower()
    status = _STATUS_ALIASES.get(text, text)
    if status not in STATUSES:
        raise Fault(("status",), f"unknown status {quote_value(text)}; known: {', '.join(STATUSES)}")
    return status


def _first_line(text: str) -> str:
    line = text.strip().partition("\n")[0].strip()
    return line if len(line) <= _MAX_TITLE else f"{line[: _MAX_TITLE - 1]}…"


def _read_github_issue(values: Mapping[str, Any], source: str, line: int | None) -> Item:
    """Read an issue that `gh` printed. Fields that were not asked for are absent, and others are ignored."""
    item_id = _read_id(values.get("number"), "number")
    title = _read(values, "title", read_text, "").strip() or item_id
    body = _read(values, "body", read_text, "").strip()
    state = _read(values, "state", read_text, "open").lower()
    return Item(
        id=item_id,
        source=source,
        title=title,
        status="open" if state == "open" else "closed",
        labels=tuple(_read_github_label(label) for label in _read(values, "labels", read_list, [])),
        prompt=f"{title}\n\n{body}" if body else title,
        line=line,
    )


def _read_github_label(label: Any) -> str:
    return read_text(label.get("name") if isinstance(label, dict) else label, ("labels",))

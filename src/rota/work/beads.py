"""Sources of the kind `beads`: `.beads/issues.jsonl`, the export of the tracker `bd`. Read only.

The file is an export: the store of `bd` is the truth, and `bd` replaces the file. So Rota reads it and never writes it.
A line that cannot be read is skipped and named; all others are used. `routes.jsonl` beside it maps prefixes of ids to
repositories.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from rota.errors import escape_unprintable
from rota.work.json_lines import DECODE_ERRORS, JsonDocument, split_documents
from rota.work.model import BLOCKS, PARENT, Item, ItemDependency
from rota.work.source import ReadItems, SourceError, SourceItems, as_utc, is_item_id, is_settled, read_file, stamp_file

FILE_NAMES = ("issues.jsonl", "beads.jsonl")
"""Names of the export, the newer one first."""
ROUTES_NAME = "routes.jsonl"
_MOST_URGENT = 4
"""Priority of a job of an item with the priority 0."""
_CUSTOM_STATUS = re.compile(r"[a-z][a-z0-9_-]{0,49}")
_KIND_ALIASES = {
    "enhancement": "feature",
    "feat": "feature",
    "dec": "decision",
    "adr": "decision",
    "investigation": "spike",
    "timebox": "spike",
    "user-story": "story",
    "mr": "merge-request",
    "mol": "molecule",
}


class _Link(msgspec.Struct):
    """ItemDependency as a record of the export, or as a full issue, which `bd show` prints."""

    depends_on_id: str | None = None
    id: str | None = None
    type: str | None = None
    dependency_type: str | None = None
    metadata: Any = None


class _Issue(msgspec.Struct):
    """Fields of an issue that Rota uses. Only `id` is required; null counts as absent."""

    id: str
    title: str | None = None
    description: str | None = None
    design: str | None = None
    acceptance_criteria: str | None = None
    notes: str | None = None
    status: str | None = None
    priority: int | None = None
    issue_type: str | None = None
    assignee: str | None = None
    labels: list[str] | None = None
    dependencies: list[_Link] | None = None
    parent: str | None = None
    defer_until: datetime | None = None
    close_reason: str | None = None
    pinned: bool | None = None
    ephemeral: bool | None = None


class _Header(msgspec.Struct):
    kind: str = msgspec.field(name="_type", default="issue")


_decode_issue = msgspec.json.Decoder(_Issue).decode
_decode_header = msgspec.json.Decoder(_Header).decode
_decode_object = msgspec.json.Decoder(dict[str, Any]).decode


class Route(NamedTuple):
    """Line of `routes.jsonl`: items with this prefix belong to this repository."""

    prefix: str
    path: Path


class BeadsSource(ReadItems):
    """Export of a beads repository. The path names the repository, its `.beads` directory, or the file."""

    def __init__(self, name: str, path: Path) -> None:
        self._name = name
        self._path = path

    def signature(self) -> object:
        stamps = [stamp_file(path) for path in (self._find_file(), self._config_file(), self._routes_file())]
        return tuple(stamps) if is_settled(stamps) else None

    def items(self) -> SourceItems:
        path = self._find_file()
        done_statuses = self._read_done_statuses()
        items: list[Item] = []
        warnings: list[str] = []
        is_partial = False
        for document in split_documents(read_file(path)):
            try:
                if (item := _read_issue(document, self._name, done_statuses)) is not None:
                    items.append(item)
            except _MalformedLine as error:
                is_partial = True
                warnings.append(f"{path.name}:{document.line}: {error}")
        return SourceItems(items=tuple(items), warnings=tuple(warnings), is_partial=is_partial)

    def routes(self) -> tuple[tuple[Route, ...], tuple[str, ...]]:
        """Return the routes, and warnings about malformed lines. The last line of a prefix wins."""
        path = self._routes_file()
        routes: dict[str, Route] = {}
        warnings = []
        try:
            lines = read_file(path).split(b"\n") if stamp_file(path) is not None else []
        except SourceError as error:
            return (), (str(error),)
        for number, line in enumerate(lines, 1):
            text = line.strip()
            if not text or text.startswith(b"#"):
                continue
            route = _read_route(text, path.parent.parent)
            if route is None:
                warnings.append(f'{path.name}:{number}: not a route; write {{"prefix": "gt-", "path": "DIRECTORY"}}')
            else:
                routes[route.prefix] = route
        return tuple(routes.values()), tuple(warnings)

    def _directory(self) -> Path:
        """Return the directory of the export, which need not exist."""
        if self._path.suffix == ".jsonl" or self._path.is_file():
            return self._path.parent
        return self._path if self._path.name == ".beads" else self._path / ".beads"

    def _find_file(self) -> Path:
        if self._path.suffix == ".jsonl" or self._path.is_file():
            return self._path
        files = [self._directory() / name for name in FILE_NAMES]
        return next((file for file in files if file.exists()), files[0])

    def _config_file(self) -> Path:
        return self._directory() / "config.yaml"

    def _routes_file(self) -> Path:
        return self._directory() / ROUTES_NAME

    def _read_done_statuses(self) -> frozenset[str]:
        """Return the custom statuses of the category `done` in `config.yaml`; none if it cannot be read."""
        from rota.workflows.document import WorkflowDocument, decode_text
        from rota.workflows.scalars import Fault

        if stamp_file(self._config_file()) is None:
            return frozenset()
        try:
            data = WorkflowDocument(decode_text(read_file(self._config_file())), "yaml").data
        except (Fault, SourceError):
            return frozenset()
        return frozenset(_done_statuses(data))


def _done_statuses(data: object) -> Iterator[str]:
    """Yield the names of `status.custom: "name:category,…"`, nested or with a dotted key, as a text or a list."""
    section = data.get("status") if isinstance(data, dict) else None
    custom = section.get("custom") if isinstance(section, dict) else None
    if custom is None and isinstance(data, dict):
        custom = data.get("status.custom")
    for entry in custom if isinstance(custom, list) else str(custom or "").split(","):
        name, _, category = str(entry).strip().partition(":")
        if category.strip() == "done" and _CUSTOM_STATUS.fullmatch(name):
            yield name


class _MalformedLine(Exception):
    """Line without a usable issue."""


def _read_issue(document: JsonDocument, source: str, done_statuses: frozenset[str]) -> Item | None:
    """Return the item on a line, or None for a record that is not an issue."""
    try:
        if b'"_type"' in document.text and _decode_header(document.text).kind != "issue":
            return None
        issue = _decode_issue(document.text)
    except msgspec.ValidationError as error:
        raise _MalformedLine(f"not an issue: {_describe_mismatch(error)}") from None
    except DECODE_ERRORS as error:
        raise _MalformedLine(f"not JSON: {escape_unprintable(str(error))}") from None
    if not is_item_id(issue.id):
        raise _MalformedLine(f"not an issue: {escape_unprintable(repr(issue.id[:60]))} cannot be an id")
    status = issue.status or "open"
    kind = issue.issue_type or "task"
    depends = tuple(_read_link(link) for link in issue.dependencies or ())
    title = (issue.title or "").strip() or issue.id
    return Item(
        id=issue.id,
        source=source,
        title=title,
        kind=_KIND_ALIASES.get(kind, kind),
        status=status,
        priority=issue.priority or 0,
        job_priority=_MOST_URGENT - min(max(issue.priority or 0, 0), _MOST_URGENT),
        labels=tuple(issue.labels or ()),
        prompt=_join_prompt(title, issue),
        depends=depends,
        parent=next((edge.id for edge in depends if edge.kind == PARENT), issue.parent or None),
        assignee=issue.assignee or None,
        defer_until=as_utc(issue.defer_until),
        close_reason=issue.close_reason or "",
        is_pinned=bool(issue.pinned),
        is_ephemeral=bool(issue.ephemeral),
        has_done_status=status in done_statuses,
        line=document.line,
    )


def _describe_mismatch(error: msgspec.ValidationError) -> str:
    return escape_unprintable(str(error)).replace("Object missing required field `id`", "no id")


def _read_link(link: _Link) -> ItemDependency:
    item_id = link.depends_on_id or link.id
    if not item_id:
        raise _MalformedLine("not an issue: a dependency has no depends_on_id")
    gate = _read_metadata(link.metadata).get("gate")
    return ItemDependency(id=item_id, kind=link.type or link.dependency_type or BLOCKS, is_any=gate == "any-children")


def _read_metadata(metadata: object) -> Mapping[str, Any]:
    """Return the metadata of a dependency, an object or a text that holds one."""
    if isinstance(metadata, dict):
        return metadata
    if not isinstance(metadata, str) or not metadata:
        return {}
    try:
        return _decode_object(metadata)
    except DECODE_ERRORS:
        return {}


def _join_prompt(title: str, issue: _Issue) -> str:
    sections = (
        ("", issue.description),
        ("Design", issue.design),
        ("Acceptance criteria", issue.acceptance_criteria),
        ("Notes", issue.notes),
    )
    texts = [(heading, text.strip()) for heading, text in sections if text and text.strip()]
    return "\n\n".join((title, *(f"{heading}:\n{text}" if heading else text for heading, text in texts)))


def _read_route(text: bytes, root: Path) -> Route | None:
    """Return the route of a line; its path is relative to the repository of the file."""
    try:
        values = _decode_object(text)
    except DECODE_ERRORS:
        return None
    prefix, path = values.get("prefix"), values.get("path")
    if not isinstance(prefix, str) or not prefix or not isinstance(path, str) or "\x00" in path:
        return None
    return Route(prefix, root / path)

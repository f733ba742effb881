"""One key of the file, changed; comments and layout stay.

From reading to renaming `flock` is held on the directory, so that two edits at once both last, and the file at its
place is always a whole one that loads.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from rota.config.key import DURATIONS, checked, duration, hint_for, objection, path_of, shown, type_of
from rota.config.reading import document_of, source_of, table_of, understand
from rota.config.section import Config, ExitCodes, Fields, Hosts, Networks
from rota.errors import ConfigError, InvalidInput, RotaError, StorageFull

UNSET = "default"
"""As the text of an edit: take the line out, so that the default holds again."""

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def edit(path: Path, key: str, text: str) -> Config:
    """Set one key from its text (or `UNSET` it) and return what the file now says.

    The result is understood as a whole before anything is written: a refused edit leaves the file as it was.
    """
    if (kind := type_of(key)) is None:
        raise InvalidInput(f"unknown key {key}; {hint_for(key)}")
    try:
        value = None if text == UNSET else _raw(text, kind)
    except (msgspec.DecodeError, InvalidInput) as trouble:
        raise InvalidInput(f"{key} cannot be {shown(text)}{objection(kind, trouble)}") from None
    path = path.resolve()  # a linked file is changed where it is, not replaced by a copy beside the link
    with _failures_named(path), _alone(path.parent):
        before = source_of(path)
        after = _rewritten(before, path.name, key, value)
        config = understand(after, path.name)
        if after != before:
            _replace(path, after.encode())
    return config


def _raw(text: str, kind: Any) -> object:
    """The TOML value that a text typed on the command line stands for."""
    if kind in DURATIONS:
        duration(text, kind)
        return text
    if kind is ExitCodes:
        return list(msgspec.json.decode(text if text.startswith("[") else f"[{text}]", type=kind))
    if kind in (Fields, Networks, Hosts):
        words: Any = [word.strip() for word in text.split(",")]
        words = msgspec.json.decode(text) if text.startswith("[") else words
        return list(checked(msgspec.convert(words, kind), kind))
    return checked(msgspec.convert(text, kind, strict=False), kind)


def _rewritten(source: str, file: str, key: str, value: object) -> str:
    """The source with one key set, or taken out where the value is none."""
    from tomlkit.exceptions import TOMLKitError  # only an edit needs it, and it takes longer to load than all the rest

    *tables, name = path_of(key)
    document = document_of(source, file)
    table: dict[str, Any] = document
    for depth, each in enumerate(tables):
        table = table_of(table.get(each, {}), ".".join(tables[: depth + 1]), file)
    wanted = {known: raw for known, raw in table.items() if known != name}
    if value is not None:
        wanted[name] = value
    if wanted == table and type(table.get(name)) is type(value):  # true equals 1, and is no number in TOML
        return source
    try:
        after = _laid_out(_with_table(source, tables, document), tables, name, value)
    except TOMLKitError:
        after = ""
    if not _says(after, _with(document, tables, wanted)):
        raise ConfigError(f"{key} cannot be set in {file} as it is laid out; set it by hand")
    return after


def _laid_out(source: str, tables: Sequence[str], name: str, value: object) -> str:
    import tomlkit

    layout: Any = tomlkit.parse(source)
    place = layout
    for each in tables:
        place = place[each]
    if value is None:
        del place[name]
    else:
        _set(place, name, value)
    return tomlkit.dumps(layout)


def _says(source: str, wanted: Mapping[str, Any]) -> bool:
    try:
        return _without_empty(tomllib.loads(source)) == _without_empty(wanted)
    except ValueError:
        return False


def _with(document: Mapping[str, Any], tables: Sequence[str], table: Mapping[str, Any]) -> dict[str, Any]:
    """The document with one of its tables, however deep, replaced."""
    first, *rest = tables
    return {**document, first: _with(document.get(first, {}), rest, table) if rest else table}


def _without_empty(document: Mapping[str, Any]) -> dict[str, Any]:
    return {section: table for section, table in document.items() if table != {}}


def _with_table(source: str, tables: Sequence[str], document: Mapping[str, Any]) -> str:
    if source and not source.endswith("\n"):
        source += "\n"
    for each in tables:
        if each not in document:
            head = ".".join(part if _BARE.fullmatch(part) else json.dumps(part, ensure_ascii=False) for part in tables)
            return f"{source}\n[{head}]\n" if source.strip() else f"[{head}]\n"
        document = document[each]
    return source


def _set(table: Any, name: str, value: object) -> None:
    from tomlkit.items import Table

    is_new = name not in table
    table[name] = value
    if is_new and isinstance(table, Table):
        _below_last_key(table.value.body)


def _below_last_key(body: list[tuple[Any, Any]]) -> None:
    """Move the line just added above the blanks and comments at the table's end: those belong to the next table."""
    place = len(body) - 1
    while place > 0 and body[place - 1][0] is None:
        place -= 1
    body.insert(place, body.pop())


@contextmanager
def _alone(directory: Path) -> Iterator[None]:
    """One editor at a time; a killed one lets go by dying."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _replace(path: Path, content: bytes) -> None:
    """The old file or the new one, never a part. The name of the copy is fixed: what a killed editor left is reused."""
    copy = path.with_name(f".{path.name}.new")
    copy.unlink(missing_ok=True)
    try:
        with os.fdopen(os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        copy.rename(path)
    finally:
        copy.unlink(missing_ok=True)


@contextmanager
def _failures_named(path: Path) -> Iterator[None]:
    try:
        yield
    except RotaError:
        raise
    except OSError as trouble:
        if trouble.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StorageFull(f"the disk is full; {path} is as it was") from trouble
        raise ConfigError(f"{path} cannot be changed: {trouble.strerror}") from trouble

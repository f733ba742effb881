"""Edit one key of the configuration file and keep comments and layout.

An edit holds a `flock` on the directory from the read to the rename, so that concurrent edits do not overwrite each
other. The rename is atomic: the file is complete and valid at any time.
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

from rota.config.key import (
    DURATION_TYPES,
    check_value,
    describe_rejection,
    key_type,
    parse_delays,
    parse_duration_value,
    quote_value,
    split_key,
    suggest_key,
)
from rota.config.reading import check_table, parse_config, parse_document, read_source
from rota.config.section import Config, DelayList, ExitCodeList, FieldNames, HostNames, NetworkList
from rota.errors import ConfigError, InvalidInput, RotaError, StorageFull, escape_unprintable

UNSET = "default"
"""Text of an edit that removes the key, so that the default applies again."""

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def edit(path: Path, key: str, text: str) -> Config:
    """Set one key from its text, or remove it for `UNSET`, and return the new configuration.

    The new file is validated as a whole before it is written: a refused edit leaves the file unchanged.
    """
    if (kind := key_type(key)) is None:
        raise InvalidInput(f"unknown key {escape_unprintable(key)}; {suggest_key(key)}")
    try:
        value = None if text == UNSET else _parse_value(text, kind)
    except (msgspec.DecodeError, InvalidInput) as error:
        raise InvalidInput(f"{key} cannot be {quote_value(text, kind)}{describe_rejection(kind, error)}") from None
    path = path.resolve()  # a link stays a link: its target is replaced
    with _translate_errors(path), _lock_directory(path.parent):
        before = read_source(path)
        after = _rewrite(before, path.name, key, value)
        config = parse_config(after, path.name)
        if after != before:
            _replace(path, after.encode())
    return config


def _parse_value(text: str, kind: Any) -> object:
    """Return the TOML value of a text from the command line."""
    if kind in DURATION_TYPES:
        parse_duration_value(text, kind)
        return text
    if kind is ExitCodeList:
        return list(msgspec.json.decode(text if text.startswith("[") else f"[{text}]", type=kind))
    if kind in (DelayList, FieldNames, NetworkList, HostNames):
        words: Any = [word.strip() for word in text.split(",")]
        words = msgspec.json.decode(text) if text.startswith("[") else words
        if kind is DelayList:
            parse_delays(msgspec.convert(words, tuple[str, ...]))
            return words
        return list(check_value(msgspec.convert(words, kind), kind))
    return check_value(msgspec.convert(text, kind, strict=False), kind)


def _rewrite(source: str, file: str, key: str, value: object) -> str:
    """Return the source with one key set, or removed if the value is None."""
    from tomlkit.exceptions import TOMLKitError  # slow to import, and only edits need it

    *tables, name = split_key(key)
    document = parse_document(source, file)
    table: dict[str, Any] = document
    for depth, section in enumerate(tables):
        table = check_table(table.get(section, {}), ".".join(tables[: depth + 1]), file)
    edited = {key_name: raw for key_name, raw in table.items() if key_name != name}
    if value is not None:
        edited[name] = value
    if edited == table and type(table.get(name)) is type(value):  # True == 1 in Python, but not in TOML
        return source
    try:
        after = _edit_layout(_ensure_table(source, tables, document), tables, name, value)
    except TOMLKitError:
        after = ""
    if not _parses_to(after, _replace_table(document, tables, edited)):
        raise ConfigError(f"{key} cannot be set because of the layout of {file}; edit the file by hand")
    return after


def _edit_layout(source: str, tables: Sequence[str], name: str, value: object) -> str:
    import tomlkit

    layout: Any = tomlkit.parse(source)
    table = layout
    for section in tables:
        table = table[section]
    if value is None:
        del table[name]
    else:
        _set(table, name, value)
    return tomlkit.dumps(layout)


def _parses_to(source: str, expected: Mapping[str, Any]) -> bool:
    try:
        return _without_empty(tomllib.loads(source)) == _without_empty(expected)
    except ValueError:
        return False


def _replace_table(document: Mapping[str, Any], tables: Sequence[str], table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document with the table at this path replaced."""
    first, *rest = tables
    return {**document, first: _replace_table(document.get(first, {}), rest, table) if rest else table}


def _without_empty(document: Mapping[str, Any]) -> dict[str, Any]:
    return {section: table for section, table in document.items() if table != {}}


def _ensure_table(source: str, tables: Sequence[str], document: Mapping[str, Any]) -> str:
    if source and not source.endswith("\n"):
        source += "\n"
    for section in tables:
        if section not in document:
            header = ".".join(
                part if _BARE_KEY.fullmatch(part) else json.dumps(part, ensure_ascii=False) for part in tables
            )
            return f"{source}\n[{header}]\n" if source.strip() else f"[{header}]\n"
        document = document[section]
    return source


def _set(table: Any, name: str, value: object) -> None:
    from tomlkit.items import Table

    is_new = name not in table
    table[name] = value
    if is_new and isinstance(table, Table):
        _move_below_last_key(table.value.body)


def _move_below_last_key(body: list[tuple[Any, Any]]) -> None:
    """Move the new last line above the blank lines and comments before it, which belong to the next table."""
    index = len(body) - 1
    while index > 0 and body[index - 1][0] is None:
        index -= 1
    body.insert(index, body.pop())


@contextmanager
def _lock_directory(directory: Path) -> Iterator[None]:
    """Allow one edit at a time. The kernel releases the lock of a killed process."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _replace(path: Path, content: bytes) -> None:
    """Replace the file atomically. The name of the copy is fixed, so that the copy of a killed process is removed."""
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
def _translate_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except RotaError:
        raise
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StorageFull(f"the disk is full; {path} is unchanged") from error
        raise ConfigError(f"{path} cannot be changed: {error.strerror}") from error

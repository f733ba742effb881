"""Port to a source of work items, and the loading of sources by kind.

A package adds a kind with an entry point in the group `rota.work_sources`: an object, or a class without arguments,
with the method `open(name, path)`, which returns a `WorkSource`.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol, runtime_checkable

import msgspec

from rota.config.extension import PolicyKind, load_policy
from rota.errors import RotaError, escape_unprintable, shorten
from rota.work.model import PARENT, TRACKS, Item

BUILTIN_KINDS = ("beads", "list")
SOURCE_KIND = PolicyKind(
    "kind of source",
    group="rota.work_sources",
    method="open(name, path)",
    builtin_names=BUILTIN_KINDS,
    remedy="use one of beads, list",
)
MAX_FILE_BYTES = 512 << 20
MAX_WARNINGS = 100
"""Maximum number of warnings about one source."""
_READ_ATTEMPTS = 3
_SETTLING_TIME_NS = 50_000_000
"""Age below which a file can change again without a new time stamp, because the kernel updates its clock rarely."""


class SourceError(Exception):
    """Source that cannot be read, with the reason as a text."""


class InvalidContent(SourceError):
    """Source whose content is invalid as a whole, so that reading it again without a change is useless."""


class SourceItems(msgspec.Struct, frozen=True, kw_only=True):
    """Items of a source as read at one time."""

    items: tuple[Item, ...] = ()
    warnings: tuple[str, ...] = ()
    """Problems of single items or lines, with their places."""
    is_partial: bool = False
    """Whether items may be missing because lines are malformed."""


@runtime_checkable
class WorkSource(Protocol):
    """A tracker or a file with work items. Reading never changes it.

    Two methods are optional: `claim(item_id, actor)` marks an item as taken, and `report(item_id, status)` writes the
    status of its job back. A source without them is read only.
    """

    def signature(self) -> object:
        """Return a value that differs whenever the items may have changed. This is cheap, such as a stat of a file."""
        ...

    def items(self) -> SourceItems | Iterable[Item]:
        """Read all items. Raises `SourceError`, or any other exception, if they cannot be read."""
        ...

    def show(self, item_id: str) -> Item | None:
        """Return one item."""
        ...

    def children(self, item_id: str) -> Sequence[str]:
        """Return the ids of the items with this parent."""
        ...

    def tracked(self, item_id: str) -> Sequence[str]:
        """Return the ids of the items that a convoy tracks."""
        ...


class ReadItems:
    """The methods of a source that `items` answers too."""

    def items(self) -> SourceItems:
        raise NotImplementedError

    def show(self, item_id: str) -> Item | None:
        return next((item for item in self.items().items if item.id == item_id), None)

    def children(self, item_id: str) -> Sequence[str]:
        return [
            item.id
            for item in self.items().items
            if item.parent == item_id or any(edge.kind == PARENT and edge.id == item_id for edge in item.depends)
        ]

    def tracked(self, item_id: str) -> Sequence[str]:
        item = self.show(item_id)
        return [] if item is None else [edge.id for edge in item.depends if edge.kind == TRACKS]


def open_source(name: str, kind: str, path: Path) -> WorkSource:
    """Return the source. Raises `SourceError` if its kind is unknown or cannot be loaded."""
    if kind == "beads":
        from rota.work.beads import BeadsSource

        return BeadsSource(name, path)
    if kind == "list":
        from rota.work.listing import ListSource

        return ListSource(name, path)
    try:
        source = load_policy(SOURCE_KIND, kind).open(name, str(path))
    except RotaError as error:
        raise SourceError(error.message) from error
    except (Exception, SystemExit) as error:
        raise SourceError(f"the kind {kind} failed: {describe_error(error)}") from error
    if not isinstance(source, WorkSource):
        raise SourceError(f"the kind {kind} returned no source, but {describe_value(source)}")
    return source


def read_items(name: str, source: WorkSource) -> SourceItems:
    """Read the items of a source. Raises `SourceError` for any error, because the code may be of a third party."""
    try:
        read = source.items()
        if isinstance(source, ReadItems) and isinstance(read, SourceItems):
            return _limit_warnings(read)
        result = read if isinstance(read, SourceItems) else SourceItems(items=tuple(read))
        return _limit_warnings(_check_items(name, result))
    except SourceError:
        raise
    except (Exception, SystemExit) as error:
        raise SourceError(describe_error(error)) from error


def _limit_warnings(read: SourceItems) -> SourceItems:
    rest = len(read.warnings) - MAX_WARNINGS
    if rest <= 0:
        return read
    return msgspec.structs.replace(read, warnings=(*read.warnings[:MAX_WARNINGS], f"{rest} more problems"))


def _check_items(name: str, read: SourceItems) -> SourceItems:
    """Return the valid items of a third party's source, under its name, with warnings about the others."""
    items: list[Item] = []
    warnings = [shorten(escape_unprintable(str(warning))) for warning in read.warnings]
    is_partial = bool(read.is_partial)
    for item in read.items:
        try:
            items.append(_check_item(name, item))
        except (msgspec.ValidationError, TypeError) as error:
            is_partial = True
            warnings.append(f"not a valid work item: {describe_value(item)}: {escape_unprintable(str(error))}")
    return SourceItems(items=tuple(items), warnings=tuple(warnings), is_partial=is_partial)


def _check_item(name: str, raw: object) -> Item:
    values = msgspec.to_builtins(raw)
    if not isinstance(values, dict):
        raise msgspec.ValidationError("expected an Item")
    item = msgspec.convert({**values, "source": name}, Item)
    if not is_item_id(item.id):
        raise msgspec.ValidationError(f"{item.id!r} cannot be an id")
    return msgspec.structs.replace(item, defer_until=as_utc(item.defer_until))


def as_utc(moment: datetime | None) -> datetime | None:
    """Return the time in UTC. A time without a zone is in UTC already."""
    if moment is None:
        return None
    try:
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except OverflowError:  # the first or the last day of the calendar, in another zone
        return moment.replace(tzinfo=UTC)


def is_item_id(text: object) -> bool:
    """Return whether the text can be the id of an item: printable, without spaces or /, at most 200 characters."""
    return isinstance(text, str) and 0 < len(text) <= 200 and text.isprintable() and not {" ", "/"} & set(text)


def describe_error(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"
    return shorten(escape_unprintable(f"{type(error).__name__}: {error}"))


def describe_value(value: object) -> str:
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - `repr` of a third party's object
        text = type(value).__name__
    return escape_unprintable(text[:80])


FileStamp = tuple[int, ...] | None


def stamp_file(path: Path) -> FileStamp:
    """Return what identifies the content of a file; None if there is no file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return _stamp(status)


def _stamp(status: os.stat_result) -> tuple[int, ...]:
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def is_settled(stamps: Iterable[FileStamp]) -> bool:
    """Return whether a later change of the files gives them other stamps."""
    newest = max((stamp[-1] for stamp in stamps if stamp is not None), default=0)
    return not 0 <= time.time_ns() - newest < _SETTLING_TIME_NS


def read_file(path: Path, *, max_bytes: int = MAX_FILE_BYTES) -> bytes:
    """Return the content of a regular file as it was at one time, also if it is replaced or rewritten meanwhile."""
    data = b""
    for _ in range(_READ_ATTEMPTS):
        before, data = _read_once(path, max_bytes)
        if before == stamp_file(path):
            break
    return data


def _read_once(path: Path, max_bytes: int) -> tuple[FileStamp, bytes]:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a FIFO does not block
    except FileNotFoundError:
        raise SourceError(f"{path} does not exist") from None
    except OSError as error:
        raise SourceError(f"{path} cannot be opened: {error.strerror}") from error
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise SourceError(f"{path} is not a regular file")
        if status.st_size > max_bytes:
            raise SourceError(f"{path} is larger than {max_bytes >> 20} MiB")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return _stamp(status), file.read(max_bytes)
    except OSError as error:
        raise SourceError(f"{path} cannot be read: {error.strerror}") from error
    finally:
        os.close(descriptor)

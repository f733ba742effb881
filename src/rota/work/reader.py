"""Reading of the configured sources: only when they have changed, and without ever raising for a bad file.

A source that cannot be read keeps its last good items. So do the items of malformed lines: an item that was there, and
is missing from a file with malformed lines, is known as it was. The board marks all of these as unreadable, so that
none of them looks closed, missing or ready.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path

from rota.config import SourceConfig
from rota.work.beads import BeadsSource, Route
from rota.work.model import Board, Item, SourceView
from rota.work.source import (
    InvalidContent,
    SourceError,
    SourceItems,
    WorkSource,
    describe_error,
    open_source,
    read_items,
)
from rota.work.targets import resolve_path

_UNREAD = object()
"""Signature of a source that has to be read."""


def _utc_now() -> datetime:
    return datetime.now(UTC)


class WorkReader:
    """Board of the configured sources. Its methods read files, and may be called from several threads."""

    def __init__(
        self, sources: Mapping[str, SourceConfig], directory: Path, *, now: Callable[[], datetime] = _utc_now
    ) -> None:
        """Relative paths of sources start at the directory. Nothing is read yet."""
        self._directory = directory
        self._now = now
        self._lock = threading.Lock()
        self._sources: dict[str, _SourceState] = {}
        self._board: Board | None = None
        self._next_change: datetime | None = None
        self._configuration = sources
        self._applied_configuration: Mapping[str, SourceConfig] | None = None

    def configure(self, sources: Mapping[str, SourceConfig]) -> None:
        """Replace the configuration. The next call applies it, so this one never waits for a file."""
        self._configuration = sources

    def board(self) -> Board:
        """Return the board. Reads the sources that have changed; an unchanged source costs a stat."""
        with self._lock:
            return self._refresh(is_forced=False)

    def sync(self) -> Board:
        """Read all sources now and return the board."""
        with self._lock:
            return self._refresh(is_forced=True)

    def routes(self) -> tuple[Route, ...]:
        """Return the routes of all beads sources, as last read."""
        with self._lock:
            self._refresh(is_forced=False)
            return tuple(route for state in self._sources.values() for route in state.routes)

    def source(self, name: str) -> WorkSource | None:
        """Return a source by name; None if it is unknown or cannot be loaded."""
        with self._lock:
            self._apply_configuration()
            state = self._sources.get(name)
            return None if state is None else state.source

    def _apply_configuration(self) -> None:
        """Apply a changed configuration. Unchanged sources keep what was read."""
        configuration = self._configuration
        if configuration is self._applied_configuration:
            return
        self._applied_configuration = configuration
        self._sources = {
            name: state
            if (state := self._sources.get(name)) is not None and state.section == section
            else _SourceState(name, section, self._directory)
            for name, section in configuration.items()
        }
        self._board = None

    def _refresh(self, *, is_forced: bool) -> Board:
        self._apply_configuration()
        has_changed = False
        for state in self._sources.values():
            has_changed |= state.refresh(is_forced=is_forced)
        now = self._now()
        if self._board is None or has_changed:
            self._board = Board([state.view() for state in self._sources.values()], now)
            self._next_change = self._board.next_change
        elif self._next_change is not None and now >= self._next_change:
            self._board = self._board.at(now)
            self._next_change = self._board.next_change
        return self._board


class _SourceState:
    """Source and the result of its last reading."""

    def __init__(self, name: str, section: SourceConfig, directory: Path) -> None:
        self.section = section
        self.source: WorkSource | None = None
        self.routes: tuple[Route, ...] = ()
        self._name = name
        self._path = resolve_path(section.path, directory)
        self._signature: object = _UNREAD
        self._items: dict[str, Item] = {}
        """Last good version of each item."""
        self._duplicates: tuple[Item, ...] = ()
        self._warnings: tuple[str, ...] = ()
        self._unreadable: dict[str, str] = {}
        self._error: str | None = None

    def view(self) -> SourceView:
        items = (*self._items.values(), *self._duplicates)
        return SourceView(self._name, items, self._warnings, self._error, dict(self._unreadable))

    def refresh(self, *, is_forced: bool) -> bool:
        """Read the source if it has changed. Returns whether its view may have changed."""
        try:
            source = self._open()
            signature = _read_signature(source)
            if not is_forced and signature is not None and signature == self._signature:
                return False
            self._signature = _UNREAD if signature is None else signature
            self._apply(read_items(self._name, source))
            self._read_routes(source)
        except SourceError as error:
            if not isinstance(error, InvalidContent):
                self._signature = _UNREAD  # the next attempt may succeed without a change
            was_error, self._error = self._error, str(error)
            return self._error != was_error
        self._error = None
        return True

    def _open(self) -> WorkSource:
        if self.source is None:
            self.source = open_source(self._name, self.section.kind, self._path)
        return self.source

    def _apply(self, read: SourceItems) -> None:
        items: dict[str, Item] = {}
        duplicates = [item for item in read.items if items.setdefault(item.id, item) is not item]
        self._unreadable = {}
        if read.is_partial:
            reason = read.warnings[0] if read.warnings else "a part of the source cannot be read"
            for item_id, item in self._items.items():
                if item_id not in items:
                    items[item_id] = item
                    self._unreadable[item_id] = reason
        self._items, self._duplicates, self._warnings = items, tuple(duplicates), read.warnings

    def _read_routes(self, source: WorkSource) -> None:
        if isinstance(source, BeadsSource):
            self.routes, warnings = source.routes()
            self._warnings = (*self._warnings, *warnings)


def _read_signature(source: WorkSource) -> object:
    try:
        return source.signature()
    except (Exception, SystemExit) as error:
        raise SourceError(describe_error(error)) from error

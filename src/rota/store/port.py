"""Port of a store: it opens sessions, which read and write, and readers."""

from __future__ import annotations

from typing import Protocol

from rota.store.session import Reader, Session


class Store(Protocol):
    @property
    def name(self) -> str:
        """Address of the store, without secrets."""
        ...

    def session(self) -> Session:
        """Open the writing side and migrate the schema. A store has one at a time."""
        ...

    def reader(self) -> Reader:
        """Open another reading side."""
        ...

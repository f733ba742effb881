"""Where a store comes from; its verbs are `Session` (looks and changes) and `Reader` (looks)."""

from __future__ import annotations

from typing import Protocol

from rota.store.session import Reader, Session


class Store(Protocol):
    @property
    def name(self) -> str:
        """Where it is, without secrets."""
        ...

    def session(self) -> Session:
        """The one writing side, its schema brought up to date."""
        ...

    def reader(self) -> Reader:
        """One more reading side."""
        ...

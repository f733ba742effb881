"""Reads of the store from the event loop: a few threads with a reader each."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from rota.store.port import Store
from rota.store.session import Reader

T = TypeVar("T")
_THREAD_COUNT = 2


class ReaderPool:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._threads = ThreadPoolExecutor(_THREAD_COUNT, thread_name_prefix="rota-reader")
        self._local = threading.local()
        self._readers: list[Reader] = []

    async def read(self, view: Callable[[Reader], T]) -> T:
        """Run a view in a reader thread, in one read transaction."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._read, view)

    def _read(self, view: Callable[[Reader], T]) -> T:
        reader: Reader | None = getattr(self._local, "reader", None)
        if reader is None:
            reader = self._local.reader = self._store.reader()
            self._readers.append(reader)
        with reader.read_transaction():
            return view(reader)

    def close(self) -> None:
        self._threads.shutdown()
        for reader in self._readers:
            reader.close()

"""The writing side: one scheduler to a store, and no answer before its outcome is known.

    open         advisory lock of the session ── taken by another ──▶ Conflict: there is a scheduler
    begin        lock the epoch's row ────────── not this one's ────▶ Superseded: stop
    commit       leave a mark, NOTIFY, COMMIT ── connection lost ───▶ connect again, look for the mark

Between turns the scheduler listens on the same channel, so it hears at once of a change that somebody else made,
and of a server that went away.

The server holds the lock as long as its process for this session lives, which is until that process has ended
its last transaction one way or the other. So whoever has taken the lock again looks at a decided past: either
the mark of the last turn is there and all of the turn is, or nothing is.

The mark is a row rather than the transaction's number, because after a crash the server hands out again the
numbers it had not written down: the status of «our» transaction would be that of somebody else's.
"""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from datetime import timedelta
from secrets import token_hex

import psycopg
from psycopg import errors

from rota.duration import show_duration
from rota.errors import Conflict, StoreAway, StoreError
from rota.store.database import OutcomeUnknown, Superseded
from rota.store.postgres.address import Address
from rota.store.postgres.connection import Connection
from rota.store.postgres.database import PostgresDatabase
from rota.store.postgres.schema import migrate
from rota.store.postgres.trouble import meaning

log = logging.getLogger("rota.store")

TURN = "turn"
"""The row of `meta` that bears the mark of the last turn."""
_BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;SELECT value FROM meta WHERE key = 'epoch' FOR UPDATE"
_LAST = f"SELECT value FROM meta WHERE key IN ('epoch', '{TURN}') ORDER BY key"
_UNKNOWN = "whether what was sent last is stored is not known"
_PAUSE = 0.2
"""Seconds between two tries to learn the outcome of a commit."""


class WritingDatabase(PostgresDatabase):
    def __init__(self, address: Address, *, lock_wait: float, patience: float) -> None:
        self._lock_wait = lock_wait
        self._patience = patience
        self._backend: tuple[int, str] | None = None
        self._epoch: str | None = None
        self._token = token_hex(8)
        self._turns = 0
        self._is_new = False
        super().__init__(address)
        self._is_new = False

    def migrate(self) -> None:
        self._tried(lambda: migrate(self._live(), self._address))

    def _connect(self) -> None:
        """With the lock, or not at all."""
        self._drop()
        connection = self._tried(lambda: Connection(self._address))
        try:
            self._lock(connection)
        except BaseException:
            connection.close()
            raise
        self._connection, self._backend, self._is_new = connection, connection.backend, True

    def _lock(self, connection: Connection) -> None:
        where = self._address.shown
        try:
            if self._backend is not None:  # our own old session may not have noticed that we are gone
                pid, since = self._backend
                connection.do(
                    f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
                    f"WHERE pid = {pid} AND backend_start = '{since}'"
                )
            connection.do(
                f"SET lock_timeout TO {round(self._lock_wait * 1000)};"
                f"SELECT pg_advisory_lock({self._address.lock});RESET lock_timeout;"
                f"LISTEN {self._address.channel}"
            )
        except errors.LockNotAvailable:
            holder = self._tried(lambda: _holder(connection, self._address.lock))
            if self._backend is None:
                raise Conflict(f"another scheduler {holder} has {where}; use it, or stop it first") from None
            raise Superseded(f"another scheduler {holder} took {where} over; this one stops") from None
        except psycopg.Error as error:
            raise meaning(error, where) from error

    def fileno(self) -> int:
        return -1 if self._connection is None or self._connection.is_lost else self._connection.fileno()

    def hear(self) -> bool:
        return self._connection is not None and self._connection.hear()

    def own_epoch(self, epoch: int) -> None:
        self._epoch = str(epoch)

    def begin(self) -> bool:
        """Whether the connection is a new one, until a turn has been stored over it."""
        self._tried_again(self._open_turn)
        return self._is_new

    def _open_turn(self) -> None:
        self._waiting.clear()
        self._has_changed = False
        found = self._live().texts(_BEGIN)
        self._is_inside = True
        if self._epoch is None and found:
            self._epoch = found[0][0]
        elif not found or found[0][0] != self._epoch:
            self.rollback()
            raise Superseded(f"another scheduler took {self._address.shown} over; this one stops")

    def commit(self) -> None:
        self.catch_up()
        self._waiting.clear()
        self._is_inside = False
        if self._has_changed:
            self._commit_marked()
        else:
            self._confirm(self._tried(lambda: self._live().do("COMMIT").command_status))
        self._is_new = False

    def _commit_marked(self) -> None:
        self._turns += 1
        mark = f"{self._token}.{self._turns}"
        try:
            answer = self._live().do(
                f"UPDATE meta SET value = '{mark}' WHERE key = '{TURN}';NOTIFY {self._address.channel};COMMIT"
            )
        except psycopg.Error as error:
            if not self._is_lost:
                raise meaning(error, self._address.shown) from error
            if not self._is_stored(mark):
                raise StoreAway(f"the connection to {self._address.shown} was lost; nothing was stored") from error
        else:
            self._confirm(answer.command_status)

    def _is_stored(self, mark: str) -> bool:
        """Nobody is answered before this is known. If the server stays away the scheduler stops instead, and its
        successor recovers: that is right whatever the outcome was."""
        until = time.monotonic() + self._patience
        is_said = False
        while True:
            try:
                self._connect()
                (epoch,), (turn,) = self._tried(lambda: self._live().texts(_LAST))
            except (Superseded, StoreError) as error:
                if not is_said:
                    is_said = True
                    wait = show_duration(timedelta(seconds=self._patience))
                    log.warning("%s; whether what was sent last is stored is asked for %s", error.message, wait)
                if isinstance(error, Superseded) or time.monotonic() > until:
                    raise OutcomeUnknown(f"{_UNKNOWN}: {error.message}") from error
                time.sleep(_PAUSE)
                continue
            if epoch != self._epoch:
                raise OutcomeUnknown(f"{_UNKNOWN}: another scheduler has been here")
            return turn == mark

    def close(self) -> None:
        """The next one may open at once: the lock is free when this returns."""
        if self._connection is not None and not self._connection.is_lost:
            with suppress(psycopg.Error):
                self._connection.do(f"SELECT pg_advisory_unlock({self._address.lock})")
        super().close()


def _holder(connection: Connection, lock: int) -> str:
    """Who has the lock, for people. The server shows the two halves of its key, without their sign."""
    rows = connection.texts(
        "SELECT pid, coalesce(host(client_addr), 'its own machine') FROM pg_locks JOIN pg_stat_activity USING (pid) "
        "WHERE locktype = 'advisory' AND granted AND datname = current_database() "
        f"AND objsubid = 1 AND classid = {lock >> 32 & 0xFFFFFFFF} AND objid = {lock & 0xFFFFFFFF}"
    )
    return f"(session {rows[0][0]} from {rows[0][1]})" if rows else "(it has just ended)"

"""Writing side on PostgreSQL: one scheduler for each store, and no response before the outcome of its commit is known.

    open         take the session's advisory lock ── held by another ──▶ Conflict: a scheduler is running
    migrate      to the schema of this version ───── unknown schema ───▶ StoreError: refused
    begin        lock the row of the epoch ───────── another epoch ────▶ SupersededError: stop
    commit       write a marker, NOTIFY, COMMIT ──── connection lost ──▶ reconnect, read the marker

Between turns the scheduler listens on the same channel, so it learns at once of changes by other clients and of a lost
server.

The server holds the lock as long as its process for this session lives, and that process ends only after its last
transaction has committed or rolled back. So after the scheduler has taken the lock again, the outcome is decided: if
the marker of the last turn is stored, the whole turn is; otherwise nothing is.

The marker is a row and not the transaction id, because after a crash the server reuses the ids that it had not logged:
the status of such an id could be that of another transaction.
"""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from datetime import timedelta
from secrets import token_hex

import psycopg
from psycopg import errors

from rota.db.database import SupersededError, UnknownOutcomeError
from rota.db.postgres.address import PostgresAddress
from rota.db.postgres.connection import PostgresConnection, translate_error
from rota.db.postgres.database import PostgresDatabase
from rota.db.postgres.dialect import translate_schema
from rota.db.statements import find_schema_mismatch, load_migrations, schema_digest
from rota.duration import format_duration
from rota.errors import Conflict, StoreError, StoreUnavailable

log = logging.getLogger("rota.db")

TURN_KEY = "turn"
"""Key in `meta` of the marker of the last turn."""
_CREATE_META_SQL = translate_schema(
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);"
    "INSERT INTO meta (key, value) VALUES ('epoch', '0'), ('turn', '')"  # rows that every turn locks and marks
)
_BEGIN_SQL = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;SELECT value FROM meta WHERE key = 'epoch' FOR UPDATE"
_LAST_TURN_SQL = f"SELECT value FROM meta WHERE key IN ('epoch', '{TURN_KEY}') ORDER BY key"
_UNKNOWN_OUTCOME = "the outcome of the last transaction is not known"
_RECONNECT_INTERVAL = 0.2
"""Seconds between two attempts to read the outcome of a commit."""


class PostgresWriterDatabase(PostgresDatabase):
    def __init__(self, address: PostgresAddress, *, lock_timeout: float, reconnect_timeout: float) -> None:
        self._lock_timeout = lock_timeout
        self._reconnect_timeout = reconnect_timeout
        self._backend: tuple[int, str] | None = None
        self._epoch: str | None = None
        self._token = token_hex(8)
        self._turns = 0
        self._is_new_connection = False
        super().__init__(address)
        self._is_new_connection = False

    def migrate(self) -> None:
        self._run_translated(lambda: _migrate_schema(self._live_connection(), self._address))

    def _connect(self) -> None:
        """Connect and take the lock, or fail."""
        self._disconnect()
        connection = self._run_translated(lambda: PostgresConnection(self._address))
        try:
            self._acquire_lock(connection)
        except BaseException:
            connection.close()
            raise
        self._connection, self._backend, self._is_new_connection = connection, connection.backend, True

    def _acquire_lock(self, connection: PostgresConnection) -> None:
        url = self._address.redacted_url
        try:
            if self._backend is not None:  # the server may still hold our old session open
                pid, since = self._backend
                connection.execute_script(
                    f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
                    f"WHERE pid = {pid} AND backend_start = '{since}'"
                )
            connection.execute_script(
                f"SET lock_timeout TO {round(self._lock_timeout * 1000)};"
                f"SELECT pg_advisory_lock({self._address.lock_key});RESET lock_timeout;"
                f"LISTEN {self._address.channel}"
            )
        except errors.LockNotAvailable:
            holder = self._run_translated(lambda: _lock_holder(connection, self._address.lock_key))
            if self._backend is None:
                raise Conflict(f"another scheduler {holder} uses {url}; use that scheduler, or stop it first") from None
            raise SupersededError(f"another scheduler {holder} has taken over {url}; this one stops") from None
        except psycopg.Error as error:
            raise translate_error(error, url) from error

    def fileno(self) -> int:
        return -1 if self._connection is None or self._connection.is_lost else self._connection.fileno()

    def poll_notifications(self) -> bool:
        return self._connection is not None and self._connection.poll_notifications()

    def set_fencing_epoch(self, epoch: int) -> None:
        self._epoch = str(epoch)

    def begin(self) -> bool:
        """Begin a turn. Return true after a reconnect, until a turn has been committed."""
        self._run_with_reconnect(self._begin_turn)
        return self._is_new_connection

    def _begin_turn(self) -> None:
        self._pending_control.clear()
        self._has_writes = False
        rows = self._live_connection().query_text(_BEGIN_SQL)
        self._is_in_transaction = True
        if self._epoch is None and rows:
            self._epoch = rows[0][0]
        elif not rows or rows[0][0] != self._epoch:
            self.rollback()
            raise SupersededError(f"another scheduler has taken over {self._address.redacted_url}; this one stops")

    def commit(self) -> None:
        self.flush()
        self._pending_control.clear()
        self._is_in_transaction = False
        if self._has_writes:
            self._commit_with_marker()
        else:
            self._check_commit(
                self._run_translated(lambda: self._live_connection().execute_script("COMMIT").command_status)
            )
        self._is_new_connection = False

    def _commit_with_marker(self) -> None:
        self._turns += 1
        marker = f"{self._token}.{self._turns}"
        try:
            response = self._live_connection().execute_script(
                f"UPDATE meta SET value = '{marker}' WHERE key = '{TURN_KEY}';NOTIFY {self._address.channel};COMMIT"
            )
        except psycopg.Error as error:
            if not self._is_lost:
                raise translate_error(error, self._address.redacted_url) from error
            if not self._is_committed(marker):
                raise StoreUnavailable(
                    f"the connection to {self._address.redacted_url} was lost; nothing was stored"
                ) from error
        else:
            self._check_commit(response.command_status)

    def _is_committed(self, marker: str) -> bool:
        """Return whether the turn with this marker was committed. No request gets a response before this is known.

        If the server stays unavailable, the scheduler stops and its successor recovers, which is correct for either
        outcome.
        """
        deadline = time.monotonic() + self._reconnect_timeout
        has_warned = False
        while True:
            try:
                self._connect()
                (epoch,), (turn,) = self._run_translated(lambda: self._live_connection().query_text(_LAST_TURN_SQL))
            except (SupersededError, StoreError) as error:
                if not has_warned:
                    has_warned = True
                    timeout = format_duration(timedelta(seconds=self._reconnect_timeout))
                    log.warning(
                        "%s; retrying for %s to learn the outcome of the last transaction", error.message, timeout
                    )
                if isinstance(error, SupersededError) or time.monotonic() > deadline:
                    raise UnknownOutcomeError(f"{_UNKNOWN_OUTCOME}: {error.message}") from error
                time.sleep(_RECONNECT_INTERVAL)
                continue
            if epoch != self._epoch:
                raise UnknownOutcomeError(f"{_UNKNOWN_OUTCOME}: another scheduler has used the store since")
            return turn == marker

    def close(self) -> None:
        """Close the connection. The lock is free on return, so that the next scheduler can open the store at once."""
        if self._connection is not None and not self._connection.is_lost:
            with suppress(psycopg.Error):
                self._connection.execute_script(f"SELECT pg_advisory_unlock({self._address.lock_key})")
        super().close()


def _lock_holder(connection: PostgresConnection, lock: int) -> str:
    """Describe the session that holds the lock. The server shows the key as two unsigned halves."""
    rows = connection.query_text(
        "SELECT pid, coalesce(host(client_addr), 'a local socket') FROM pg_locks JOIN pg_stat_activity USING (pid) "
        "WHERE locktype = 'advisory' AND granted AND datname = current_database() "
        f"AND objsubid = 1 AND classid = {lock >> 32 & 0xFFFFFFFF} AND objid = {lock & 0xFFFFFFFF}"
    )
    return f"(session {rows[0][0]} from {rows[0][1]})" if rows else "(its session has just ended)"


def _migrate_schema(connection: PostgresConnection, address: PostgresAddress) -> None:
    """Migrate in one transaction, so that a crash leaves the old schema.

    The caller holds the scheduler's lock, so two schedulers cannot migrate at once, and closes the connection on
    failure.
    """
    scripts = load_migrations(translate_schema)
    version, digest = _read_schema_version(connection, address)
    if (mismatch := find_schema_mismatch(version, digest, load_migrations(str))) is not None:
        raise StoreError(f"{address.redacted_url} {mismatch}, or use another schema with ?search_path=")
    if version == len(scripts):
        return
    connection.execute_script("BEGIN")
    if not _has_schema(connection, address):
        connection.execute_script(f'CREATE SCHEMA "{address.schema}"')
    if version == 0:
        connection.execute_script(_CREATE_META_SQL)
    for script in scripts[version:]:
        connection.execute_script(script)
    connection.execute_script(
        f"INSERT INTO meta (key, value) VALUES ('schema_version', '{len(scripts)}'), "
        f"('schema_digest', '{schema_digest(load_migrations(str))}') "
        "ON CONFLICT (key) DO UPDATE SET value = excluded.value"
    )
    connection.execute_script("COMMIT")


def _has_schema(connection: PostgresConnection, address: PostgresAddress) -> bool:
    """Return whether the schema exists. Creating it again would need a privilege that the user may not have."""
    return bool(connection.query_text(f"SELECT 1 FROM pg_namespace WHERE nspname = '{address.schema}'"))


def _read_schema_version(connection: PostgresConnection, address: PostgresAddress) -> tuple[int, str | None]:
    """Return the version of the schema, zero if there is none, and its digest."""
    if not connection.query_text(f"SELECT 1 WHERE to_regclass('\"{address.schema}\".meta') IS NOT NULL"):
        return 0, None
    rows = connection.query_text("SELECT key, value FROM meta WHERE key IN ('schema_version', 'schema_digest')")
    stored = {key: value for key, value in rows}  # noqa: C416 - a row is a tuple of any length to `dict`
    return int(stored.get("schema_version") or 0), stored.get("schema_digest")

"""Connection to a PostgreSQL server, with named statements that are prepared on first use and pipelined in bulk.

It uses `psycopg.pq`, the calls of libpq, because a turn has many small statements: the `execute` of a cursor costs
three times as much as its round trip, and psycopg's cursors discard every prepared statement on each ROLLBACK,
including ROLLBACK TO.

`translate_error` makes errors of the store from errors of the server.
"""

from __future__ import annotations

import select
from collections.abc import Mapping, Sequence
from typing import Any

import psycopg
from psycopg import abc, errors, pq
from psycopg.adapt import Transformer
from psycopg.types.numeric import IntLoader

from rota.db.database import Row
from rota.db.postgres.address import PostgresAddress
from rota.db.postgres.dialect import PostgresStatement, bind_values
from rota.errors import StorageFull, StoreError, StoreUnavailable

_MIN_SERVER_VERSION = 140000
_PIPELINE_ROWS = 1000
"""Rows in flight at once. Results are not read while rows are sent, so the responses must fit into the buffers."""
_SUCCESS_STATUSES = (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK)
_SESSION_ENDED_CODES = ("57P01", "57P02", "57P03", "57P05")
"""Codes of a session that ended: shutdown, crash, startup, idle timeout."""
_TOO_MANY_CONNECTIONS = "53300"
"""Code of a refused connection. It is temporary: other clients disconnect."""
_ERROR_CLASSES: dict[str, type[psycopg.Error]] = {
    "08": psycopg.OperationalError,
    "22": psycopg.DataError,
    "23": psycopg.IntegrityError,
    "53": psycopg.OperationalError,
    "57": psycopg.OperationalError,
}

_SETTINGS = """
SET search_path TO "{schema}";
-- The statements are written for nested loops over indexes, the only join method of SQLite. The statistics of a queue
-- are always out of date, so a plan must not depend on them.
SET plan_cache_mode TO force_generic_plan;
SET enable_seqscan TO off;
SET enable_bitmapscan TO off;
SET enable_hashjoin TO off;
SET enable_mergejoin TO off;
SET enable_sort TO off;
SET jit TO off;
-- The server must notice the loss of this machine, because the session holds the scheduler's lock.
SET tcp_keepalives_idle TO 10;
SET tcp_keepalives_interval TO 5;
SET tcp_keepalives_count TO 3;
-- An accepted submit must be on disk. A stricter setting of the server is kept.
SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off';
SELECT pid, backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid();
"""


class PostgresConnection:
    def __init__(self, address: PostgresAddress) -> None:
        self._psycopg = psycopg.connect(**dict(address.parameters), autocommit=True)  # type: ignore[arg-type]
        self._pg = self._psycopg.pgconn
        self._has_failed = False
        self._poll = select.poll()
        self._poll.register(self._pg.socket)
        self._row_readers: dict[str, abc.Transformer | None] = {}
        # The server returns a sum of BIGINT as NUMERIC; the store expects an integer, as from SQLite.
        self._psycopg.adapters.register_loader("numeric", IntLoader)
        try:
            if self._pg.server_version < _MIN_SERVER_VERSION:
                raise StoreError(f"{address.redacted_url} is older than PostgreSQL 14; upgrade to 14 or newer")
            response = self.execute_script(_SETTINGS.format(schema=address.schema))
            self.backend = (int(response.get_value(0, 0) or 0), (response.get_value(0, 1) or b"").decode())
            """Pid and start time of the server process, which together identify it."""
        except BaseException:
            self.close()
            raise

    @property
    def is_lost(self) -> bool:
        """Whether the connection is lost. The status of libpq is not enough: it stays good if only sending failed."""
        return self._has_failed or self._pg.status != pq.ConnStatus.OK

    def _check_result(self, result: pq.abc.PGresult) -> pq.abc.PGresult:
        if result.status not in _SUCCESS_STATUSES:
            raise self._record_failure(error_from_result(result))
        return result

    def _record_failure(self, error: psycopg.Error) -> psycopg.Error:
        self._has_failed = self._has_failed or is_connection_lost(error)
        return error

    @property
    def is_in_transaction(self) -> bool:
        return self._pg.transaction_status in (pq.TransactionStatus.INTRANS, pq.TransactionStatus.INERROR)

    def execute_script(self, sql: str) -> pq.abc.PGresult:
        """Execute statements without parameters in one round trip and return the result of the last one."""
        try:
            return self._check_result(self._pg.exec_(sql.encode()))
        except psycopg.OperationalError as error:
            raise self._record_failure(error) from None

    def query_text(self, sql: str) -> list[tuple[str | None, ...]]:
        """Return the rows of a statement without parameters, with all values as text."""
        result = self.execute_script(sql)
        cells = [[result.get_value(row, column) for column in range(result.nfields)] for row in range(result.ntuples)]
        return [tuple(None if cell is None else cell.decode() for cell in row) for row in cells]

    def execute(self, name: str, statement: PostgresStatement, values: Mapping[str, Any]) -> pq.abc.PGresult:
        parameters: Any = bind_values(statement, values)
        try:
            if name not in self._row_readers:
                self._prepare(name, statement)
            return self._check_result(self._pg.exec_prepared(name.encode(), parameters))
        except psycopg.OperationalError as error:
            raise self._record_failure(error) from None

    def read_rows(self, name: str, result: pq.abc.PGresult) -> list[Row]:
        if not result.ntuples:
            return []
        reader = self._row_readers[name]
        if reader is None:
            reader = self._row_readers[name] = Transformer(self._psycopg)
            reader.set_pgresult(result)
        else:
            reader.set_pgresult(result, set_loaders=False)
        return reader.load_rows(0, result.ntuples, tuple)

    def execute_many(self, name: str, statement: PostgresStatement, values: Sequence[Mapping[str, Any]]) -> int:
        """Execute a statement for many rows in a pipeline and return the total number of affected rows."""
        rows = [bind_values(statement, row) for row in values]
        try:
            if name not in self._row_readers:
                self._prepare(name, statement)
            return sum(
                self._pipeline(name.encode(), rows[n : n + _PIPELINE_ROWS]) for n in range(0, len(rows), _PIPELINE_ROWS)
            )
        except psycopg.OperationalError as error:
            raise self._record_failure(error) from None

    def _pipeline(self, name: bytes, rows: Sequence[Sequence[bytes | None]]) -> int:
        affected, failure = 0, None
        self._pg.enter_pipeline_mode()
        for row in rows:
            self._pg.send_query_prepared(name, row)
        self._pg.pipeline_sync()
        while True:
            result = self._next_result()
            if result is None:  # end of the results of one statement
                continue
            if result.status == pq.ExecStatus.PIPELINE_SYNC:
                break
            if result.status in _SUCCESS_STATUSES:
                affected += result.command_tuples or 0
            elif failure is None:
                failure = self._record_failure(error_from_result(result))
        self._pg.exit_pipeline_mode()
        if failure is not None:
            raise failure
        return affected

    def _next_result(self) -> pq.abc.PGresult | None:
        """Return the next result. Waits by polling the socket, because `get_result` would block all threads."""
        while self._pg.is_busy():
            self._poll.modify(self._pg.socket, select.POLLIN | (select.POLLOUT if self._pg.flush() else 0))
            self._poll.poll()
            self._pg.consume_input()
        if self.is_lost:
            raise psycopg.OperationalError("the connection was lost")  # the end of the results will not arrive
        return self._pg.get_result()

    def _prepare(self, name: str, statement: PostgresStatement) -> None:
        self._check_result(self._pg.prepare(name.encode(), statement.sql))
        self._row_readers[name] = None

    def fileno(self) -> int:
        return self._pg.socket

    def poll_notifications(self) -> bool:
        """Consume pending notifications. Return whether another session sent one or the connection is lost."""
        try:
            self._pg.consume_input()
        except psycopg.OperationalError as error:
            self._record_failure(error)
            return True
        has_news = self.is_lost
        while (notification := self._pg.notifies()) is not None:
            has_news = has_news or notification.be_pid != self.backend[0]
        return has_news

    def cursor(self) -> psycopg.Cursor[Row]:
        """Return a cursor for COPY."""
        return self._psycopg.cursor()

    def close(self) -> None:
        self._psycopg.close()


def translate_error(error: psycopg.Error, server_name: str) -> Exception:
    if isinstance(error, (errors.IntegrityError, errors.DataError)):
        return error  # a broken invariant is a defect of the caller, not a failure of the database
    if isinstance(error, errors.DiskFull):
        return StorageFull(f"the disk of {server_name} is full; nothing was stored: free some space and try again")
    text = " ".join(str(error).split()) or type(error).__name__
    if is_connection_lost(error) or error.sqlstate == _TOO_MANY_CONNECTIONS:
        return StoreUnavailable(f"the database {server_name} is unavailable: {text}")
    return StoreError(f"the database {server_name} cannot be used: {text}")


def is_connection_lost(error: psycopg.Error) -> bool:
    """Return whether the session ended or never started. libpq reports both without a code."""
    code = error.sqlstate
    return isinstance(error, psycopg.OperationalError) and (
        code is None or code[:2] == "08" or code in _SESSION_ENDED_CODES
    )


def error_from_result(result: pq.abc.PGresult) -> psycopg.Error:
    """Return the exception for a result. A result without a code comes from libpq and means a lost connection."""
    code = result.error_field(pq.DiagnosticField.SQLSTATE)
    message = result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY) or result.error_message
    kind = errors.OperationalError if code is None else _error_class(code.decode())
    return kind(message.decode(errors="replace"))


def _error_class(code: str) -> type[psycopg.Error]:
    try:
        return errors.lookup(code)
    except KeyError:
        return _ERROR_CLASSES.get(code[:2], psycopg.DatabaseError)

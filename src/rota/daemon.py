"""`rota serve`: the one place where the parts are put together.

main thread     asyncio: HTTP on the socket, signals
rota-engine     the only writer: turns of one transaction each, the supervisor's socket
rota-reader     views, each at one moment of the store
rota-mirror     files for people and tools, written behind
"""

from __future__ import annotations

import asyncio
import fcntl
import getpass
import logging
import os
import signal
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import uvicorn

from rota import __version__, config
from rota.api.app import application
from rota.api.context import Context, Hub
from rota.clock import SystemClock
from rota.command.submit import Surroundings
from rota.config import Config
from rota.core.event import Event
from rota.core.pool import GLOBAL, Limits, PoolPolicy
from rota.duration import show_duration
from rota.engine.dispatch import Starter
from rota.engine.engine import Engine
from rota.engine.loop import Loop
from rota.engine.mirror import META, Mirror
from rota.engine.work import Request, Settings, Work
from rota.errors import Conflict, RotaError, Unavailable
from rota.executor.local import LocalExecutor
from rota.home import Home, short_address
from rota.ids import JobId, show_job
from rota.store.session import Session
from rota.store.sqlite.store import SqliteStore

log = logging.getLogger("rota.daemon")

_LOOK_AT_CONFIG = 2.0
"""A file cannot tell that it was edited: seconds between looks at its time stamp."""
_ANSWERS_LEFT = 1
"""Seconds for answers under way when the scheduler ends; a log that is followed breaks off then."""


def main(home: Home) -> int:
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s", force=True
    )
    logging.getLogger("uvicorn").setLevel(logging.WARNING)  # that it started and ended is ours to say
    try:
        with sole_scheduler(home):
            return asyncio.run(Daemon(home).serve())
    except RotaError as error:
        print(f"rota: {error.message}", file=sys.stderr)
        return error.exit_code


@contextmanager
def sole_scheduler(home: Home) -> Iterator[None]:
    """One scheduler to a home. The kernel frees the lock with its holder, so a dead one never wedges the next."""
    home.lock.touch(mode=0o600)
    with home.lock.open("r+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Conflict(
                f"another scheduler (pid {lock.read().strip() or '?'}) has {home.root}; use it, or `rota down` first"
            ) from None
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        yield


class Server(uvicorn.Server):
    """Signals are the daemon's, not the HTTP server's."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def settings_of(given: Config) -> Settings:
    return Settings(
        limits=Limits(given.pools),
        policy=PoolPolicy(),
        batch_size=given.scheduler.batch_size,
        kill_after=given.scheduler.kill_after,
        start_timeout=given.scheduler.start_timeout,
    )


class Daemon:
    def __init__(self, home: Home) -> None:
        self._home = home
        self._clock = SystemClock()
        self._started_at = self._clock.now()
        self._config = config.load(home.config)
        self._config_seen = _stamp(home.config)
        self._config_trouble: str | None = None
        home.jobs.mkdir(mode=0o700, exist_ok=True)  # before anybody makes it on the way, under any umask
        self._store = SqliteStore(home.database)
        self._session: Session = self._store.session()
        self._session.begin()
        generation = self._session.raise_epoch()
        self._session.commit()
        self._executor = LocalExecutor(home.root, generation)
        self._mirror = Mirror(self._store, home.jobs)
        self._grace: timedelta | None = None
        self._signals = 0

    @property
    def config(self) -> Config:
        return self._config

    async def serve(self) -> int:
        loop = asyncio.get_running_loop()
        self._loop = loop
        self._stopping = asyncio.Event()
        self._hub = Hub(loop)
        self._engine = Engine(
            session=self._session,
            executor=self._executor,
            clock=self._clock,
            settings=settings_of(self._config),
            starter=Starter(self._home.root, self._home.jobs),
            publish=self._publish,
        )
        self._turns = Loop(self._engine, self._executor, self._clock, self._on_crash)
        context = self._reading = self._context()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal)
        loop.add_signal_handler(signal.SIGHUP, self._try_reload)
        server = Server(_server_config(application(context)))
        self._turns.start()
        self._mirror.start()
        with bound_socket(self._home) as listening:
            serving = asyncio.create_task(server.serve(sockets=[listening]))
            watching = asyncio.create_task(self._watch_config())
            log.info("rota %s serves %s", __version__, self._home.root)
            await self._stopping.wait()
            await self._drain()
            watching.cancel()
            self._hub.close()
            server.should_exit = True
            await serving
        self._close(context)
        return 1 if self._has_crashed else 0

    _has_crashed = False

    def _context(self) -> Context:
        root = self._home.root
        return Context(
            home=self._home,
            store=self._store,
            clock=self._clock,
            engine=self._turns,
            hub=self._hub,
            control=self,
            actor=_user(),
            around=Surroundings(
                cwd=str(root.parent if root.name == ".rota" else Path.home()),
                variables={name: value for name, value in os.environ.items() if not name.startswith("ROTA_")},
            ),
        )

    def _publish(self, events: Sequence[Event]) -> None:
        self._hub.publish(events)
        self._mirror.publish(events)

    def _on_crash(self) -> None:
        """Without its engine the process is of no use; what runs stays with the supervisor."""
        self._has_crashed = True
        self._loop.call_soon_threadsafe(self._stopping.set)

    # What the API asks.

    def reload(self) -> None:
        self._config_seen = _stamp(self._home.config)
        self._apply(config.load(self._home.config))

    def set_pool(self, name: str, size: int) -> None:
        self._apply(config.edit(self._home.config, f"pools.{name}", str(size)))
        self._config_seen = _stamp(self._home.config)

    def _apply(self, given: Config) -> None:
        """Before the next tick: a raised limit dispatches at once."""
        self._config, self._config_trouble = given, None

        def act(work: Work) -> None:
            self._engine.settings = work.settings = settings_of(given)

        self._turns.submit(Request(act, lambda _: None))

    def stop(self, grace: timedelta | None) -> None:
        self._grace = grace
        self._stopping.set()

    def about(self) -> dict[str, Any]:
        trouble = [self._engine.trouble.message] if self._engine.trouble is not None else []
        if self._config_trouble is not None:
            trouble.append(f"the configuration on disk is not in force: {self._config_trouble}")
        return {
            "home": str(self._home.root),
            "socket": str(self._home.socket),
            "pid": os.getpid(),
            "version": __version__,
            "started_at": self._started_at,
            "supervisor_pid": self._executor.supervisor_pid,
            "stopping": self._stopping.is_set(),
            "trouble": trouble,
            "recovery": self._engine.recovery,
        }

    # Configuration changed by hand.

    async def _watch_config(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_AT_CONFIG)
            if _stamp(self._home.config) != self._config_seen:
                self._try_reload()

    def _try_reload(self) -> None:
        try:
            self.reload()
            log.info("took up %s", self._home.config)
        except RotaError as error:
            self._config_trouble = error.message
            log.warning("%s; the configuration before it stays in force", error.message)

    # Shutdown (CON-003).

    def _on_signal(self) -> None:
        self._signals += 1
        if self._signals > 1:
            self._hub.wake()
        self._stopping.set()

    async def _drain(self) -> None:
        """No new dispatch; running jobs get the grace period. What still runs then stays with the supervisor."""
        if self._has_crashed:
            return
        self._engine.is_draining = True
        grace = self._grace if self._grace is not None else self._config.scheduler.grace
        log.info("stopping; running jobs have %s to finish", show_duration(grace))
        left = await self._hub.until(None, grace.total_seconds(), self._running, self._is_drained)
        if left:
            names = ", ".join(show_job(job) for job in left)
            log.warning("still running, left to the supervisor and adopted at the next start: %s", names)

    async def _running(self) -> list[JobId]:
        return await self._reading.look(lambda reader: reader.users_of(GLOBAL))

    def _is_drained(self, left: list[JobId]) -> bool:
        return not left or self._has_crashed or self._signals > 1

    def _close(self, context: Context) -> None:
        self._turns.submit(Request(self._remember_mirror, lambda _: None))
        self._turns.stop()
        self._mirror.stop()
        context.close()
        self._executor.close()
        self._session.close()
        log.info("stopped")

    def _remember_mirror(self, work: Work) -> None:
        work.session.set_meta(META, str(self._mirror.position))


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        seen = path.stat()
    except OSError:
        return None
    return seen.st_mtime_ns, seen.st_size, seen.st_ino


def _server_config(app: Any) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        loop="asyncio",
        http="httptools",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=_ANSWERS_LEFT,
    )


@contextmanager
def bound_socket(home: Home) -> Iterator[socket.socket]:
    """Only the holder of the scheduler's lock comes here, so what lies there is nobody's any more."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        with suppress(FileNotFoundError):
            home.socket.unlink()
        with short_address(home.root, home.socket.name) as address:
            listening.bind(address)
    except OSError as error:
        raise Unavailable(f"cannot listen on {home.socket}: {error.strerror}") from error
    finally:
        os.umask(before)
    listening.listen(1024)
    try:
        yield listening
    finally:
        listening.close()
        with suppress(FileNotFoundError):
            home.socket.unlink()

"""`rota serve`: the one place where the parts are put together.

main thread     asyncio: HTTP on the socket and over TCP, signals, webhooks
rota-engine     the only writer: turns of one transaction each, the supervisor's socket
rota-reader     views, each at one moment of the store
rota-prober     repositories and files outside, looked at for jobs that wait for them
rota-mirror     files for people and tools, written behind
rota-gc         once a day, removes what is old
rota-depth      while anything waits, logs what
"""

from __future__ import annotations

import asyncio
import gc
import getpass
import logging
import math
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import timedelta
from functools import partial
from pathlib import Path

from rota import __version__, config
from rota.api.alarm import Alarm
from rota.api.app import ROUTER, Application
from rota.api.context import Context, Hub, wait_for
from rota.api.hold import HoldFile
from rota.api.limit import Limited, most_connections, most_streams
from rota.api.protocol import Protocol
from rota.api.server import Server, bind, configuration
from rota.api.submit import look_outside
from rota.api.tcp import Tcp
from rota.clock import SystemClock
from rota.command.down import end_running
from rota.command.submission import Surroundings
from rota.config import Config
from rota.core import trace
from rota.core.control import Holds
from rota.core.event import Event
from rota.core.pace import Outlook
from rota.core.slot import owner_of, show_owner
from rota.duration import show_duration
from rota.engine.contact import RETRY_AFTER
from rota.engine.daily import Daily
from rota.engine.depth import DepthLog
from rota.engine.dispatch import Starter
from rota.engine.engine import Engine
from rota.engine.gc import Collector
from rota.engine.loop import Loop
from rota.engine.meter import Meter
from rota.engine.mirror import META, Mirror
from rota.engine.prober import Prober
from rota.engine.recovery import KEYS
from rota.engine.settings import gc_policy, settings_of
from rota.engine.work import Request, Settings
from rota.errors import RotaError, StorageFull, StoreError, Unavailable
from rota.executor.local import LocalExecutor
from rota.home import Home
from rota.ids import JobId
from rota.probe.local import LocalProbe
from rota.probe.port import Probe
from rota.store.open import open_store
from rota.store.port import Store
from rota.store.session import Reader, Session
from rota.view.depth import depth_line
from rota.wire.scheduler import AboutForm, RecoveryForm

log = logging.getLogger("rota.daemon")

_LOOK_AT_CONFIG = 1.0
"""A file cannot tell that it was edited: seconds between looks at its time stamp."""
_LAST_WORD = 30
"""Seconds in which the engine must have heard that what runs is to be ended."""
_OBJECTS_BETWEEN_COLLECTIONS = 50_000
"""A batch of ten thousand jobs is half a million objects, none of them garbage while it is stored: with Python's own
seven hundred they would all be looked at again and again."""
_TURN_OF_A_THREAD = 0.001
"""Seconds that a busy thread may keep the others waiting: with Python's own five, a view of many jobs would hold up a
start for as long as the start takes."""
_DESCRIPTORS = 8192
"""Wanted for connections and files; a login gives 1,024 at first, and lets us take more."""
_SETTLED_WITHIN = 5.0
"""Seconds that a collection gives the files of the latest jobs to be written; it leaves alone what is not."""


def main(home: Home) -> int:
    """For who has the home to himself."""
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s", force=True
    )
    logging.getLogger("uvicorn").setLevel(logging.WARNING)  # that it started and ended is ours to say
    sys.setswitchinterval(_TURN_OF_A_THREAD)
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
    gc.freeze()  # modules and classes are never garbage
    gc.enable()
    return asyncio.run(Daemon(home).serve())


class Daemon:
    def __init__(self, home: Home) -> None:
        self._home = home
        self._clock = SystemClock()
        self._meter = Meter()
        self._started_at = self._clock.now()
        self._config = config.load(home.config)
        self._config_at_start = self._config
        self._config_seen = _stamp(home.config)
        self._config_trouble: str | None = None
        for directory in (home.jobs, home.slots):  # before anybody makes them on the way, under any umask
            directory.mkdir(mode=0o700, exist_ok=True)
        self._store: Store = open_store(self._config.store.url or home.database)
        self._session: Session | None = None
        self._executor = LocalExecutor(home.root, None)
        with suppress(StorageFull):  # the engine goes on trying, and `status` says so; all else is said at once
            self._open_session()
        self._mirror = Mirror(self._store, home.jobs, self._remember_mirrored)
        self._probe: Probe = LocalProbe()
        self._grace: timedelta | None = None
        self._kills = False
        self._signals = 0
        self._has_crashed = False

    def _open_session(self) -> Session:
        """The store's writing side and the supervisor, both in this scheduler's name."""
        if self._session is None:
            session = self._store.session()
            try:
                session.begin()
                generation = session.raise_epoch()
                session.commit()
            except BaseException:
                session.close()
                raise
            self._session = session
            try:
                self._executor.introduce(generation)
            except (Unavailable, OSError) as error:
                log.error("%s", error)  # the engine goes on trying, here too
        return self._session

    @property
    def config(self) -> Config:
        return self._config

    @property
    def settings(self) -> Settings:
        return self._engine.settings

    @property
    def passes_signals(self) -> bool:
        return self._executor.passes_signals

    @property
    def held_by(self) -> str | None:
        return self._engine.held_by

    @property
    def obstacles(self) -> list[str]:
        return self._engine.obstacles

    @property
    def outlook(self) -> Outlook:
        return self._engine.outlook

    @property
    def holds(self) -> Holds:
        return self._engine.holds

    async def serve(self) -> int:
        loop = asyncio.get_running_loop()
        self._loop = loop
        self._stopping = asyncio.Event()
        self._hub = Hub(loop)
        self._engine = Engine(
            open_session=self._open_session,
            executor=self._executor,
            clock=self._clock,
            settings=settings_of(self._config, self._home),
            starter=Starter(self._home.root, self._home.jobs),
            publish=self._publish,
            ask=lambda questions: self._prober.ask(questions),
            meter=self._meter,
        )
        self._turns = Loop(self._engine, self._executor, self._clock, self._on_crash)
        self._prober = Prober(
            self._store,
            self._probe,
            places=lambda: self._engine.settings.places,
            known=self._engine.known,
            submit=self._turns.submit,
        )
        self._hold_file = HoldFile(self._hold_path)
        self.collector = self._collector()
        self._daily = self._daily_collection()
        descriptors = _take_descriptors()
        context = self._reading = self._context(descriptors)
        self._engine.outbox.tell = context.sender.wake
        self._depth_log = DepthLog(look=self._depth_line, interval=self._depth_interval)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal)
        loop.add_signal_handler(signal.SIGHUP, self._try_reload)
        for number in (signal.SIGUSR1, signal.SIGUSR2):  # they mean nothing here, and would end the process
            loop.add_signal_handler(number, lambda: None)
        app = Limited(Application(context))
        server = Server(configuration(app, Protocol))
        self._tcp = Tcp(
            app, self._home, lambda: self._config.server,
            is_public=ROUTER.is_public, most_connections=most_connections(descriptors),
        )  # fmt: skip
        with self._bound_socket() as listening:
            begun = asyncio.Event()
            self.collector.recover()
            await self.look_at_hold_file()  # before the first dispatch
            self._turns.start(lambda: loop.call_soon_threadsafe(begun.set))
            self._mirror.start()
            self._prober.start()
            await begun.wait()  # who asks at once is told what was recovered
            listening_too = asyncio.create_task(self._tcp.run())
            await self._tcp.begun()  # and whether it can be reached over TCP, or why not
            serving = asyncio.create_task(server.serve(sockets=[listening]))
            watching = asyncio.create_task(self._watch_config())
            adopting = asyncio.create_task(self._adopt_slots())
            context.sender.start()
            firing = asyncio.create_task(Alarm(context, partial(look_outside, context)).run())
            self._daily.start()
            self._depth_log.start()
            serving.add_done_callback(lambda _: self._stopping.set())
            log.info("rota %s serves %s", __version__, self._home.root)
            await self._stopping.wait()
            self.collector.is_stopping = True
            firing.cancel()  # a fire that has begun is the engine's; none begins any more
            await self._drain()
            watching.cancel()
            adopting.cancel()
            await context.sender.close()
            context.presence.close()
            self._hub.close()
            context.feed.close()
            listening_too.cancel()
            server.end()
            await asyncio.gather(serving, self._tcp.close())
            self._close(context)
        return 1 if self._has_crashed else 0

    async def _adopt_slots(self) -> None:
        """Their clients have a while to come back. A store that cannot be read now is tried again."""
        while True:
            try:
                found = await self._reading.look(lambda reader: reader.open_slots())
                self._reading.presence.adopt(found)
                return
            except (StorageFull, StoreError) as error:
                log.warning("direct executions cannot be looked up: %s", error.message)
                await asyncio.sleep(RETRY_AFTER)

    def _context(self, descriptors: int) -> Context:
        root = self._home.root
        return Context(
            home=self._home,
            store=self._store,
            clock=self._clock,
            engine=self._turns,
            hub=self._hub,
            control=self,
            actor=_user(),
            probe=self._probe,
            known=self._engine.known,
            meter=self._meter,
            most_streams=most_streams(descriptors),
            around=Surroundings(
                cwd=str(root.parent if root.name == ".rota" else Path.home()),
                variables={
                    name: value
                    for name, value in os.environ.items()
                    if not name.startswith("ROTA_") and name not in trace.NAMES
                },
            ),
        )

    def _collector(self) -> Collector:
        return Collector(
            store=self._store,
            jobs=self._home.jobs,
            slots=self._home.slots,
            worktrees=self._home.worktrees,
            patches=self._home.patches,
            clock=self._clock,
            perform=self._turns.perform,
            settle=lambda: self._mirror.settle(_SETTLED_WITHIN),
        )

    def _daily_collection(self) -> Daily:
        return Daily(
            collector=self.collector,
            store=self._store,
            clock=self._clock,
            policy=lambda: gc_policy(self._config.gc),
        )

    def _publish(self, events: Sequence[Event]) -> None:
        self._hub.publish(events)
        if self._session is not None:
            self._reading.feed.publish(events, self._session.last_seq)
        self._mirror.publish(events)
        self._depth_log.tell()

    def _depth_line(self) -> str | None:
        with closing(self._store.reader()) as reader, reader.reading():
            return depth_line(reader, self._reading.sight())

    def _depth_interval(self) -> timedelta | None:
        given = self._config.log.depth_interval
        return None if isinstance(given, str) else given

    def _on_crash(self) -> None:
        """Without its engine the process is of no use; what runs stays with the supervisor."""
        self._has_crashed = True
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._loop.call_soon_threadsafe(self._hub.wake)

    # What the API asks.

    def reload(self) -> None:
        """What cannot be used is said, here and in `status`; what was in force before it stays so."""
        self._config_seen = _stamp(self._home.config)
        try:
            self._apply(config.load(self._home.config))
        except Exception as error:
            self._config_trouble = error.message if isinstance(error, RotaError) else repr(error)
            raise

    def set_pool(self, name: str, size: int) -> None:
        self._apply(config.edit(self._home.config, f"pools.{name}", str(size)))
        self._config_seen = _stamp(self._home.config)

    def _apply(self, given: Config) -> None:
        """In force with the next turn, which is asked for: a raised limit dispatches at once."""
        settings = settings_of(given, self._home)
        is_moved = given.store != self._config_at_start.store
        self._config_trouble = "store.url takes effect at the next start" if is_moved else None
        self._config = given
        self._engine.settings = settings
        self._daily.wake()
        self._depth_log.wake()
        self._loop.call_soon_threadsafe(self._tcp.wake)
        self._turns.submit(Request(lambda _: None, lambda _: None))

    def stop(self, grace: timedelta | None, *, kills: bool) -> None:
        """Asked again, the later word on how long to wait counts; what is to be ended stays so."""
        self._grace = grace
        self._kills = self._kills or kills
        self._stopping.set()
        self._hub.wake()

    def about(self) -> AboutForm:
        trouble = self._engine.troubles
        if self._config_trouble is not None:
            trouble.append(f"the configuration on disk is not in force: {self._config_trouble}")
        if (fault := self._tcp.trouble) is not None:
            trouble.append(fault)
        return AboutForm(
            home=str(self._home.root),
            socket=str(self._home.socket),
            tcp=self._tcp.about(),
            pid=os.getpid(),
            version=__version__,
            store=self._store.name,
            started_at=self._started_at,
            supervisor_pid=self._executor.supervisor_pid,
            stopping=self._stopping.is_set(),
            trouble=trouble,
            recovery=self._recovered(),
        )

    def _recovered(self) -> RecoveryForm:
        """A client has its time to come back, so that count may still grow."""
        found = {key: (self._engine.recovery or {}).get(key, 0) for key in KEYS}
        expired = found["slots_expired"] + self._reading.presence.expired
        return RecoveryForm(**{**found, "slots_expired": expired})

    # Configuration changed by hand.

    async def _watch_config(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_AT_CONFIG)
            self.look_at_config()
            await self.look_at_hold_file()

    def look_at_config(self) -> None:
        if _stamp(self._home.config) != self._config_seen:
            self._try_reload()

    async def look_at_hold_file(self, *, wakes: bool = True) -> None:
        if self._hold_path() is None and self._engine.held is None:
            return
        said, before = await self._hold_file.look(), self._engine.held
        if said == before:
            return
        if said is None or before is None:
            log.info("the hold file is gone" if said is None else f"nothing new starts: held: {said}")
        self._engine.held = said
        if wakes:
            self._turns.submit(Request(lambda _: None, lambda _: None))

    def _hold_path(self) -> Path | None:
        given = self._config.scheduler.hold_file
        return None if given is None else self._home.root / given

    def _try_reload(self) -> None:
        try:
            self.reload()
            log.info("took up %s", self._home.config)
        except Exception:  # noqa: BLE001 - whatever is wrong with the file, the next look at it goes on
            log.warning("%s; the configuration before it stays in force", self._config_trouble)

    # Shutdown (CON-003).

    def _on_signal(self) -> None:
        self._signals += 1
        if self._signals > 1:
            self._hub.wake()
        self._stopping.set()

    async def _drain(self) -> None:
        """No new dispatch; running jobs get the grace period. What still runs then stays with the supervisor, unless
        it was to be ended. A second signal ends the waiting, whatever it is for."""
        if self._has_crashed:
            return
        self._engine.is_draining = True
        log.info("stopping; running jobs have %s to finish", show_duration(self._patience()))
        begun = self._loop.time()
        try:
            left = await self._until_none_runs(lambda: begun + self._patience().total_seconds(), 1)
            if left and self._kills:
                log.warning("ending what still runs: %s", _names(left))
                async with asyncio.timeout(_LAST_WORD):
                    await self._reading.perform(end_running)
                left = await self._until_none_runs(lambda: math.inf, max(1, self._signals))
        except (RotaError, TimeoutError) as error:
            log.error("what still runs is left to the supervisor: %s", error)
            return
        if left:
            log.warning("still running, left to the supervisor and adopted at the next start: %s", _names(left))

    async def _until_none_runs(self, deadline: Callable[[], float], signals: int) -> list[JobId]:
        """What runs when the time is over, or when more than so many signals have come."""
        with self._hub.listening(None) as changed:
            while left := await self._reading.look(_running):
                remaining = deadline() - self._loop.time()
                if self._has_crashed or self._signals > signals or remaining <= 0:
                    break
                await wait_for(changed, remaining)
                changed.clear()
        return left

    def _patience(self) -> timedelta:
        return self._grace if self._grace is not None else self._config.scheduler.grace

    def _close(self, context: Context) -> None:
        self._daily.stop()
        self._depth_log.stop()
        self._mirror.stop()
        self._prober.stop()
        self._turns.stop()
        context.close()
        self._executor.close()
        if self._session is not None:
            self._session.close()
        log.info("stopped")

    def _remember_mirrored(self, position: int) -> None:
        """From the mirror's thread."""
        self._turns.submit(Request(lambda work: work.session.set_meta(META, str(position)), lambda _: None))

    @contextmanager
    def _bound_socket(self) -> Iterator[socket.socket]:
        """Only the holder of the scheduler's lock comes here, so what lies there is nobody's any more. After a crash
        the socket stays: that is how a command tells one from an orderly stop, and starts the scheduler again."""
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            bind(listening, self._home)
            yield listening
        finally:
            listening.close()
            if not self._has_crashed:
                self._home.socket.unlink(missing_ok=True)


def _running(reader: Reader) -> list[JobId]:
    """Jobs, and direct executions by their numbers as owners."""
    return [*reader.running_jobs(), *map(owner_of, reader.running_slots())]


def _take_descriptors() -> int:
    """How many we may have, after asking for more. The supervisor, and so every job, keeps what there was."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        return wanted
    return _DESCRIPTORS if soft == resource.RLIM_INFINITY else soft


def _names(owners: Sequence[JobId]) -> str:
    return ", ".join(map(show_owner, owners))


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

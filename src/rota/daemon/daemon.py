"""The scheduler as a process: its parts, made in their order, started, and stopped."""

from __future__ import annotations

import asyncio
import gc
import getpass
import logging
import os
import resource
import signal
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import timedelta
from functools import partial
from pathlib import Path

from rota import __version__
from rota.api.alarm import Alarm
from rota.api.app import ROUTER, Application
from rota.api.context import Context, Hub
from rota.api.hold import HoldFile
from rota.api.limit import LEAST_DESCRIPTORS, Limited, highest_connection, most_connections, most_streams
from rota.api.protocol import Protocol
from rota.api.server import Server, bind, configuration
from rota.api.submit import look_outside
from rota.api.tcp import Tcp
from rota.clock import SystemClock
from rota.command.submission import Surroundings
from rota.config import Config
from rota.core import trace
from rota.core.control import Holds
from rota.core.event import Event
from rota.core.pace import Outlook
from rota.daemon.live_config import LiveConfig
from rota.daemon.shutdown import Shutdown
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
from rota.engine.settings import gc_policy
from rota.engine.work import Request, Settings
from rota.errors import HomeError, StorageFull, StoreError, Unavailable
from rota.executor.local import LocalExecutor
from rota.home import Home
from rota.probe.local import LocalProbe
from rota.probe.port import Probe
from rota.store.open import is_url, open_store
from rota.store.owner import claim
from rota.store.port import Store
from rota.store.session import Session
from rota.view.depth import depth_line
from rota.wire.scheduler import AboutForm, RecoveryForm

log = logging.getLogger("rota.daemon")

_LOOK_AT_FILES = 1.0
"""A file cannot tell that it was edited: seconds between looks at its time stamp."""
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
    _refuse_too_few_descriptors()
    return asyncio.run(Daemon(home).serve())


class Daemon:
    def __init__(self, home: Home) -> None:
        self._home = home
        self._clock = SystemClock()
        self._meter = Meter()
        self._started_at = self._clock.now()
        self._config = LiveConfig(home)
        for directory in (home.jobs, home.slots):  # before anybody makes them on the way, under any umask
            directory.mkdir(mode=0o700, exist_ok=True)
        address = self._config.current.store.url or str(home.database)
        self._store: Store = open_store(address)
        self._is_on_server = is_url(address)
        self._session: Session | None = None
        self._executor = LocalExecutor(home.root, None)
        with suppress(StorageFull):  # the engine goes on trying, and `status` says so; all else is said at once
            self._open_session()
        self._mirror = Mirror(self._store, home.jobs, self._remember_mirrored)
        self._probe: Probe = LocalProbe()

    def _open_session(self) -> Session:
        """The store's writing side and the supervisor, both in this scheduler's name."""
        if self._session is None:
            session = self._store.session()
            try:
                session.begin()
                if self._is_on_server:
                    claim(session, self._home, self._store.name)
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
        return self._config.current

    @property
    def settings(self) -> Settings:
        return self._engine.settings

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
        """Until it is asked to stop; the exit code."""
        self._loop = asyncio.get_running_loop()
        descriptors = _take_descriptors()
        self._assemble(descriptors)
        self._heed_signals()
        app = Limited(Application(self._reading))
        self._server = Server(configuration(app, Protocol), highest=highest_connection(descriptors))
        self._tcp = Tcp(
            app, self._home, lambda: self.config.server,
            is_public=ROUTER.is_public, most_connections=most_connections(descriptors),
            highest=highest_connection(descriptors),
        )  # fmt: skip
        with self._bound_socket() as listening:
            await self._begin()
            serving = asyncio.create_task(self._server.serve(sockets=[listening]))
            serving.add_done_callback(lambda _: self._shutdown.asked.set())
            others = [asyncio.create_task(self._watch_files()), asyncio.create_task(self._adopt_slots())]
            firing = asyncio.create_task(Alarm(self._reading, partial(look_outside, self._reading)).run())
            log.info("rota %s serves %s", __version__, self._home.root)
            await self._shutdown.asked.wait()
            firing.cancel()  # a fire that has begun is the engine's; none begins any more
            await self._end(serving, others)
        return 1 if self._shutdown.has_crashed else 0

    def _assemble(self, descriptors: int) -> None:
        self._hub = Hub(self._loop)
        self._shutdown = Shutdown(self._loop, self._hub, lambda: self.config.scheduler.grace)
        self._engine = Engine(
            open_session=self._open_session,
            executor=self._executor,
            clock=self._clock,
            settings=self._config.settings,
            starter=Starter(self._home.root, self._home.jobs),
            publish=self._publish,
            ask=lambda questions: self._prober.ask(questions),
            meter=self._meter,
        )
        self._turns = Loop(self._engine, self._executor, self._clock, self._shutdown.crash)
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
        self._reading = self._context(descriptors)
        self._engine.outbox.tell = self._reading.sender.wake
        self._depth_log = DepthLog(look=self._depth_line, interval=self._depth_interval)
        self._config.changed = self._apply

    def _heed_signals(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._shutdown.signal)
        self._loop.add_signal_handler(signal.SIGHUP, self._config.try_reload)
        for number in (signal.SIGUSR1, signal.SIGUSR2):  # they mean nothing here, and would end the process
            self._loop.add_signal_handler(number, lambda: None)

    async def _begin(self) -> None:
        """What was left is recovered, and it is known where TCP listens, before anybody is answered."""
        begun = asyncio.Event()
        self.collector.recover()
        await self.look_at_hold_file()  # before the first dispatch
        self._turns.start(lambda: self._loop.call_soon_threadsafe(begun.set))
        self._mirror.start()
        self._prober.start()
        await begun.wait()
        self._listening = asyncio.create_task(self._tcp.run())
        await self._tcp.begun()
        self._reading.sender.start()
        self._daily.start()
        self._depth_log.start()

    async def _end(self, serving: asyncio.Task[None], others: Sequence[asyncio.Task[None]]) -> None:
        """No new dispatch, and then one part after the other, those who are asked before those whom they ask."""
        self.collector.is_stopping = True
        self._engine.is_draining = True
        self._turn()  # what was given ahead is taken back at once
        if not self._shutdown.has_crashed:
            await self._shutdown.drain(self._reading)
        for task in others:
            task.cancel()
        await self._reading.sender.close()
        self._reading.presence.close()
        self._hub.close()
        self._reading.feed.close()
        self._listening.cancel()
        self._server.end()
        await asyncio.gather(serving, self._tcp.close())
        self._close()

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
            policy=lambda: gc_policy(self.config.gc),
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
        given = self.config.log.depth_interval
        return None if isinstance(given, str) else given

    # What the API asks.

    def reload(self) -> None:
        self._config.reload()

    def set_pool(self, name: str, size: int) -> None:
        self._config.set_pool(name, size)

    def _turn(self) -> None:
        """Something of the engine was set: it is to see that now, and not when the next request comes."""
        self._turns.submit(Request(lambda _: None, lambda _: None))

    def _apply(self, settings: Settings) -> None:
        """In force with the next turn, which is asked for: a raised limit dispatches at once."""
        self._engine.settings = settings
        self._daily.wake()
        self._depth_log.wake()
        self._loop.call_soon_threadsafe(self._tcp.wake)
        self._turn()

    def stop(self, grace: timedelta | None, *, kills: bool) -> None:
        self._shutdown.ask(grace, kills=kills)

    def about(self) -> AboutForm:
        trouble = self._engine.troubles
        if self._config.trouble is not None:
            trouble.append(f"the configuration on disk is not in force: {self._config.trouble}")
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
            stopping=self._shutdown.asked.is_set(),
            trouble=trouble,
            recovery=self._recovered(),
        )

    def _recovered(self) -> RecoveryForm:
        """A client has its time to come back, so that count may still grow."""
        found = {key: (self._engine.recovery or {}).get(key, 0) for key in KEYS}
        expired = found["slots_expired"] + self._reading.presence.expired
        return RecoveryForm(**{**found, "slots_expired": expired})

    # What is changed by hand.

    async def _watch_files(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_AT_FILES)
            self._config.look()
            await self.look_at_hold_file()

    def look_at_config(self) -> None:
        self._config.look_once()

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
            self._turn()

    def _hold_path(self) -> Path | None:
        given = self.config.scheduler.hold_file
        return None if given is None else self._home.root / given

    def _close(self) -> None:
        self._daily.stop()
        self._depth_log.stop()
        self._mirror.stop()
        self._prober.stop()
        self._turns.stop()
        self._reading.close()
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
            if not self._shutdown.has_crashed:
                self._home.socket.unlink(missing_ok=True)


def _refuse_too_few_descriptors() -> None:
    """Said at the start, for later there would be no way to say it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < LEAST_DESCRIPTORS:
        raise HomeError(
            f"a process may have {hard} files open here, and the scheduler needs {LEAST_DESCRIPTORS}:"
            " raise it by `ulimit -n 1024`, then `rota up`"
        )


def _take_descriptors() -> int:
    """How many we may have, after asking for more. The supervisor, and so every job, keeps what there was."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        return wanted
    return _DESCRIPTORS if soft == resource.RLIM_INFINITY else soft


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"

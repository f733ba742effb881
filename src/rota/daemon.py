"""`rota serve`: the scheduler process. Its parts are created, started and stopped here, in order.

    main thread       asyncio: HTTP on the socket and over TCP, signals, schedules, webhooks
    rota-engine       the only writer: turns of one transaction each, the supervisor's socket
    rota-reader       queries, each in one read transaction
    rota-prober       probes of repositories and files for the jobs that wait for them
    rota-mirror       job files for users and tools, written after the commit
    rota-gc           daily removal of old records
    rota-depth        log of the queue depth while jobs wait
    rota-checkpoint   copies of SQLite's log into its database

A part that works on the event loop reads in a reader thread (`ReaderPool`) and writes in a turn (`EngineCalls`).
"""

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
from rota.backup.loss import accept_loss, find_loss, keep_orphaned_log, read_home_numbers
from rota.blocking import BlockingCalls
from rota.clock import SystemClock
from rota.config import Config
from rota.config.live import LiveConfig
from rota.control.depth import QueueDepthLog, depth_line
from rota.control.hold_file import HoldFile
from rota.control.schemas import RecoverySummary, SchedulerProcess
from rota.control.shutdown import Shutdown
from rota.db.session import Session
from rota.db.store import ReaderPool, Store, claim_ownership, is_postgres_url, open_store
from rota.direct.endpoints import find_route
from rota.direct.leases import LeaseMonitor
from rota.engine.calls import EngineCalls
from rota.engine.dispatch import StartOrders
from rota.engine.engine import Engine
from rota.engine.executor_health import RETRY_INTERVAL
from rota.engine.loop import EngineLoop
from rota.engine.metrics import EngineMetrics
from rota.engine.prober import Prober
from rota.engine.recovery import COUNT_NAMES
from rota.engine.settings import make_gc_policy
from rota.engine.transaction import Settings, TurnRequest
from rota.errors import Conflict, HomeError, ServiceUnavailable, StorageFull, StoreError
from rota.events.feed import EventFeed
from rota.events.hub import Hub
from rota.executor.local import LocalExecutor
from rota.home import Home, HomeLock
from rota.http.app import Application
from rota.http.context import Context
from rota.http.limits import MIN_DESCRIPTORS, BodyLimit, max_connection_descriptor, max_connections, max_streams
from rota.http.protocol import HttpProtocol
from rota.http.server import HttpServer, SocketFile, make_config
from rota.http.tcp import TcpServer
from rota.jobs.files import META_KEY, JobFileMirror
from rota.jobs.submission import DefaultEnvironment
from rota.jobs.submit_preparation import SubmitPreparer
from rota.kernel.events import Event
from rota.kernel.holds import Holds
from rota.kernel.pacing import StartOutlook
from rota.kernel.trace import TRACE_VARIABLES
from rota.probe.local import LocalProbe
from rota.probe.port import Probe
from rota.retention.collector import RetentionCollector
from rota.retention.timer import DailyRetention
from rota.routes import ROUTER
from rota.schedules.timer import ScheduleTimer
from rota.webhooks.delivery import WebhookSender
from rota.webhooks.http_post import HttpMessagePoster
from rota.work.reader import WorkReader

log = logging.getLogger("rota.daemon")

_CHECK_INTERVAL = 0.5
"""Seconds between checks of configuration, hold file, lock, socket and wall clock, which do not report changes."""
_MAX_LOCK_CONFLICTS = 3
"""Checks that may find the lock taken: a command that only looks whether it is held takes it for a moment."""
_GC_THRESHOLD = 50_000
"""Python's default of 700 would scan the half a million live objects of a batch of ten thousand jobs again and
again."""
_THREAD_SWITCH_INTERVAL = 0.001
"""Maximum seconds before a busy thread yields: with Python's default of 0.005, a query of many jobs would delay a start
by as long as the start takes."""
_TARGET_DESCRIPTORS = 8192
"""Number of file descriptors to request for connections and files; a login session starts with 1,024, and may raise
it."""
_MIRROR_FLUSH_TIMEOUT = 5.0
"""Seconds that retention waits for the files of the latest jobs; it leaves jobs with unwritten files alone."""


def main(home: Home, lock: HomeLock, *, accepts_loss: bool = False) -> int:
    """Run the scheduler until it is stopped; return the exit code. The caller holds the lock of the home."""
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s", force=True
    )
    logging.getLogger("uvicorn").setLevel(logging.WARNING)  # the daemon logs start and stop itself
    sys.setswitchinterval(_THREAD_SWITCH_INTERVAL)
    gc.set_threshold(_GC_THRESHOLD)
    gc.freeze()  # modules and classes are never garbage
    gc.enable()
    _check_descriptor_limit()
    return asyncio.run(Daemon(home, lock, accepts_loss=accepts_loss).serve())


class Daemon:
    def __init__(self, home: Home, lock: HomeLock, *, accepts_loss: bool = False) -> None:
        """Create the parts that need no event loop. With `accepts_loss`, start even if the store has lost records."""
        self._home = home
        self._accepts_loss = accepts_loss
        self._lock = lock
        self._socket_file = SocketFile(home)
        self._socket_error: str | None = None
        self._is_lock_missing = False
        self._lock_conflicts = 0
        """Checks in a row that found the lock in the hands of another process."""
        self._clock = SystemClock()
        self._metrics = EngineMetrics()
        self._started_at = self._clock.now()
        self._config = LiveConfig(home)
        for directory in (home.jobs, home.reservations):  # early, so that no other code creates them under any umask
            with suppress(OSError):  # the first start of a job reports it
                directory.mkdir(mode=0o700, exist_ok=True)
        address = self._config.current.store.url or str(home.database)
        self._store: Store = open_store(address)
        self._is_on_server = is_postgres_url(address)
        self._session: Session | None = None
        self._executor = LocalExecutor(
            home.root, None, are_cgroups_enabled=lambda: self.config.scheduler.cgroups == "auto"
        )
        with suppress(StorageFull):  # the engine retries and `status` reports it; any other error ends the start
            self._open_session()
        self._job_file_mirror = JobFileMirror(self._store, home.jobs, self._store_mirror_cursor)
        self._probe: Probe = LocalProbe()

    def _open_session(self) -> Session:
        """Open the writing session of the store, and connect to the supervisor, both under a new generation."""
        if self._session is None:
            home_numbers = read_home_numbers(self._home)
            if self._accepts_loss:
                keep_orphaned_log(self._store, self._clock.now())
            loss = find_loss(self._home, self._store, home_numbers)  # before the store is changed
            if loss is not None and not self._accepts_loss:
                raise StoreError(loss)
            session = self._store.session()
            try:
                session.begin()
                if self._is_on_server:
                    claim_ownership(session, self._home, self._store.name)
                if loss is not None:
                    accept_loss(session, home_numbers)
                    log.warning("started without the lost records: %s", loss)
                generation = session.raise_epoch(min_epoch=home_numbers.epoch)
                session.commit()
            except BaseException:
                session.close()
                raise
            self._session = session
            try:
                self._executor.connect_as(generation)
            except (ServiceUnavailable, OSError) as error:
                log.error("%s", error)  # the engine retries
        return self._session

    @property
    def config(self) -> Config:
        return self._config.current

    @property
    def settings(self) -> Settings:
        return self._engine.settings

    @property
    def first_blocker(self) -> str | None:
        return self._engine.first_blocker

    @property
    def blockers(self) -> list[str]:
        return self._engine.blockers

    @property
    def executor_silence(self) -> str | None:
        silence = self._engine.silence
        return None if silence is None else silence.text

    @property
    def start_outlook(self) -> StartOutlook:
        return self._engine.outlook

    @property
    def holds(self) -> Holds:
        return self._engine.holds

    async def serve(self) -> int:
        """Serve until a stop is requested; return the exit code."""
        self._loop = asyncio.get_running_loop()
        descriptors = _raise_descriptor_limit()
        self._assemble(descriptors)
        self._install_signal_handlers()
        app = BodyLimit(Application(self._api_context, ROUTER, partial(find_route, self._api_context)))
        self._server = HttpServer(make_config(app, HttpProtocol), max_descriptor=max_connection_descriptor(descriptors))
        self._tcp = TcpServer(
            app,
            self._home,
            lambda: self.config.server,
            is_public=ROUTER.is_public,
            max_connections=max_connections(descriptors),
            max_descriptor=max_connection_descriptor(descriptors),
        )
        with self._bound_socket() as listening:
            await self._start_parts()
            serving = asyncio.create_task(self._server.serve(sockets=[listening]))
            serving.add_done_callback(lambda _: self._shutdown.requested.set())
            background = [
                asyncio.create_task(self._watch_files_and_clock()),
                asyncio.create_task(self._adopt_reservations()),
            ]
            timer = asyncio.create_task(self._schedule_timer.run())
            log.info("rota %s serves %s", __version__, self._home.root)
            await self._shutdown.requested.wait()
            timer.cancel()  # no new fire starts; the engine completes a fire that it has received
            await self._stop_parts(serving, background)
        return 1 if self._shutdown.has_crashed else 0

    def _assemble(self, descriptors: int) -> None:
        self._hub = Hub(self._loop)
        self._shutdown = Shutdown(self._loop, self._hub, lambda: self.config.scheduler.grace)
        self._engine = Engine(
            open_session=self._open_session,
            executor=self._executor,
            clock=self._clock,
            settings=self._config.settings,
            start_orders=StartOrders(self._home.root, self._home.jobs),
            publish=self._publish,
            submit_probes=lambda probe_requests: self._prober.submit_probes(probe_requests),
            metrics=self._metrics,
        )
        self._engine_loop = EngineLoop(self._engine, self._executor, self._clock, self._shutdown.record_crash)
        self._prober = Prober(
            self._store,
            self._probe,
            artifact_paths=lambda: self._engine.settings.artifact_paths,
            fact_cache=self._engine.fact_cache,
            submit=self._engine_loop.submit,
        )
        self._hold_file = HoldFile(self._hold_path)
        self.collector = self._make_collector()
        self._daily_retention = self._make_daily_retention()
        self._assemble_loops()
        self._api_context = self._make_context(descriptors)
        self._engine.outbox.wake_sender = self._sender.wake
        self._depth_log = QueueDepthLog(format_depth=self._format_depth, interval=self._depth_interval)
        self._config.on_change = self._apply_settings

    def _assemble_loops(self) -> None:
        """Create the parts that work on the event loop: they read the store in threads, and write in turns."""
        self._readers = ReaderPool(self._store)
        self._engine_calls = EngineCalls(self._loop, self._engine_loop.submit)
        read, run_in_turn = self._readers.read, self._engine_calls.run_in_turn
        self._blocking_calls = BlockingCalls()
        self._default_environment = _default_environment(self._home)
        self._feed = EventFeed(self._loop, read)
        self._leases = LeaseMonitor(run_in_turn, lambda: self.config.direct)
        self._sender = WebhookSender(
            clock=self._clock,
            read_store=read,
            run_in_turn=run_in_turn,
            post=HttpMessagePoster(),
            policy=lambda: self.settings.webhooks,
        )
        self._submit_preparer = SubmitPreparer(
            home=self._home.directory,
            read=read,
            settings=lambda: self.settings,
            probe=self._probe,
            fact_cache=self._engine.fact_cache,
            blocking_calls=self._blocking_calls,
        )
        self._work = WorkReader(self.config.sources, self._home.root)
        self._schedules_changed = asyncio.Event()
        self._schedule_timer = ScheduleTimer(
            clock=self._clock,
            read=read,
            run_in_turn=run_in_turn,
            run_preflight=partial(self._submit_preparer.run_preflight, default_environment=self._default_environment),
            default_environment=self._default_environment,
            changed=self._schedules_changed,
        )

    def _install_signal_handlers(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._shutdown.handle_signal)
        self._loop.add_signal_handler(signal.SIGHUP, self._config.try_reload)
        for number in (signal.SIGUSR1, signal.SIGUSR2):  # ignored: the default action would end the process
            self._loop.add_signal_handler(number, lambda: None)

    async def _start_parts(self) -> None:
        """Start the parts. Recovery is complete and the TCP address is known before a request is served."""
        started = asyncio.Event()
        self.collector.recover()
        await self.check_hold_file()  # before the first dispatch
        self._engine_loop.start(lambda: self._loop.call_soon_threadsafe(started.set))
        self._job_file_mirror.start()
        self._prober.start()
        await started.wait()
        self._tcp_task = asyncio.create_task(self._tcp.run())
        await self._tcp.wait_for_start()
        self._sender.start()
        self._daily_retention.start()
        self._depth_log.start()

    async def _stop_parts(self, server_task: asyncio.Task[None], tasks: Sequence[asyncio.Task[None]]) -> None:
        """Stop dispatch, then stop the parts one after another, each before the parts that it uses."""
        self.collector.is_stopping = True
        self._engine.is_draining = True
        self._request_turn()  # withdraws prefetched jobs at once
        if not self._shutdown.has_crashed:
            await self._shutdown.drain(self._readers, self._engine_calls)
        for task in tasks:
            task.cancel()
        await self._sender.close()
        self._leases.close()
        self._hub.close()
        self._feed.close()
        self._tcp_task.cancel()
        self._server.end()
        await asyncio.gather(server_task, self._tcp.close())
        self._close()

    async def _adopt_reservations(self) -> None:
        """Start the leases of open reservations, so that their clients can reconnect. Retry while the store cannot be
        read."""
        while True:
            try:
                reservations = await self._readers.read(lambda reader: reader.reservations.list_open())
                self._leases.adopt(reservations)
                return
            except (StorageFull, StoreError) as error:
                log.warning("cannot read open reservations, will retry: %s", error.message)
                await asyncio.sleep(RETRY_INTERVAL)

    def _make_context(self, descriptors: int) -> Context:
        return Context(
            home=self._home,
            clock=self._clock,
            engine=self._engine_calls,
            readers=self._readers,
            hub=self._hub,
            feed=self._feed,
            leases=self._leases,
            sender=self._sender,
            submit_preparer=self._submit_preparer,
            schedules_changed=self._schedules_changed,
            control=self,
            actor=_user_name(),
            default_environment=self._default_environment,
            probe=self._probe,
            fact_cache=self._engine.fact_cache,
            blocking_calls=self._blocking_calls,
            work=self._work,
            metrics=self._metrics,
            max_streams=max_streams(descriptors),
        )

    def _make_collector(self) -> RetentionCollector:
        return RetentionCollector(
            store=self._store,
            jobs=self._home.jobs,
            reservations=self._home.reservations,
            worktrees=self._home.worktrees,
            patches=self._home.patches,
            clock=self._clock,
            run_in_turn=self._engine_loop.run_in_turn,
            flush_job_files=lambda: self._job_file_mirror.flush(_MIRROR_FLUSH_TIMEOUT),
        )

    def _make_daily_retention(self) -> DailyRetention:
        return DailyRetention(
            collector=self.collector,
            store=self._store,
            clock=self._clock,
            policy=lambda: make_gc_policy(self.config.gc),
        )

    def _publish(self, events: Sequence[Event]) -> None:
        self._hub.publish(events)
        if self._session is not None:
            self._feed.publish(events, self._session.events.last_seq)
        self._job_file_mirror.publish(events)
        self._depth_log.notify()

    def _format_depth(self) -> str | None:
        with closing(self._store.reader()) as reader, reader.read_transaction():
            return depth_line(reader, self._api_context.view_context())

    def _depth_interval(self) -> timedelta | None:
        interval = self.config.log.depth_interval
        return None if isinstance(interval, str) else interval

    def reload(self) -> None:
        self._config.reload()

    def set_pool(self, name: str, size: int) -> None:
        self._config.set_pool(name, size)

    def _request_turn(self) -> None:
        """Submit an empty turn, so that the engine applies a changed attribute before the next request."""
        self._engine_loop.submit(TurnRequest(lambda _: None, lambda _: None))

    def _apply_settings(self, settings: Settings) -> None:
        """Apply settings with a new turn, so that a raised limit starts jobs at once."""
        self._engine.settings = settings
        self._work.configure(self.config.sources)
        self._daily_retention.wake()
        self._depth_log.wake()
        self._loop.call_soon_threadsafe(self._tcp.wake)
        self._request_turn()

    def stop(self, grace: timedelta | None, *, kills: bool) -> timedelta:
        return self._shutdown.request(grace, kills=kills)

    def process_status(self) -> SchedulerProcess:
        errors, silence = self._engine.errors, self._engine.silence
        if self._config.error is not None:
            errors.append(f"the configuration on disk is not in effect: {self._config.error}")
        if (tcp_error := self._tcp.error) is not None:
            errors.append(tcp_error)
        return SchedulerProcess(
            home=str(self._home.root),
            socket=str(self._home.socket),
            tcp=self._tcp.status(),
            pid=os.getpid(),
            version=__version__,
            store=self._store.name,
            started_at=self._started_at,
            supervisor_pid=self._executor.supervisor_pid,
            has_cgroups=self._executor.has_cgroups,
            supervisor_silent_since=None if silence is None else silence.since,
            stopping=self._shutdown.requested.is_set(),
            errors=errors,
            recovery=self._recovery_result(),
        )

    def _recovery_result(self) -> RecoverySummary:
        """Return the counts of recovery. Expired reservations may still grow while clients have time to reconnect."""
        counts = {key: (self._engine.recovery_counts or {}).get(key, 0) for key in COUNT_NAMES}
        expired = counts["reservations_expired"] + self._leases.expired_count
        return RecoverySummary(**{**counts, "reservations_expired": expired})

    async def _watch_files_and_clock(self) -> None:
        while True:
            await asyncio.sleep(_CHECK_INTERVAL)
            if self._engine_loop.check_clock():  # the turn also wakes the webhook sender
                self._schedules_changed.set()
            self._check_lock_and_socket()
            self._config.reload_if_changed()
            await self.check_hold_file()

    def _check_lock_and_socket(self) -> None:
        """Create the lock file and the socket again if they were removed. A home that is gone keeps neither."""
        if self._lock.is_current or (not self._lock.is_home_gone and self._restore_lock()):
            self._check_socket()

    def _restore_lock(self) -> bool:
        """Put the removed lock file back. Stop if another process has locked the home meanwhile, because there must
        never be two schedulers; the running jobs stay with the supervisor."""
        try:
            self._lock.restore()
        except Conflict:
            self._lock_conflicts += 1
            if self._lock_conflicts == _MAX_LOCK_CONFLICTS:
                log.error("%s was removed and is held by another process; stopping", self._home.lock)
                self._shutdown.record_crash()
            return False
        except OSError as error:
            if not self._is_lock_missing:
                log.error("%s was removed and cannot be created again: %s", self._home.lock, error.strerror)
            self._is_lock_missing = True
            return False
        self._lock_conflicts, self._is_lock_missing = 0, False
        log.warning("%s was removed; created it again", self._home.lock)
        return True

    def _check_socket(self) -> None:
        """Bind the socket again if its file was removed. The caller has checked that this process holds the home."""
        if self._socket_file.is_reachable:
            return
        try:
            self._server.replace_listener(self._socket_file.bind())
            self._socket_error = None
            log.warning("%s was removed; created it again", self._home.socket)
        except ServiceUnavailable as error:
            if self._socket_error is None:
                log.error("%s was removed and cannot be created again: %s", self._home.socket, error.message)
            self._socket_error = error.message

    def check_config(self) -> None:
        self._config.reload_if_changed_once()

    async def check_hold_file(self, *, wakes_engine: bool = True) -> None:
        if self._hold_path() is None and self._engine.hold_text is None:
            return
        text, before = await self._hold_file.read(), self._engine.hold_text
        if text == before:
            return
        if text is None or before is None:
            log.info("the hold file is gone" if text is None else f"no new jobs start: held: {text}")
        self._engine.hold_text = text
        if wakes_engine:
            self._request_turn()

    def _hold_path(self) -> Path | None:
        path = self.config.scheduler.hold_file
        return None if path is None else self._home.root / path

    def _close(self) -> None:
        self._daily_retention.stop()
        self._depth_log.stop()
        self._job_file_mirror.stop()
        self._prober.stop()
        self._engine_loop.stop()
        self._readers.close()
        if self._shutdown.has_ended_all_runs:
            self._executor.request_exit()
        self._executor.close()
        if self._session is not None:
            self._session.close()
        log.info("stopped")

    def _store_mirror_cursor(self, cursor: int) -> None:
        """Store the cursor in a turn. The mirror calls this from its own thread."""
        self._engine_loop.submit(TurnRequest(lambda tx: tx.meta.set(META_KEY, str(cursor)), lambda _: None))

    @contextmanager
    def _bound_socket(self) -> Iterator[socket.socket]:
        """Bind the socket and remove it at the end. The process holds the scheduler's lock, so an existing file is a
        leftover. After a crash the file stays: from it, a command detects the crash and restarts the scheduler."""
        listening = self._socket_file.bind()
        try:
            yield listening
        finally:
            listening.close()
            if not self._shutdown.has_crashed:
                self._socket_file.remove()


def _check_descriptor_limit() -> None:
    """Refuse a start with too few file descriptors: later there would be none to report it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < MIN_DESCRIPTORS:
        raise HomeError(
            f"the limit of open files is {hard}, but the scheduler needs {MIN_DESCRIPTORS};"
            " raise it with `ulimit -n 1024`, then `rota up`"
        )


def _raise_descriptor_limit() -> int:
    """Raise the limit of file descriptors and return it. The supervisor, and so every job, keeps the previous limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    target = _TARGET_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _TARGET_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < target:
        resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
        return target
    return _TARGET_DESCRIPTORS if soft == resource.RLIM_INFINITY else soft


def _default_environment(home: Home) -> DefaultEnvironment:
    return DefaultEnvironment(
        cwd=str(home.root.parent if home.root.name == ".rota" else Path.home()),
        variables={
            name: value
            for name, value in os.environ.items()
            if not name.startswith("ROTA_") and name not in TRACE_VARIABLES
        },
    )


def _user_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"

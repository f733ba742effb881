"""A scheduler without processes: the real core, engine and store, under a clock and an executor that the test owns."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from rota.command import control
from rota.command.cancel import cancel
from rota.command.rewind import Area, Report, look, reports, rewind
from rota.command.rewind import survey as find_area
from rota.command.slot import Reserved, SlotWanted, release, reserve, withdraw
from rota.command.submission import GroupWanted, Submission, Surroundings
from rota.command.submit import Answer, Submitted, missing_things, needs_of, submit
from rota.command.survey import NOTHING, names_something
from rota.command.survey import survey as look_around
from rota.command.tick import tick
from rota.core.artifact import Outside, Places
from rota.core.backpressure import QueueLimit, QueueLimits
from rota.core.breaker import BreakerPolicy
from rota.core.event import Event
from rota.core.fact import Fact, Head, Seen
from rota.core.job import Job
from rota.core.pace import batch_of
from rota.core.pool import Limits, PoolPolicy
from rota.core.slot import owner_of
from rota.core.status import Status
from rota.engine.act import unless_told
from rota.engine.clearing import Clearing
from rota.engine.dispatch import Starter
from rota.engine.engine import Engine
from rota.engine.once import Once, Told
from rota.engine.outside import Sighting, changes, look_at, observe, watched
from rota.engine.work import Question, Request, Settings, Work
from rota.executor.port import Account, Accounts, Acknowledge, Exited, Message, Order, Start, Started, Stop
from rota.ids import GroupId, JobId, RunId, SlotId, show_group, show_job
from rota.store.port import Store
from rota.view import group as view_group
from rota.view import slot as view_slot
from rota.view.job import Sight, show
from rota.view.tick import report
from rota.view.why import why
from rota.wire.group import GroupForm
from rota.wire.job import JobForm
from rota.wire.slot import SlotForm

DEFAULT_POOLS = {"global": 1, "flow/*": 1, "resource/ollama": 1}

Raw = Callable[[str], list[tuple[Any, ...]]]
"""SQL past the store's verbs: to damage a record, or to ask the schema itself. Each call is a transaction."""


class SchemaRefused(Exception):
    """The schema itself said no."""


def sqlite_raw(path: Path) -> Raw:
    def run(sql: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(path, timeout=10)) as connection:
            try:
                connection.executescript("PRAGMA foreign_keys = ON; PRAGMA synchronous = OFF")
                rows = connection.execute(sql).fetchall()
                connection.commit()
            except sqlite3.IntegrityError as error:
                raise SchemaRefused(str(error)) from error
            return rows

    return run


class FakeClock:
    def __init__(self) -> None:
        self.moment = datetime(2026, 1, 1, tzinfo=UTC)

    def now(self) -> datetime:
        return self.moment

    def monotonic(self) -> float:
        return self.moment.timestamp()

    def advance(self, **duration: float) -> None:
        self.moment += timedelta(**duration)


class FakeExecutor:
    """Keeps the orders it gets; says what the test tells it to say."""

    def __init__(self) -> None:
        self.orders: list[Order] = []
        self.inbox: list[Message] = [Accounts(runs=[])]

    def send(self, orders: Sequence[Order]) -> None:
        self.orders.extend(orders)

    def receive(self) -> list[Message]:
        messages, self.inbox = self.inbox, []
        return messages

    goes_ahead = False

    def withdraw(self, series: int, patience: float) -> None: ...

    def fileno(self) -> int:
        return -1

    def close(self) -> None: ...

    @property
    def starts(self) -> list[Start]:
        return [order for order in self.orders if isinstance(order, Start)]

    @property
    def stops(self) -> list[RunId]:
        return [order.run for order in self.orders if isinstance(order, Stop)]

    @property
    def acknowledged(self) -> list[RunId]:
        return [order.run for order in self.orders if isinstance(order, Acknowledge)]


class FakeProbe:
    """A world outside that the test owns: what is not in it is not there."""

    def __init__(self) -> None:
        self.world: dict[Fact, Seen] = {}
        self.repository: str | None = "/repo/.git"
        self.looks = 0
        self.merging: set[str] = set()
        """Repositories in which a merge is under way."""

    def look(self, facts: Collection[Fact]) -> dict[Fact, Seen]:
        self.looks += 1
        return {fact: self.world.get(fact, None if isinstance(fact, Head) else False) for fact in facts}

    def repository_of(self, _directory: str) -> str | None:
        return self.repository

    def top_of(self, _directory: str) -> str | None:
        return None if self.repository is None else "/repo"

    def branch(self, _directory: str) -> str | None:
        return "main"

    def resolve(self, _repository: str, rev: str) -> str | None:
        return rev.ljust(40, "0")

    def has_merge_in_progress(self, repository: str) -> bool:
        return repository in self.merging


class Scheduler:
    def __init__(
        self, store: Store, home: Path, pools: Mapping[str, int] | None = None, *, clock: FakeClock | None = None,
        executor: FakeExecutor | None = None,
    ) -> None:  # fmt: skip
        self.store = store
        self.home = home
        self.clock = clock or FakeClock()
        self.executor = executor or FakeExecutor()
        self.settings = Settings(
            limits=Limits({**DEFAULT_POOLS, **(pools or {})}),
            policy=PoolPolicy(),
            batch_size=None,
            kill_after=timedelta(seconds=5),
            start_timeout=timedelta(minutes=5),
            places=Places(jobs=str(home / "jobs"), sentinels=str(home / "tmp/merge-conflicts")),
        )
        self.events: list[Event] = []
        self.probe = FakeProbe()
        self.questions: list[Question] = []
        """What the engine wants to know of the world outside; `turn` has it looked up."""
        self.chance = 0.5
        """Half is no jitter."""
        self.boot()
        self.reader = store.reader()

    def boot(self, held: str | None = None) -> None:
        """A new engine on the same store, as after a crash; the hold file is looked at before its first turn."""
        self.session = self.store.session()
        self.engine = Engine(
            open_session=lambda: self.session,
            executor=self.executor,
            clock=self.clock,
            settings=self.settings,
            starter=Starter(self.home, self.home / "jobs"),
            publish=self.events.extend,
            ask=self.questions.extend,
            chance=lambda: self.chance,
        )
        self.engine.held = held
        self.engine.start()
        self.turn()

    def crash(self, accounts: Sequence[Account] = ()) -> None:
        """Forget everything that is not in the store; the executor says what it knows."""
        self.session.close()
        self.executor = FakeExecutor()
        self.executor.inbox = [Accounts(runs=list(accounts))]
        self.boot()

    def close(self) -> None:
        self.reader.close()
        self.session.close()

    def turn(self) -> None:
        """Until nothing is left to do without a new event."""
        self.engine.turn()
        self._settle()

    def _settle(self) -> None:
        while self.engine.has_more or self.questions:
            self.engine.turn(self._answers())

    def _answers(self) -> list[Request[None]]:
        questions, self.questions[:] = list(self.questions), []
        if not questions:
            return []
        facts = {fact for question in questions for fact in question.facts}
        sighting = look_at(facts, self.probe, self.engine.known, questions)
        return [Request(lambda work: observe(work, sighting), lambda _: None)]

    def see_outside(self) -> Sighting:
        return look_at(watched(self.reader, self.settings.places), self.probe, self.engine.known)

    def look_outside(self) -> None:
        """As the prober does once a second."""
        news = changes(self.see_outside(), self.engine.known.seen)
        if news.seen:
            self.do(lambda work: observe(work, news))

    def do(self, act: Any, see: Any = None) -> Any:
        """One request, with what was seen outside meanwhile; what it is answered, or the refusal raised."""
        answers: list[Any] = []
        self.engine.turn([*self._answers(), Request(act, answers.append, see)])
        self._settle()
        if isinstance(answers[0], Exception):
            raise answers[0]
        return answers[0]

    def once(self, key: str, asked: str, act: Any, see: Any = None, *, tell: Any = None) -> Any:
        """A request that has a key and says `asked`; a result is told as its text."""
        made = Once(key=key, digest=asked, tell=tell or (lambda shown: Told(status=201, body=str(shown).encode())))
        answers: list[Any] = []
        self.engine.turn(
            [*self._answers(), Request(partial(unless_told, once=made, act=act), answers.append, see, once=made)]
        )
        self._settle()
        if isinstance(answers[0], Exception):
            raise answers[0]
        return answers[0]

    def submit(
        self, *command: str, after: Sequence[str | JobId] = (), locks: Sequence[str] = (), **fields: Any
    ) -> JobId:
        """`after` takes ids or `job-1:finished`, `locks` takes `key` or `key:shared`."""
        return self.submitted(*command, after=after, locks=locks, **fields).jobs[0]

    def submitted(
        self, *command: str, after: Sequence[str | JobId] = (), locks: Sequence[str] = (), **fields: Any
    ) -> Submitted:
        answer = self.answer(*command, after=after, locks=locks, **fields)
        assert isinstance(answer, Submitted), answer
        return answer

    def answer(
        self, *command: str, after: Sequence[str | JobId] = (), locks: Sequence[str] = (), **fields: Any
    ) -> Answer:
        """One of the three that a submit can get."""
        body = {
            "command": list(command) or ["true"],
            "after": [_after(edge) for edge in after],
            "locks": [_lock(lock) for lock in locks],
            **fields,
        }
        wanted = [msgspec.convert(body, Submission)]
        around = Surroundings(cwd="/", variables={"PATH": "/usr/bin:/bin"})

        found = NOTHING
        if any(names_something(member) for member in wanted):
            found = look_around(wanted, around, self.probe, self.settings.places, began=self.engine.known.begin())

        def act(work: Work) -> Answer:
            missing = missing_things(needs_of(wanted, around))
            return submit(work, wanted, around, actor="tester", warnings=missing, survey=found)

        result: Answer = self.do(act)
        return result

    def submit_group(self, *members: Mapping[str, Any], **group: Any) -> tuple[GroupId, list[JobId]]:
        """Members as in a batch, `after` as ids or local names with their policy; the rest is of the group."""
        told = self.answer_group(*members, **group)
        assert isinstance(told, Submitted), told
        assert told.group is not None
        return told.group, told.jobs

    def answer_group(self, *members: Mapping[str, Any], **group: Any) -> Answer:
        bodies = [
            {"command": ["true"], **member, "after": [_after(edge) for edge in member.get("after", ())]}
            for member in members
        ]
        wanted = [msgspec.convert(body, Submission) for body in bodies]
        around = Surroundings(cwd="/", variables={"PATH": "/usr/bin:/bin"})
        asked = msgspec.convert(group, GroupWanted)
        found = NOTHING
        if any(names_something(member) for member in wanted):
            found = look_around(wanted, around, self.probe, self.settings.places, began=self.engine.known.begin())
        told: Answer = self.do(lambda work: submit(work, wanted, around, actor="tester", survey=found, group=asked))
        return told

    def group(self, group: GroupId) -> GroupForm:
        return view_group.show(self.reader, show_group(group))

    def cancel(self, job: JobId) -> None:
        self.do(lambda work: cancel(work, job, actor="tester"))

    def reserve(self, *command: str, locks: Sequence[str] = (), **fields: Any) -> SlotId:
        """A direct execution of the command; without one, of a program that does the work itself."""
        body = {"command": list(command) or None, "locks": [_lock(lock) for lock in locks], **fields}
        wanted = msgspec.convert(body, SlotWanted)
        around = Surroundings(cwd="/", variables={"PATH": "/usr/bin:/bin"})
        reserved: Reserved = self.do(lambda work: reserve(work, wanted, around, actor="tester"))
        return reserved.slot

    def withdraw(self, slot: SlotId, reason: str = "its client is gone") -> None:
        self.do(lambda work: withdraw(work, slot, reason=reason))

    def release(self, slot: SlotId) -> None:
        self.do(lambda work: release(work, slot, actor="tester"))

    def slot(self, slot: SlotId) -> SlotForm:
        return view_slot.show(self.reader, slot, self.sight)

    def end_slot(self, slot: SlotId, code: int | None = 0, **fields: Any) -> None:
        self.end(owner_of(slot), code, **fields)

    def pause(self, scope: str = "global", by: str = "tester") -> dict[str, Any]:
        return msgspec.structs.asdict(self.do(lambda work: control.pause(work, scope, actor=by)))

    def resume(self, scope: str = "global", by: str = "tester") -> dict[str, Any]:
        return msgspec.structs.asdict(self.do(lambda work: control.resume(work, scope, actor=by)))

    def clear(self, scope: str = "global") -> int:
        clearing: Clearing = self.do(lambda work: control.clear(work, scope, actor="tester"))
        return clearing.ended.result(timeout=0)

    def hold(self, line: str | None) -> None:
        """As if the hold file said this, or were gone."""
        self.engine.held = line
        self.turn()

    def area(self, job: JobId) -> Area:
        return find_area(self.reader, job, self.sight.outside)

    def rewind(self, job: JobId, *, area: Area | None = None) -> Report:
        """What the caller is told, or the refusal raised."""
        found = area or self.area(job)
        sighted = look(found, self.probe, self.engine.known.begin())
        report: Report = self.do(lambda work: rewind(work, found, sighted, actor="tester"), reports)
        return report

    def say(self, *messages: Message) -> None:
        self.executor.inbox.extend(messages)
        self.turn()

    def run_of(self, job: JobId) -> RunId:
        return next(start.run for start in reversed(self.executor.starts) if start.job == job)

    def start(self, job: JobId, pid: int = 4242) -> None:
        self.say(Started(run=self.run_of(job), pid=pid, start_time=1))

    def end(self, job: JobId, code: int | None = 0, **fields: Any) -> None:
        self.say(Exited(run=self.run_of(job), at=self.clock.moment.timestamp(), code=code, **fields))

    def set_pools(self, **sizes: int) -> None:
        limits = Limits({**self.settings.limits.sizes, **{name.replace("__", "/"): n for name, n in sizes.items()}})
        self.settings = msgspec.structs.replace(self.settings, limits=limits)
        self.engine.settings = self.settings
        self.turn()

    def configure(self, **fields: Any) -> None:
        """Fields of the settings."""
        self.settings = msgspec.structs.replace(self.settings, **fields)
        self.engine.settings = self.settings
        self.turn()

    def tick(self, batch: int | None = None) -> dict[str, Any]:
        """As `rota tick` does, up to its answer."""
        sighting = self.see_outside()
        said: dict[str, Any] = self.do(partial(tick, sighting=sighting, batch=batch), _ticked)
        return said

    def dry_run(self, batch: int | None = None) -> dict[str, Any]:
        answers: list[Any] = []
        act = partial(tick, sighting=self.see_outside(), batch=batch)
        self.engine.rehearse(Request(act, answers.append, _ticked, is_rehearsal=True))
        if isinstance(answers[0], Exception):
            raise answers[0]
        said: dict[str, Any] = answers[0]
        return said

    def set_queue(self, whole: QueueLimit | None = None, **flows: QueueLimit) -> None:
        queue = QueueLimits(whole=whole or QueueLimit(), flows=flows)
        self.settings = msgspec.structs.replace(self.settings, queue=queue)
        self.engine.settings = self.settings
        self.turn()

    def set_breaker(self, **figures: Any) -> None:
        self.settings = msgspec.structs.replace(self.settings, breaker=BreakerPolicy(**figures))
        self.engine.settings = self.settings
        self.turn()

    @property
    def sight(self) -> Sight:
        return Sight(
            limits=self.settings.limits,
            batch_size=batch_of(self.settings.batch_size, self.settings.heartbeat),
            now=self.clock.now(),
            jobs=self.home / "jobs",
            breaker=self.settings.breaker,
            outside=Outside(seen=self.engine.known.seen, places=self.settings.places),
            outlook=self.engine.outlook,
            queue=self.settings.queue,
            held_by=self.engine.held_by,
            holds=self.engine.holds,
        )

    def job(self, job: JobId) -> Job:
        found = self.reader.job(job)
        assert found is not None
        return found

    def show(self, job: JobId) -> JobForm:
        return show(self.reader, job, self.sight)

    def why(self, job: JobId) -> dict[str, Any]:
        said: dict[str, Any] = msgspec.to_builtins(why(self.reader, job, self.sight))
        return said

    def detail(self, job: JobId) -> str | None:
        wait = self.show(job).wait
        return None if wait is None else str(wait.detail)

    def status(self, job: JobId) -> Status:
        return self.job(job).status

    def started(self) -> list[JobId]:
        """Jobs in the order in which they were given to the executor."""
        return [start.job for start in self.executor.starts]

    def drain(self, most: int = 100_000) -> list[JobId]:
        """Let everything that starts succeed at once, until nothing runs; in the order of starting."""
        ended: set[RunId] = set(self.executor.acknowledged)
        for _ in range(most):
            running = [start for start in self.executor.starts if start.run not in ended]
            if not running:
                return self.started()
            ended.add(running[0].run)
            self.say(Exited(run=running[0].run, at=self.clock.moment.timestamp(), code=0))
        raise AssertionError("it does not come to an end")


def _ticked(work: Work, asked: Sequence[None]) -> list[dict[str, Any]]:
    return [msgspec.structs.asdict(report(work))] * len(asked)


def _after(edge: str | JobId) -> dict[str, str]:
    if isinstance(edge, int):
        return {"job": show_job(edge)}
    job, _, policy = edge.partition(":")
    return {"job": job, "policy": policy or "success"}


def _lock(lock: str) -> dict[str, str]:
    key, _, mode = lock.partition(":")
    return {"key": key, "mode": mode or "exclusive"}

"""A supervisor and its children, as the port promises them: messages come in order, late, again after each new
connection until they are acknowledged, and not at all when the connection breaks under them. It outlives the scheduler;
when it is killed itself, its children go on, and the next one knows them by its journal.

What becomes of a child is decided by the seed and the number of its run, so it is the same when other steps are left
out. Everything that ever lived is remembered: what the store says is compared with it.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable, Sequence

import msgspec

from harness import FakeExecutor
from rota.executor.port import (
    Account,
    Accounts,
    Acknowledge,
    Ahead,
    Exited,
    FailedToStart,
    Lost,
    Message,
    Order,
    Start,
    Started,
    Stop,
    Taken,
    Withdraw,
    Withdrawn,
)
from rota.ids import JobId, RunId
from sim.clock import SimClock

DURATIONS = (0.0, 0.0, 1.0, 5.0, 30.0, 400.0)
BRIEF = (0.0, 0.01, 0.01, 0.05, 0.05, 0.05, 5.0)


class Child(msgspec.Struct, kw_only=True):
    """A process, and in the end the truth about it."""

    order: Start
    begun: float
    ends_at: float
    end: Exited | None = None
    is_stopped: bool = False
    is_watched: bool = True
    """The supervisor that started it lives."""
    is_acknowledged: bool = False

    @property
    def lives(self) -> bool:
        return self.end is None


class Supervisor:
    def __init__(self, clock: SimClock, seed: int, at_spawn: Callable[[Start], None]) -> None:
        self.clock = clock
        self._seed = seed
        self._at_spawn = at_spawn
        self._is_lucky = random.Random(f"luck {seed}").random() < 0.4
        """Nearly all of its children are soon over, and succeed."""
        clumsiness = random.Random(f"{seed} clumsiness").choice((0.08, 0.08, 0.5))
        self._clumsiness = 0.015 if self._is_lucky else clumsiness
        """How many of the starts fail; of those, a third for the machine's sake."""
        self.children: dict[RunId, Child] = {}
        """All that ever were."""
        self._failed: dict[RunId, FailedToStart] = {}
        """Starts that failed, until they are acknowledged."""
        self._misses: Counter[JobId] = Counter()
        """Starts that failed, and not for the machine's sake."""
        self._ordered: set[RunId] = set()
        self._ahead: deque[Start] = deque()
        """What it may start by itself, while their series lasts."""
        self._series, self._is_over, self._width = 0, True, 0
        self.wire = Wire(self)

    def connect(self, wire: Wire) -> None:
        """A new scheduler, or a new connection of the same: it begins with the accounts, and with every end that was
        not acknowledged."""
        self.wire = wire
        self._ahead.clear()
        self._series, self._is_over = 0, True
        known = [
            Account(
                run=run, pid=None if child.end else 1000 + run, start_time=1, has_ended=child.end is not None,
                is_lost=child.end is not None and not child.end.watched,
            )
            for run, child in self.children.items() if not child.is_acknowledged
        ]  # fmt: skip
        wire.tell(Accounts(runs=[*known, *(Account(run=run, pid=None, has_ended=True) for run in self._failed)]))
        for child in self.children.values():
            if child.end is not None and not child.is_acknowledged:
                wire.tell(child.end)
        for failure in self._failed.values():
            wire.tell(failure)

    def die(self) -> None:
        """Killed: nobody sees how its children end from now on; the next one takes over at once."""
        for child in self.children.values():
            child.is_watched = False
        self._failed.clear()

    def chance(self, run: RunId, what: str) -> random.Random:
        return random.Random(f"{self._seed} {run} {what}")

    def obey(self, order: Order) -> None:
        match order:
            case Start():
                self._freeze()
                self._start(order)
            case Ahead():
                self._take_in(order)
            case Withdraw():
                self._end_series()
                self.wire.tell(Withdrawn(series=order.series))
            case Stop():
                self._freeze()
                child = self.children.get(order.run)
                if child is not None and child.lives and not child.is_stopped:
                    child.is_stopped = True
                    delay = self.chance(order.run, "stop").choice((0.0, 0.0, 1.0, 5.0))
                    child.ends_at = min(child.ends_at, self.clock.monotonic() + delay)
            case Acknowledge():
                self._failed.pop(order.run, None)
                child = self.children.get(order.run)
                if child is not None:
                    assert child.end is not None, f"run-{order.run} lives, and its end was acknowledged"
                    child.is_acknowledged = True
            case _:
                pass

    def _take_in(self, order: Ahead) -> None:
        if order.series > self._series:
            self._ahead.clear()
            self._series, self._is_over = order.series, False
        if order.series == self._series and not self._is_over:
            if not all(map(self._goes_well, order.runs)):
                self._freeze()
                return
            self._ahead.extend(order.starts)
            self._width = order.width
            self._advance()

    def _goes_well(self, run: RunId) -> bool:
        child = self.children.get(run)
        return child is not None and (child.lives or (child.end is not None and child.end.code == 0))

    def _advance(self) -> None:
        while self._ahead and len(self.alive()) < self._width:
            start = self._ahead.popleft()
            self.wire.tell(Taken(run=start.run, at=self.clock.now().timestamp()))
            self._start(start)

    def _freeze(self) -> None:
        """Something else has happened than a success."""
        if not self._is_over:
            self._end_series()
            self.wire.tell(Withdrawn(series=self._series))

    def _end_series(self) -> None:
        self._ahead.clear()
        self._is_over = True

    def _start(self, order: Start) -> None:
        assert order.run not in self._ordered, f"run-{order.run} was ordered twice"
        self._ordered.add(order.run)
        chance = self.chance(order.run, "start")
        luck = chance.random()
        if luck < self._clumsiness:
            is_machine = luck < self._clumsiness / 3
            failure = FailedToStart(run=order.run, error="no such program", is_machine=is_machine)
            self._failed[order.run] = failure
            self._misses[order.job] += not failure.is_machine
            self.wire.tell(failure)
            self._freeze()
            return
        self._at_spawn(order)
        duration = chance.choice(BRIEF if self._is_lucky else DURATIONS)
        now = self.clock.monotonic()
        self.children[order.run] = Child(order=order, begun=now, ends_at=now + duration)
        self.wire.tell(Started(run=order.run, pid=1000 + order.run, start_time=1))

    def pass_time(self) -> None:
        """Children whose time has come end."""
        for run, child in list(self.children.items()):
            if child.lives and child.ends_at <= self.clock.monotonic():
                child.end = self._end(run, child)
                self.wire.tell(child.end)
                self._advance() if child.end.code == 0 else self._freeze()

    def _end(self, run: RunId, child: Child) -> Exited:
        at = self.clock.now().timestamp()
        if not child.is_watched:
            return Exited(run=run, at=at, watched=False)
        chance = self.chance(run, "end")
        if child.is_stopped and chance.random() < 0.8:
            return Exited(run=run, at=at, signal=15, ended_by="stop")
        limit = child.order.timeout
        if limit is not None and child.ends_at - child.begun >= limit:
            return Exited(run=run, at=at, signal=15, ended_by="timeout")
        return Exited(run=run, at=at, code=chance.choice((0,) * 19 + (1,) if self._is_lucky else (0, 0, 0, 1, 2)))

    @property
    def next_end(self) -> float | None:
        return min((child.ends_at for child in self.children.values() if child.lives), default=None)

    def alive(self) -> list[Child]:
        return [child for child in self.children.values() if child.lives]

    def failed_starts(self, job: JobId) -> int:
        """Also those that were ended because nobody had confirmed them in time."""
        unconfirmed = [child for child in self.of_job(job) if child.end is not None and child.end.ended_by == "stop"]
        return self._misses[job] + len(unconfirmed)

    def of_job(self, job: JobId) -> list[Child]:
        return [child for child in self.children.values() if child.order.job == job]


class Wire(FakeExecutor):
    """One connection, as the scheduler sees it."""

    def __init__(self, supervisor: Supervisor, latency: float = 0.0) -> None:
        super().__init__()
        self._supervisor = supervisor
        self._orders: deque[tuple[float, Order]] = deque()
        self._messages: deque[tuple[float, Message]] = deque()
        self.latency = latency
        self.is_repeating = False
        self.sent: Callable[[Order], None] = lambda _: None

    @property
    def _now(self) -> float:
        return self._supervisor.clock.monotonic()

    def send(self, orders: Sequence[Order]) -> None:
        super().send(orders)
        for order in orders:
            self.sent(order)
            self._orders.append((self._now + self.latency, order))

    goes_ahead = True

    def withdraw(self, series: int, patience: float) -> None:
        """Whatever is under way arrives first."""
        for _, order in self._orders:
            self._supervisor.obey(order)
        self._orders.clear()
        self._supervisor.obey(Withdraw(series=series))
        self._messages = deque((self._now, message) for _, message in self._messages)

    def tell(self, message: Message) -> None:
        if self._supervisor.wire is not self:
            return
        times = 2 if self.is_repeating and isinstance(message, Exited | Started | Taken) else 1
        self._messages.extend([(self._now + self.latency, message)] * times)

    def pump(self) -> None:
        """Orders that have arrived are carried out."""
        while self._orders and self._orders[0][0] <= self._now:
            self._supervisor.obey(self._orders.popleft()[1])
        self._supervisor.pass_time()

    def receive(self) -> list[Message]:
        found = []
        while self._messages and self._messages[0][0] <= self._now:
            found.append(self._messages.popleft()[1])
        return found

    def break_off(self) -> None:
        """Everything under way is lost, and a new connection begins."""
        self._orders.clear()
        self._messages.clear()
        self._messages.append((self._now, Lost(reason="the connection broke")))
        self._supervisor.connect(self)

    @property
    def is_ready(self) -> bool:
        return bool(self._messages) and self._messages[0][0] <= self._now

    @property
    def next_due(self) -> float | None:
        due = [queue[0][0] for queue in (self._orders, self._messages) if queue]
        return min(due, default=None)

    @property
    def is_idle(self) -> bool:
        return not self._orders and not self._messages

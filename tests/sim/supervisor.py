"""Simulated supervisor and its children, with the guarantees of the executor port.

Messages arrive in order, possibly late. After each new connection they arrive again until they are acknowledged, and a
broken connection loses them. The supervisor outlives the scheduler. When the supervisor is killed, its children
continue, and the next supervisor knows them from its journal. While it is suspended, it reads and sends nothing and
answers no hello, and its children continue.

The seed and the run id decide the end of a child, so that it does not change when other steps are removed. All children
are remembered and compared with the store.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable, Sequence

import msgspec

from rota.executor.port import (
    AcknowledgeOrder,
    ConnectionLoss,
    ExecutorMessage,
    ExecutorNotAnswering,
    ExecutorOrder,
    ExitReport,
    PingOrder,
    Pong,
    PrefetchOrder,
    PrefetchStart,
    RunInventory,
    RunReport,
    StartConfirmation,
    StartFailure,
    StartOrder,
    StopOrder,
    WithdrawConfirmation,
    WithdrawOrder,
)
from rota.ids import JobId, RunId
from tests.harness import FakeExecutor
from tests.sim.clock import SimClock

DURATIONS = (0.0, 0.0, 1.0, 5.0, 30.0, 400.0)
SHORT_DURATIONS = (0.0, 0.01, 0.01, 0.05, 0.05, 0.05, 5.0)


class Child(msgspec.Struct, kw_only=True):
    """A process with its true end."""

    order: StartOrder
    started_at: float
    ends_at: float
    end: ExitReport | None = None
    is_stopped: bool = False
    has_parent: bool = True
    """Whether the supervisor that started the process is alive."""
    is_acknowledged: bool = False

    @property
    def is_alive(self) -> bool:
        return self.end is None


class Supervisor:
    def __init__(self, clock: SimClock, seed: int, at_spawn: Callable[[StartOrder], None]) -> None:
        self.clock = clock
        self._seed = seed
        self._at_spawn = at_spawn
        self._is_lucky = random.Random(f"luck {seed}").random() < 0.4
        """Whether nearly all children end quickly and succeed."""
        failure_rate = random.Random(f"{seed} clumsiness").choice((0.08, 0.08, 0.5))
        self._start_failure_rate = 0.015 if self._is_lucky else failure_rate
        """Fraction of starts that fail. A third of them fail because of the machine."""
        self.children: dict[RunId, Child] = {}
        """All children, including those that have ended."""
        self._failed: dict[RunId, StartFailure] = {}
        """Failed starts that are not acknowledged."""
        self._failed_start_counts: Counter[JobId] = Counter()
        """Number of failed starts of each job, except those because of the machine."""
        self._ordered: set[RunId] = set()
        self._prefetched: deque[StartOrder] = deque()
        """Offered starts of the current series."""
        self._series, self._has_series_ended, self._max_running = 0, True, 0
        self.is_suspended = False
        self.never_started: Counter[JobId] = Counter()
        """Number of starts of each job that were lost unread: a suspended supervisor was killed, or its connection was
        replaced."""
        self.connection = SimConnection(self)

    def suspend(self) -> None:
        self.is_suspended = True

    def resume(self) -> None:
        """Resume a suspended supervisor. It answers a waiting hello."""
        self.is_suspended = False

    def connect(self, connection: SimConnection) -> None:
        """Accept a connection. It begins with the run inventory and all unacknowledged ends."""
        if self.is_suspended:
            self.never_started.update(start.job for start in self.connection.unread_starts)
        self.connection = connection
        self._prefetched.clear()
        self._series, self._has_series_ended = 0, True
        connection.is_established = not self.is_suspended
        if self.is_suspended:
            return
        reports = [
            RunReport(
                run=run,
                pid=None if child.end else 1000 + run,
                start_time=1,
                has_ended=child.end is not None,
                is_lost=child.end is not None and not child.end.is_observed,
            )
            for run, child in self.children.items()
            if not child.is_acknowledged
        ]
        failed = [RunReport(run=run, pid=None, has_ended=True) for run in self._failed]
        connection.deliver(RunInventory(runs=[*reports, *failed]))
        for child in self.children.values():
            if child.end is not None and not child.is_acknowledged:
                connection.deliver(child.end)
        for failure in self._failed.values():
            connection.deliver(failure)

    def kill(self) -> None:
        """Kill the supervisor. The ends of its children are not observed, and the next supervisor takes over
        immediately."""
        for child in self.children.values():
            child.has_parent = False
        self._failed.clear()
        if self.is_suspended:
            self.never_started.update(start.job for start in self.connection.unread_starts)
        self.is_suspended = False

    def rng_for(self, run: RunId, purpose: str) -> random.Random:
        return random.Random(f"{self._seed} {run} {purpose}")

    def execute(self, order: ExecutorOrder) -> None:
        match order:
            case StartOrder():
                self._withdraw_series()
                self._start(order)
            case PrefetchOrder():
                self._accept_offer(order)
            case WithdrawOrder():
                self._end_series()
                self.connection.deliver(WithdrawConfirmation(series=order.series))
            case PingOrder():
                self.connection.deliver(Pong())
            case StopOrder():
                self._withdraw_series()
                child = self.children.get(order.run)
                if child is not None and child.is_alive and not child.is_stopped:
                    child.is_stopped = True
                    delay = self.rng_for(order.run, "stop").choice((0.0, 0.0, 1.0, 5.0))
                    child.ends_at = min(child.ends_at, self.clock.monotonic() + delay)
            case AcknowledgeOrder():
                self._failed.pop(order.run, None)
                child = self.children.get(order.run)
                if child is not None:
                    assert child.end is not None, f"run-{order.run} is alive, and its end was acknowledged"
                    child.is_acknowledged = True
            case _:
                pass

    def _accept_offer(self, order: PrefetchOrder) -> None:
        if order.series > self._series:
            self._prefetched.clear()
            self._series, self._has_series_ended = order.series, False
        if order.series == self._series and not self._has_series_ended:
            if not all(map(self._is_running_or_successful, order.known_runs)):
                self._withdraw_series()
                return
            self._prefetched.extend(order.starts)
            self._max_running = order.max_running
            self._start_prefetched()

    def _is_running_or_successful(self, run: RunId) -> bool:
        child = self.children.get(run)
        return child is not None and (child.is_alive or (child.end is not None and child.end.code == 0))

    def _start_prefetched(self) -> None:
        while self._prefetched and len(self.running_children()) < self._max_running:
            start = self._prefetched.popleft()
            self.connection.deliver(PrefetchStart(run=start.run, at=self.clock.now().timestamp()))
            self._start(start)

    def _withdraw_series(self) -> None:
        """End the series, after anything but a success."""
        if not self._has_series_ended:
            self._end_series()
            self.connection.deliver(WithdrawConfirmation(series=self._series))

    def _end_series(self) -> None:
        self._prefetched.clear()
        self._has_series_ended = True

    def _start(self, order: StartOrder) -> None:
        assert order.run not in self._ordered, f"run-{order.run} was ordered twice"
        self._ordered.add(order.run)
        rng = self.rng_for(order.run, "start")
        value = rng.random()
        if value < self._start_failure_rate:
            is_machine = value < self._start_failure_rate / 3
            failure = StartFailure(run=order.run, error="no such program", is_machine_failure=is_machine)
            self._failed[order.run] = failure
            self._failed_start_counts[order.job] += not failure.is_machine_failure
            self.connection.deliver(failure)
            self._withdraw_series()
            return
        self._at_spawn(order)
        duration = rng.choice(SHORT_DURATIONS if self._is_lucky else DURATIONS)
        now = self.clock.monotonic()
        self.children[order.run] = Child(order=order, started_at=now, ends_at=now + duration)
        self.connection.deliver(StartConfirmation(run=order.run, pid=1000 + order.run, start_time=1))

    def pass_time(self) -> None:
        """End the children that are due. A suspended supervisor does not reap them."""
        if self.is_suspended:
            return
        for run, child in list(self.children.items()):
            if child.is_alive and child.ends_at <= self.clock.monotonic():
                child.end = self._make_end(run, child)
                self.connection.deliver(child.end)
                self._start_prefetched() if child.end.code == 0 else self._withdraw_series()

    def _make_end(self, run: RunId, child: Child) -> ExitReport:
        at = self.clock.now().timestamp()
        if not child.has_parent:
            return ExitReport(run=run, at=at, is_observed=False)
        rng = self.rng_for(run, "end")
        if child.is_stopped and rng.random() < 0.8:
            return ExitReport(run=run, at=at, signal=15, ended_by="stop")
        limit = child.order.timeout
        if limit is not None and child.ends_at - child.started_at >= limit:
            return ExitReport(run=run, at=at, signal=15, ended_by="timeout")
        return ExitReport(run=run, at=at, code=rng.choice((0,) * 19 + (1,) if self._is_lucky else (0, 0, 0, 1, 2)))

    @property
    def next_end(self) -> float | None:
        if self.is_suspended:
            return None
        return min((child.ends_at for child in self.children.values() if child.is_alive), default=None)

    def running_children(self) -> list[Child]:
        return [child for child in self.children.values() if child.is_alive]

    def failed_starts(self, job: JobId) -> int:
        """Return the number of failed starts of a job, including those that a silent supervisor never read."""
        return self._failed_start_counts[job] + self.never_started[job]

    def children_of(self, job: JobId) -> list[Child]:
        return [child for child in self.children.values() if child.order.job == job]


class SimConnection(FakeExecutor):
    """A connection to the supervisor, as the scheduler sees it."""

    def __init__(self, supervisor: Supervisor, latency: float = 0.0) -> None:
        super().__init__()
        self._supervisor = supervisor
        self._orders: deque[tuple[float, ExecutorOrder]] = deque()
        self._messages: deque[tuple[float, ExecutorMessage]] = deque()
        self.latency = latency
        self.repeats_messages = False
        self.is_established = True
        """Whether the hello was answered."""
        self.on_send: Callable[[ExecutorOrder], None] = lambda _: None

    @property
    def _now(self) -> float:
        return self._supervisor.clock.monotonic()

    @property
    def unread_starts(self) -> list[StartOrder]:
        return [order for _, order in self._orders if isinstance(order, StartOrder)]

    @property
    def oldest_unread_start(self) -> float | None:
        due = (due for due, order in self._orders if isinstance(order, StartOrder))
        return min(due, default=None)

    def send(self, orders: Sequence[ExecutorOrder]) -> None:
        self.orders.extend(orders)
        for order in orders if self.is_established else ():
            self.on_send(order)
            self._orders.append((self._now + self.latency, order))

    supports_prefetch = True

    def withdraw(self, series: int, timeout: float) -> None:
        """Withdraw the series. Orders that are in transit arrive first."""
        if self._supervisor.is_suspended:
            self._orders.append((self._now, WithdrawOrder(series=series)))
            return
        for _, order in self._orders:
            self._supervisor.execute(order)
        self._orders.clear()
        self._supervisor.execute(WithdrawOrder(series=series))
        self._messages = deque((self._now, message) for _, message in self._messages)

    def deliver(self, message: ExecutorMessage) -> None:
        if self._supervisor.connection is not self or not self.is_established:
            return
        count = (
            2 if self.repeats_messages and isinstance(message, ExitReport | StartConfirmation | PrefetchStart) else 1
        )
        self._messages.extend([(self._now + self.latency, message)] * count)

    def execute_due_orders(self) -> None:
        """Execute the orders that have arrived."""
        if self._supervisor.is_suspended:
            return
        while self._orders and self._orders[0][0] <= self._now:
            self._supervisor.execute(self._orders.popleft()[1])
        self._supervisor.pass_time()

    def receive(self) -> list[ExecutorMessage]:
        messages = []
        while self._messages and self._messages[0][0] <= self._now:
            messages.append(self._messages.popleft()[1])
        if messages or self.is_established:
            return messages
        if self._supervisor.is_suspended:
            raise ExecutorNotAnswering("the supervisor does not answer")
        self._supervisor.connect(self)
        return self.receive()

    def disconnect(self) -> None:
        """Lose everything in transit and reconnect. Without an established connection, the next `receive` tries
        again."""
        if not self.is_established:
            return
        self._messages.clear()
        self._messages.append((self._now, ConnectionLoss(reason="the connection broke")))
        self._supervisor.connect(self)
        self._orders.clear()

    @property
    def is_ready(self) -> bool:
        return bool(self._messages) and self._messages[0][0] <= self._now

    @property
    def next_due(self) -> float | None:
        queues = (self._messages,) if self._supervisor.is_suspended else (self._orders, self._messages)
        due = [queue[0][0] for queue in queues if queue]
        return min(due, default=None)

    @property
    def is_idle(self) -> bool:
        return self.is_established and not self._orders and not self._messages

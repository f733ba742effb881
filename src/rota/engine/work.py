"""What a piece of work inside the write transaction has at hand, and how it is asked for."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, Generic, TypeVar

import msgspec

from rota.core.artifact import MissingProducer, Outside, Places
from rota.core.backpressure import QueueLimits
from rota.core.breaker import BreakerPolicy
from rota.core.control import Holds
from rota.core.fact import Fact, Seen
from rota.core.pace import Heartbeat, Tick
from rota.core.pool import ConcurrencyPolicy, Limits
from rota.core.retry import RetryPolicies
from rota.core.tick import Plan
from rota.core.webhook import HookPolicy
from rota.engine.clearing import Clearing, Progress, holds_of
from rota.engine.known import Known
from rota.engine.meter import Note
from rota.engine.once import Once
from rota.executor.port import Ahead, Environment, Order, Start
from rota.ids import JobId, RunId, SlotId
from rota.store.ahead import Foreseen
from rota.store.claim import OpenRun
from rota.store.session import Session

T = TypeVar("T")
NODE = "local"
"""The machine that this scheduler starts its jobs on."""
Chance = Callable[[], float]
"""A number between 0 and 1, another one each time."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The part of the configuration that decisions need; replaced as a whole while running."""

    limits: Limits
    policy: ConcurrencyPolicy
    batch_size: int | None
    kill_after: timedelta
    start_timeout: timedelta
    spawn_delay: timedelta = timedelta()
    heartbeat: Heartbeat | None = None
    retry: RetryPolicies = RetryPolicies()
    breaker: BreakerPolicy = BreakerPolicy()
    places: Places = Places(jobs="", sentinels="")
    missing_producer: MissingProducer = MissingProducer.BLOCK
    queue: QueueLimits = QueueLimits()
    webhooks: HookPolicy = HookPolicy()


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What has to be looked at outside for a job."""

    job: JobId
    facts: tuple[Fact, ...]
    is_undecided: bool
    """It was looked at, and nothing could be decided; else it was chosen to start, if it is still so."""


class Work:
    """One write transaction. Orders leave for the executor after its commit, never before."""

    def __init__(
        self, session: Session, settings: Settings, now: datetime, chance: Chance, known: Known | None = None,
        held: str | None = None, clearings: Sequence[Clearing] = (), absent: frozenset[SlotId] = frozenset(),
        runs: Mapping[RunId, OpenRun | None] = MappingProxyType({}),
    ) -> None:  # fmt: skip
        self.session = session
        self.settings = settings
        self.now = now
        self.chance = chance
        self.orders: list[Order] = []
        self.starts: list[Start | Environment] = []
        self.ahead: Ahead | None = None
        """What the executor may start by itself from now on."""
        self.given: dict[RunId, Foreseen] = {}
        """The same, in their order, as they will be when they are claimed."""
        self.taken: set[RunId] = set()
        """What of that it has taken."""
        self.is_withdrawn = False
        """It takes no more of it."""
        self.free: list[str] = []
        """Workers whose runs have ended in this turn."""
        self.has_brief = False
        """A run that was soon over has succeeded."""
        self.plan: Plan | None = None
        """What was chosen to start, once that is done; none where nothing may start."""
        self.is_rehearsal = False
        """All of it is going to be undone."""
        self.tick: Tick | None = None
        """Asked for by hand."""
        self.planned: Plan | None = None
        """All that a tick decided on, of which some may start later."""
        self._runs_before = runs
        self.runs: dict[RunId, OpenRun | None] = dict(runs)
        """What is known of the open runs that messages speak of: several may speak of one."""
        self.known = Known() if known is None else known
        self.learned: dict[Fact, Seen] = {}
        """What was seen outside a moment ago; it joins what is known after the commit."""
        self.began: dict[Fact, int] = {}
        """The numbers of the looks that saw it."""
        self.changed: set[Fact] = set()
        """What of it is news: who hangs on it is looked at again."""
        self.answered: set[JobId] = set()
        """Jobs for which it was looked."""
        self.asked: dict[JobId, int] | None = None
        """Who waits for an answer after this turn; none where nothing was chosen."""
        self.questions: list[Question] = []
        """What is to be looked at outside; asked after the commit."""
        self.has_stored = False
        """Jobs were submitted in this turn: where there is room they start in it."""
        self.has_slots = False
        """A direct execution was asked for, or waits again."""
        self.names_urls = False
        """A job was submitted that names who is to be told of its end."""
        self.changes_webhooks = False
        """Who is told of everything is to be asked again."""
        self.has_mail = False
        """Something is to be sent, or may be now."""
        self.watches = False
        """A job was looked at that hangs on something outside."""
        self.afterwards: list[Callable[[], None]] = []
        """What is to be done to files, and who is woken: right after the commit, before anything starts. It says
        its own trouble."""
        self.notes: list[Note] = []
        """What is counted after the commit."""
        self.held = held
        """What the hold file says, while there is one."""
        self.clearings = list(clearings)
        """Those under way, with what was begun in this turn and without what is over."""
        self.progress: dict[Clearing, Progress] = {}
        """What this turn has done for them."""
        self._clearings_before = tuple(clearings)
        self._absent = absent
        self.returned: set[SlotId] = set()
        """Direct executions whose clients have come back."""

    def forget(self) -> None:
        """The transaction was undone."""
        self.orders.clear()
        self.taken.clear()
        self.free.clear()
        self.is_withdrawn = self.has_brief = False
        self.tick = None
        self.runs = dict(self._runs_before)
        self.learned.clear()
        self.began.clear()
        self.changed.clear()
        self.answered.clear()
        self.asked = None
        self.questions.clear()
        self.has_stored = False
        self.afterwards.clear()
        self.notes.clear()
        self.clearings = list(self._clearings_before)
        self.progress.clear()
        self.returned.clear()

    @property
    def absent(self) -> frozenset[SlotId]:
        """Direct executions that begin only when their clients are back."""
        return self._absent - self.returned

    @property
    def holds(self) -> Holds:
        return holds_of(self.held, self.clearings, self.absent)

    @property
    def outside(self) -> Outside:
        return Outside(seen=ChainMap(self.learned, self.known.seen), places=self.settings.places)

    def learn(self, seen: Mapping[Fact, Seen], began: int) -> None:
        """Take up what a look of this number saw, where no younger one has spoken."""
        before = ChainMap(self.learned, self.known.seen)
        for fact, value in seen.items():
            if self.known.is_outdated(fact, began) or began < self.began.get(fact, 0):
                continue
            if fact not in before or before[fact] != value:
                self.changed.add(fact)
            self.learned[fact], self.began[fact] = value, began

    def overlook(self, facts: Iterable[Fact]) -> None:
        """What was seen of these counts no more; a turn that is undone only has them looked at once too often."""
        for fact in facts:
            self.learned.pop(fact, None)
            self.known.overlook(fact)

    def keep(self) -> None:
        """The turn is committed."""
        for fact, value in self.learned.items():
            self.known.learn(fact, value, self.began[fact])
        if self.asked is not None:
            self.known.asked = self.asked
            return
        # An answer that came when nothing could be chosen is of no use: who waited for it has to ask again.
        for job in self.answered:
            self.known.asked.pop(job, None)

    def run(self, number: RunId) -> OpenRun | None:
        """None when it is not open any more."""
        if number not in self.runs:
            self.runs[number] = self.session.open_run(number)
        return self.runs[number]


class Request(Generic[T]):
    """Something to do inside the next transaction, by itself, and whom to tell after the commit.

    With `see`, the answer is what that makes of the result, at the end of the turn: it is called once for all the
    requests of a turn that share it. A rehearsal is answered in the same way, and all that it did is undone.
    """

    def __init__(
        self,
        act: Callable[[Work], T],
        done: Callable[[Any], None],
        see: Callable[[Work, Sequence[T]], Sequence[Any]] | None = None,
        *,
        is_rehearsal: bool = False,
        once: Once | None = None,
    ) -> None:
        self.act = act
        self.done = done
        self.see = see
        self.once = once
        """Where it is carried out once, however often it comes; its `act` looks whether it came before."""
        self.is_rehearsal = is_rehearsal

"""Health of the executor: whether it is connected, whether it answers, and whether the machine can start runs.

no message for half of `start_timeout`     the engine sends a `PingOrder`
no `Pong` within the other half, or a      the executor is silent: nothing is started until it answers. Orders that
start is not confirmed in time             were sent remain valid, and are executed then
"""

from __future__ import annotations

import logging
import math
from datetime import datetime, timedelta

import msgspec

from rota.clock import Clock
from rota.engine.recovery import RecoveryState
from rota.errors import ServiceUnavailable
from rota.executor.port import Executor, ExecutorMessage, ExecutorNotAnswering, RunInventory, silence_advice
from rota.ids import RunId

log = logging.getLogger("rota.engine")

RETRY_INTERVAL = 1.0
"""Seconds before the engine retries the store, the executor or the machine after a failure."""


class ExecutorSilence(msgspec.Struct, frozen=True):
    """Silence of an executor that does not answer."""

    since: datetime
    text: str
    """Message with the problem and the advice."""


class ExecutorHealth:
    def __init__(self, executor: Executor, clock: Clock) -> None:
        self._executor = executor
        self._clock = clock
        self.is_connected = False
        """Whether its run inventory is reconciled, so that it can get start orders."""
        self.recovery_state = RecoveryState()
        self.notice: str | None = None
        """Failure that the executor reports but that prevents no start."""
        self.silence: ExecutorSilence | None = None
        self._last_message_at = -math.inf
        """Time of its last message, on the monotonic clock."""
        self._pinged_at: float | None = None
        """Time of the unanswered ping, on the monotonic clock."""
        self._connection_error: str | None = None
        self._retry_at = 0.0
        self._machine_error: str | None = None
        self._machine_retry_at = 0.0
        self._is_trial_held = False

    def receive(self) -> list[ExecutorMessage]:
        """Return its messages. Without an executor no jobs start, but everything else continues."""
        due: list[ExecutorMessage] = [*self.recovery_state.due_inventories(self._clock.monotonic())]
        if self._connection_error is not None and self._clock.monotonic() < self._retry_at:
            return due
        try:
            messages = self._executor.receive()
        except (ServiceUnavailable, OSError) as error:
            is_new_error = self._connection_error is None
            self._retry_at = self._clock.monotonic() + RETRY_INTERVAL
            self.is_connected = False
            if isinstance(error, ExecutorNotAnswering):
                self.silence = self._make_connect_silence()
                self._connection_error = self.silence.text
            else:
                self.silence = None
                self._connection_error = f"nothing can be started: {error}"
            if is_new_error:
                log.error("%s", self._connection_error)
            self.recovery_state.complete()
            return due
        self._connection_error = None
        if messages:
            self._last_message_at, self._pinged_at = self._clock.monotonic(), None
        return [*due, *messages]

    def _make_connect_silence(self) -> ExecutorSilence:
        """Describe an executor that was silent on connect; it may have been silent for longer."""
        since = self._clock.now() if self.silence is None else self.silence.since
        return ExecutorSilence(
            since, _explain_silence(self._executor.supervisor_pid, f"since at least {_format_time(since)}")
        )

    def complete_recovery(self, strays: set[RunId]) -> None:
        """Mark the inventory as reconciled, except for strays that have not ended."""
        self.notice = self.silence = None
        self.recovery_state.complete(strays)
        self.is_connected = True

    def retain_inventory(self, inventory: RunInventory, error: Exception) -> None:
        """Keep an inventory that could not be reconciled, to retry it: nothing starts before it is reconciled."""
        self.is_connected = False
        self.recovery_state.retain_inventory(inventory, error, self._clock.monotonic())

    def disconnect(self) -> None:
        self.is_connected = False
        self.silence = self._pinged_at = None
        self.recovery_state.complete()
        self.notice = None
        self._machine_retry_at = self._clock.monotonic()  # the next supervisor may not have the problem

    def should_ping(self, timeout: float) -> bool:
        is_quiet = self._last_message_at + timeout / 2 <= self._clock.monotonic()
        return self.is_connected and self._pinged_at is None and is_quiet

    def record_ping(self) -> None:
        self._pinged_at = self._clock.monotonic()

    def unanswered_since(self, timeout: float) -> float | None:
        """Return the time of its last message if it has left a ping unanswered since."""
        is_pong_overdue = self._pinged_at is not None and self._pinged_at + timeout / 2 <= self._clock.monotonic()
        return self._last_message_at if is_pong_overdue else None

    def update_silence(self, unanswered_since: float | None, unconfirmed_owners: str, *, now: datetime) -> None:
        """Update `silence`. `unanswered_since`: monotonic time since which the executor leaves a ping or a start
        unanswered; `None` if it answers. `unconfirmed_owners`: names of the jobs with unconfirmed starts."""
        if not self.is_connected:
            return
        if unanswered_since is None:
            if self.silence is not None:
                log.info("the supervisor answers again")
            self.silence = None
            return
        previous = self.silence
        if previous is None:
            since = now - timedelta(seconds=self._clock.monotonic() - unanswered_since)
        else:
            since = previous.since
        starts = f" and has not confirmed the start of {unconfirmed_owners}" if unconfirmed_owners else ""
        self.silence = ExecutorSilence(
            since, _explain_silence(self._executor.supervisor_pid, f"since {_format_time(since)}{starts}")
        )
        if previous is None:
            log.warning("%s", self.silence.text)

    def record_machine_error(self, error: str) -> None:
        self._machine_error = error
        self.postpone_trial()

    def clear_machine_error(self) -> None:
        self._machine_error = None

    @property
    def is_trial(self) -> bool:
        """Whether the next start is a trial that shows if the machine and the home are usable again."""
        return self._machine_error is not None and self._clock.monotonic() >= self._machine_retry_at

    def postpone_trial(self) -> None:
        """Schedule the next trial; the machine error stays until a start succeeds."""
        self._machine_retry_at = self._clock.monotonic() + RETRY_INTERVAL
        self._is_trial_held = False

    def hold_trial(self) -> None:
        """Stop the trial timer while no job can start: an event will wake the engine."""
        self._is_trial_held = True

    @property
    def can_start(self) -> bool:
        is_free = self._machine_error is None or self.is_trial
        return self.is_connected and self.silence is None and is_free and self.recovery_state.blocker is None

    @property
    def blockers(self) -> list[str]:
        """Reasons why no job can start."""
        silence = None if self.silence is None else self.silence.text
        texts = (silence, self._connection_error, self.recovery_state.blocker, self._machine_error)
        return list(dict.fromkeys(text for text in texts if text is not None))

    def next_deadline(self, timeout: float) -> float | None:
        due = (
            self._next_ping_check(timeout),
            self.recovery_state.next_deadline,
            None if self._connection_error is None else self._retry_at,
            None if self._machine_error is None or self._is_trial_held else self._machine_retry_at,
        )
        return min((moment for moment in due if moment is not None), default=None)

    def _next_ping_check(self, timeout: float) -> float | None:
        """Return the time of the next ping, or of the check for its answer."""
        if not self.is_connected or (self.silence is not None and self._pinged_at is not None):
            return None
        return (self._last_message_at if self._pinged_at is None else self._pinged_at) + timeout / 2


def _explain_silence(pid: int, duration: str) -> str:
    return (
        f"the supervisor (pid {pid}) has been silent {duration}; nothing more is started until it answers:"
        f" {silence_advice(pid)}"
    )


def _format_time(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"

"""Retry: whether a failed run is tried again, and when (DEC-001, DEC-007).

A chain is a job and its retries. How often it was tried again by itself is counted on the chain, in the store, so that
neither a restart nor a new process begins the count anew; only a person does, by `retry` or `rewind`. The policy is
stored with the job: who changes the configuration changes what comes, not what is already queued.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

import msgspec

from rota.core.run import Conclusion, was_interrupted
from rota.core.status import Status
from rota.errors import InvalidInput

MOST_RETRIES = 1000
DEFAULT = "default"
"""The name of the policy that `[retry]` itself is."""
FLEET = "fleet"
"""The policy of a job with a flow, unless it says otherwise."""


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    max_retries: int = 3
    """Automatic retries after the first run: three make four runs at most."""
    base: timedelta = timedelta(seconds=10)
    multiplier: float = 2.0
    jitter: float = 0.1
    """As a part of the delay, up or down: many that failed together do not come back together."""
    cap: timedelta = timedelta(minutes=5)
    exit_codes: tuple[int, ...] = ()
    """The exit codes that are tried again; empty, every failure is."""

    def again_after(self, retries: int, *, exit_code: int | None, chance: float) -> timedelta | None:
        """How long to wait after a failure, `retries` automatic retries having been made; none when it is enough.

        `exit_code` is none where the command did not end by itself: no choice of codes speaks of that. `chance` is
        between 0 and 1, evenly.
        """
        if retries >= self.max_retries:
            return None
        if exit_code is not None and self.exit_codes and exit_code not in self.exit_codes:
            return None
        try:
            delay = self.base * self.multiplier**retries * (1 + self.jitter * (2 * chance - 1))
        except OverflowError:
            return self.cap
        return min(delay, self.cap)


class RetryPolicies(msgspec.Struct, frozen=True, kw_only=True):
    """The policies that a submit can choose from."""

    default: RetryPolicy = RetryPolicy()
    named: Mapping[str, RetryPolicy] = msgspec.field(
        default_factory=lambda: {FLEET: RetryPolicy(max_retries=5, base=timedelta(seconds=30))}
    )

    def choose(
        self, *, name: str | None, retries: int | None, flow: str | None, otherwise: str | None = None
    ) -> RetryPolicy | None:
        """What a job asked for; none for one that is not tried again by itself.

        `otherwise` names the policy of a job that asked for nothing: a command typed by hand has none, for it may not
        be safe to repeat.
        """
        if retries is not None and not 0 <= retries <= MOST_RETRIES:
            raise InvalidInput(f"retries go from 0 to {MOST_RETRIES}, not {retries}").under(".retries")
        chosen = name if name is not None else (FLEET if flow is not None else otherwise)
        if chosen is None:
            return None if retries is None else msgspec.structs.replace(self.default, max_retries=retries)
        policy = self._find(chosen)
        return policy if retries is None else msgspec.structs.replace(policy, max_retries=retries)

    def _find(self, name: str) -> RetryPolicy:
        if name == DEFAULT:
            return self.default
        if name not in self.named:
            known = ", ".join([DEFAULT, *sorted(self.named)])
            said = f"unknown retry policy: {name!r}; known are {known}, and [retry.NAME] adds one"
            raise InvalidInput(said).under(".retry")
        return self.named[name]


def decide(
    policy: RetryPolicy | None, retries: int, end: Conclusion, *, is_unwanted: bool, chance: float
) -> timedelta | None:
    """How long after this end of a run its chain goes on; none when the chain ends with it.

    A failure that came before a cancel took effect stands as a failure, and the cancel stands too: it meant the chain.
    """
    if end.status is not Status.FAILED or policy is None or is_unwanted:
        return None
    return policy.again_after(retries, exit_code=None if was_interrupted(end) else end.exit_code, chance=chance)


def show_progress(policy: RetryPolicy | None, retries: int) -> str | None:
    """Which of how many automatic retries; none for a job that a person asked for."""
    return f"retry {retries} of {policy.max_retries}" if policy is not None and retries else None

"""Retry: whether a failed run is retried, and after which backoff (DEC-001, DEC-007).

A chain is a job and its retries. The store counts the automatic retries of a chain, so a restart of the scheduler does
not reset the count; only the user does, with `retry` or `rewind`. The policy is stored with the job: a configuration
change applies to new jobs, not to queued jobs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Literal

import msgspec

from rota.errors import InvalidInput
from rota.kernel.run import RunResult, was_interrupted
from rota.kernel.status import Status

MAX_RETRIES = 1000
DEFAULT_POLICY = "default"
"""Name of the policy that the `[retry]` table itself defines."""
FLEET_POLICY = "fleet"
"""Default policy of a job with a flow."""


UnknownExit = Literal["retry", "hold"]


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    max_retries: int = 3
    """Automatic retries after the first run: 3 allows 4 runs."""
    base: timedelta = timedelta(seconds=10)
    multiplier: float = 2.0
    jitter: float = 0.1
    """Fraction by which a delay varies, up or down, so that jobs that failed together are not retried together. `cap`
    applies after it, so delays far above the cap do not vary."""
    cap: timedelta = timedelta(minutes=5)
    exit_codes: tuple[int, ...] = ()
    """Exit codes that are retried; empty retries every failure."""
    unknown_exit: UnknownExit = "retry"
    """Whether a run with an unknown exit status is retried like any failure, or not retried automatically."""

    def retry_delay(self, retries: int, *, exit_code: int | None, random_fraction: float) -> timedelta | None:
        """Return the delay before the next retry, or `None` if there is none. `retries` is the number of automatic
        retries so far.

        `exit_code` is `None` if the command did not end by itself; `exit_codes` does not apply then. `random_fraction`
        is uniformly distributed between 0 and 1.
        """
        if retries >= self.max_retries:
            return None
        if exit_code is not None and self.exit_codes and exit_code not in self.exit_codes:
            return None
        try:
            delay = self.base * self.multiplier**retries * (1 + self.jitter * (2 * random_fraction - 1))
        except OverflowError:
            return self.cap
        return min(delay, self.cap)


_BUILT_IN = RetryPolicy()
_BUILT_IN_FLEET = RetryPolicy(max_retries=5, base=timedelta(seconds=30))
_FIELDS_BY_RULE: Mapping[str, tuple[str, ...]] = {
    "retry": ("max_retries",),
    "retry_delay": ("base", "multiplier", "cap", "jitter"),
    "retry_exit_codes": ("exit_codes",),
    "unknown_exit": ("unknown_exit",),
}


class RetryPolicies(msgspec.Struct, frozen=True, kw_only=True):
    """Policies that a submit can choose from."""

    default: RetryPolicy = RetryPolicy()
    named: Mapping[str, RetryPolicy] = msgspec.field(default_factory=lambda: {FLEET_POLICY: _BUILT_IN_FLEET})

    def choose(
        self, *, name: str | None, retries: int | None, flow: str | None, fallback: str | None = None
    ) -> RetryPolicy | None:
        """Return the requested policy, or `None` for a job without automatic retries.

        `fallback` names the policy of a job without a request. Commands typed by a user have none, because repeating
        them may not be safe.
        """
        if retries is not None and not 0 <= retries <= MAX_RETRIES:
            raise InvalidInput(f"retries must be from 0 to {MAX_RETRIES}, not {retries}").at_path(".retries")
        chosen = name if name is not None else (FLEET_POLICY if flow is not None else fallback)
        if chosen is None:
            return None if retries is None else msgspec.structs.replace(self.default, max_retries=retries)
        policy = self._find(chosen)
        return policy if retries is None else msgspec.structs.replace(policy, max_retries=retries)

    def sources(self, name: str, *, chosen_by: str | None, counted_by: str | None) -> dict[str, str]:
        """Return the source of each rule of the named policy: the reason it was chosen, and where its values are set.

        `counted_by` is the source of a number of retries that replaces the policy's own.
        """
        prefix = "" if chosen_by is None else f"{chosen_by}; "
        sources = {rule: f"{prefix}{self._describe_source(name, fields)}" for rule, fields in _FIELDS_BY_RULE.items()}
        return sources if counted_by is None else {**sources, "retry": counted_by}

    def _describe_source(self, name: str, fields: Sequence[str]) -> str:
        """Name the configuration keys of the fields that differ from the built-in policy."""
        keys = [key for field in fields if (key := self._configured_key(name, field)) is not None]
        if keys:
            return f"configuration ({', '.join(keys)})"
        table = "retry" if name == DEFAULT_POLICY else f"retry.{name}"
        return f"built-in ({table}.{fields[0]})" if len(fields) == 1 else f"built-in ({table})"

    def _configured_key(self, name: str, field: str) -> str | None:
        value, shared = getattr(self._find(name), field), getattr(self.default, field)
        if name == FLEET_POLICY and value == getattr(_BUILT_IN_FLEET, field):
            return None
        if name != DEFAULT_POLICY and value != shared:
            return f"retry.{name}.{field}"
        return f"retry.{field}" if shared != getattr(_BUILT_IN, field) else None

    def _find(self, name: str) -> RetryPolicy:
        if name == DEFAULT_POLICY:
            return self.default
        if name not in self.named:
            known = ", ".join([DEFAULT_POLICY, *sorted(self.named)])
            message = f"unknown retry policy: {name!r}; known policies: {known}; a [retry.NAME] table adds one"
            if name.isdecimal():
                message += f"; to retry up to {name} times, set `retries` to {name}"
            raise InvalidInput(message).at_path(".retry")
        return self.named[name]


def decide_retry(
    policy: RetryPolicy | None, retries: int, result: RunResult, *, is_cancel_requested: bool, random_fraction: float
) -> timedelta | None:
    """Return the delay after which the chain continues, or `None` if it ends with this run.

    A run that failed before a cancel took effect stays failed, but is not retried: the cancel applies to the chain.
    """
    if result.status is not Status.FAILED or policy is None or is_cancel_requested:
        return None
    if result.exit_code is None and policy.unknown_exit == "hold":
        return None
    return policy.retry_delay(
        retries, exit_code=None if was_interrupted(result) else result.exit_code, random_fraction=random_fraction
    )


def format_progress(policy: RetryPolicy | None, retries: int) -> str | None:
    """Format the number of this automatic retry and the maximum; `None` for a job that is not an automatic retry."""
    return f"retry {retries} of {policy.max_retries}" if policy is not None and retries else None

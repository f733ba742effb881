"""Conversion between stored values and values of the kernel.

Text is decoded tolerantly: one damaged record must not hide or block the others. Times and durations are stored as
whole microseconds, in UTC.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache, lru_cache
from typing import Any, TypeVar

import msgspec

from rota.ids import JobId
from rota.kernel.breaker import HALF_OPEN, HalfOpenState, OpenState, ProbingState
from rota.kernel.edges import DependencyPolicy
from rota.kernel.groups import GroupMode
from rota.kernel.locks import LockMode
from rota.kernel.pools import PoolDemand
from rota.kernel.reservations import ReservationState
from rota.kernel.retry import RetryPolicy
from rota.kernel.status import Status, parse_status
from rota.kernel.trace import Trace
from rota.kernel.verdict import WaitKind
from rota.schedules.model import CatchUp, FireState, Overlap
from rota.webhooks.model import DeliveryState

T = TypeVar("T")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

_DEPENDENCY_POLICIES = {policy.value: policy for policy in DependencyPolicy}
_LOCK_MODES = {mode.value: mode for mode in LockMode}
_WAIT_KINDS = {kind.value: kind for kind in WaitKind}
_CATCH_UPS = {catch_up.value: catch_up for catch_up in CatchUp}
_OVERLAPS = {overlap.value: overlap for overlap in Overlap}
_GROUP_MODES = {mode.value: mode for mode in GroupMode}
_RESERVATION_STATES = {state.value: state for state in ReservationState}
_DELIVERY_STATES = {state.value: state for state in DeliveryState}
_FIRE_STATES = {state.value: state for state in FireState}


def to_micros(moment: datetime) -> int:
    return (moment - _EPOCH) // _MICROSECOND


def from_micros(micros: int) -> datetime:
    return _EPOCH + timedelta(microseconds=micros)


def optional_to_micros(moment: datetime | None) -> int | None:
    return None if moment is None else to_micros(moment)


def optional_from_micros(micros: int | None) -> datetime | None:
    return None if micros is None else from_micros(micros)


def duration_to_micros(duration: timedelta | None) -> int | None:
    return None if duration is None else duration // _MICROSECOND


def duration_from_micros(micros: int | None) -> timedelta | None:
    return None if micros is None else timedelta(microseconds=micros)


def delay_to_micros(due: datetime | None, now: datetime) -> int | None:
    """Return the distance to a due time, which is stored with it."""
    return None if due is None else max(0, (due - now) // _MICROSECOND)


class RecordDecoder:
    """Decoder for the fields of one record that collects their errors."""

    __slots__ = ("errors",)

    def __init__(self) -> None:
        self.errors: list[str] = []

    @property
    def error(self) -> str | None:
        return "; ".join(self.errors) or None

    def json(self, name: str, text: str | None, kind: type[T], default: T) -> T:
        if text is None:
            self.errors.append(f"its {name} is missing")
            return default
        try:
            value: T = _decode_json(text, kind)
        except msgspec.DecodeError as error:
            self.errors.append(f"its {name} cannot be read: {error}")
            return default
        return value

    def optional_json(self, name: str, text: str | None, kind: type[T]) -> T | None:
        return None if text is None else self.json(name, text, kind | None, None)  # type: ignore[arg-type]

    def status(self, text: str) -> Status:
        status = parse_status(text)
        if status is Status.UNREADABLE:
            self.errors.append(f"its status {text!r} is unknown")
        return status

    def wait_kind(self, text: str | None) -> WaitKind | None:
        if text is not None and text not in _WAIT_KINDS:
            self.errors.append(f"its wait_kind {text!r} is unknown")
        return None if text is None else _WAIT_KINDS.get(text)

    def waited_on(self, text: str) -> tuple[WaitKind, ...]:
        kinds = text.split(",") if text else []
        if any(kind not in _WAIT_KINDS for kind in kinds):
            self.errors.append(f"its waited_on {text!r} is unknown")
        return tuple(_WAIT_KINDS[kind] for kind in kinds if kind in _WAIT_KINDS)

    def dependency_policy(self, text: str) -> DependencyPolicy:
        if text not in _DEPENDENCY_POLICIES:
            self.errors.append(f"the policy {text!r} of one of its dependencies is unknown")
        return parse_dependency_policy(text)

    def catch_up(self, text: str) -> CatchUp:
        if text not in _CATCH_UPS:
            self.errors.append(f"its catch_up {text!r} is unknown")
        return _CATCH_UPS.get(text, CatchUp.NONE)

    def overlap(self, text: str) -> Overlap:
        if text not in _OVERLAPS:
            self.errors.append(f"its overlap {text!r} is unknown")
        return _OVERLAPS.get(text, Overlap.SKIP)

    def fire_state(self, text: str) -> FireState:
        if text not in _FIRE_STATES:
            self.errors.append(f"its state {text!r} is unknown")
        return parse_fire_state(text)

    def group_mode(self, text: str) -> GroupMode:
        if text not in _GROUP_MODES:
            self.errors.append(f"its mode {text!r} is unknown")
        return _GROUP_MODES.get(text, GroupMode.SEQUENTIAL)

    def reservation_state(self, text: str, default: ReservationState) -> ReservationState:
        if text not in _RESERVATION_STATES:
            self.errors.append(f"its state {text!r} is unknown")
        return _RESERVATION_STATES.get(text, default)

    def delivery_state(self, text: str, default: DeliveryState) -> DeliveryState:
        if text not in _DELIVERY_STATES:
            self.errors.append(f"its state {text!r} is unknown")
        return _DELIVERY_STATES.get(text, default)

    def lock_mode(self, text: str) -> LockMode:
        if text not in _LOCK_MODES:
            self.errors.append(f"the mode {text!r} of one of its locks is unknown")
        return parse_lock_mode(text)


def decode_or_default(text: str, kind: type[T], default: T) -> T:
    """Return the decoded JSON, or `default` if it is unreadable."""
    try:
        value: T = _decode_json(text, kind)
    except (msgspec.DecodeError, TypeError):  # a damaged column may hold no text at all
        return default
    return value


@lru_cache(maxsize=4096)
def decode_demand(text: str | None) -> PoolDemand | None:
    """Return the demand, or None if it is unreadable."""
    try:
        return None if text is None else msgspec.json.decode(text, type=dict[str, int])
    except msgspec.DecodeError:
        return None


def decode_trace(text: str | None) -> Trace:
    """Return the trace context. If it is unreadable it is empty, so that the job can still run."""
    return {} if text is None else decode_or_default(text, dict[str, str], {})


def decode_retry_policy(text: str | None) -> RetryPolicy | None:
    """Return the retry policy, or None if it is unreadable, so that the job is not retried."""
    return None if text is None else decode_or_default(text, RetryPolicy | None, None)  # type: ignore[arg-type]


def parse_dependency_policy(text: str) -> DependencyPolicy:
    """Return the policy of an edge, or the strictest if it is unknown."""
    return _DEPENDENCY_POLICIES.get(text, DependencyPolicy.SUCCESS)


def parse_lock_mode(text: str) -> LockMode:
    """Return the mode of a lock, or the strictest if it is unknown."""
    return _LOCK_MODES.get(text, LockMode.EXCLUSIVE)


def parse_fire_state(text: str) -> FireState:
    """Return the state of a scheduled time, or failed if it is unknown."""
    return _FIRE_STATES.get(text, FireState.FAILED)


def breaker_state(state: str, until: int, probe: int | None) -> OpenState | HalfOpenState | ProbingState:
    if state == "open":
        return OpenState(from_micros(until))
    return HALF_OPEN if probe is None else ProbingState(JobId(probe))


def _decode_json(text: str, kind: Any) -> Any:
    return _json_decoder(kind).decode(text)


@cache
def _json_decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    """Return the cached decoder of a type. Creating one takes longer than decoding, and a list decodes every field of
    every row."""
    return msgspec.json.Decoder(kind)

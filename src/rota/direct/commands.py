"""Operations on a reservation, which is a direct execution: reserve, release, withdraw, abandon, forward a signal."""

from __future__ import annotations

import signal as signals
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple

import msgspec

from rota.db.reservations import NewReservation
from rota.db.session import AnyReader
from rota.duration import parse_duration
from rota.engine.calls import ReadStore
from rota.engine.transaction import Transaction
from rota.errors import Conflict, InvalidInput, ReservationTimeout, error_path
from rota.executor.port import SignalOrder, StopOrder
from rota.ids import ReservationId, format_reservation_id
from rota.jobs.submission import DefaultEnvironment, LockRequest, Submission, check_fields
from rota.jobs.submit import SubmitChecker, make_phase_lock
from rota.kernel.reservations import Reservation, ReservationState
from rota.kernel.run import EXIT_CANCELLED, RunResult
from rota.kernel.status import Status
from rota.schema_types import AbsolutePath, DurationText, Name, NameOrId, TitleText, Weight
from rota.templates.expand import blame_template, expand, find_usable_template

FORWARDED_SIGNALS = frozenset(
    {
        signals.SIGHUP,
        signals.SIGINT,
        signals.SIGQUIT,
        signals.SIGTERM,
        signals.SIGUSR1,
        signals.SIGUSR2,
        signals.SIGCONT,
        signals.SIGWINCH,
    }
)
"""Signals that a terminal or user sends to a program. SIGKILL is not among them: withdraw the reservation instead."""


class ReservationRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A direct execution to reserve."""

    command: list[str] | None = None
    """The program and its arguments; leave it out if the client does the work itself, or if a template has it."""
    template: NameOrId | None = None
    """Name or id of a template."""
    params: dict[str, Any] = {}
    """Params of the template; the command reads them from `ROTA_PARAMS`."""
    name: TitleText | None = None
    """Display name."""
    type: Name | None = None
    """Kind of work, which selects the pool `type/TYPE`."""
    flow: Name | None = None
    """Flow that it is a step of."""
    target: Name | None = None
    """Object of the work, which selects the pool `target/TARGET`."""
    pools: dict[str, Weight] = {}
    """Capacity that it uses by pool, in addition to the pools of type, flow and target."""
    locks: list[LockRequest] = []
    """Locks that it holds while it runs."""
    timeout: DurationText | None = None
    """Maximum run time of its command."""
    idle_timeout: DurationText | None = None
    """Maximum time without output of its command on stdout or stderr."""
    cwd: AbsolutePath | None = None
    """Working directory, as an absolute path; the scheduler's own by default."""
    env: dict[str, str] = {}
    """Environment variables."""
    inherit_env: bool = True
    """Whether `env` is added to the scheduler's own environment. The CLI sends its whole environment instead."""
    explicit_env: list[str] = []
    """Names in `env` that were set explicitly, if `env` is a whole environment; they override a template's."""


class ReserveOutcome(msgspec.Struct, frozen=True, kw_only=True):
    reservation: ReservationId
    warnings: list[str]


class DirectExecutionRequest(ReservationRequest, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A direct execution to start."""

    wait: str | None = None
    """Maximum time to wait for the start, such as `30s`; `[direct] wait` by default."""

    @property
    def spec(self) -> ReservationRequest:
        return ReservationRequest(**{name: getattr(self, name) for name in ReservationRequest.__struct_fields__})


class PreparedReservation(NamedTuple):
    operation: Callable[[Transaction], ReserveOutcome]
    wait: timedelta | None
    """Requested maximum time to wait for the start; None for the default."""


async def prepare_reservation(
    request: DirectExecutionRequest,
    *,
    read: ReadStore,
    default_environment: DefaultEnvironment,
    actor: str,
    has_client: bool,
) -> PreparedReservation:
    """Return the operation for the engine's turn. A caller that has carried it out starts the lease, because from then
    on the reservation needs a client."""
    with error_path(".wait"):
        wait = None if request.wait is None else parse_duration(request.wait)
    spec = request.spec
    if spec.template is not None:
        spec = await read(partial(expand_reservation, request=spec))

    def operation(tx: Transaction) -> ReserveOutcome:
        with blame_template(request):
            return reserve(
                tx, request=spec, default_environment=default_environment, actor=actor, has_client=has_client
            )

    return PreparedReservation(operation, wait)


def expand_reservation(reader: AnyReader, request: ReservationRequest) -> ReservationRequest:
    """Return the request with the command and pool demand of a job of its template. Fields that only concern the queue
    do not apply. A worktree is refused: without it, the command would change files that are not its own."""
    assert request.template is not None  # noqa: S101 - the caller checks it
    template = find_usable_template(reader, request.template)
    if template.body.worktree or template.body.patch:
        mode = "in a worktree of its own" if template.body.worktree else "with a patch of its changes"
        raise InvalidInput(
            f"a job of template {template.name} runs {mode}, which a direct execution does not have; submit it instead"
        ).at_path(".template")
    submission = Submission(**{**msgspec.structs.asdict(request), "command": request.command or []})
    expanded = expand(submission, template)
    fields = {name: getattr(expanded, name) for name in ReservationRequest.__struct_fields__}
    phase = make_phase_lock(expanded)
    return ReservationRequest(
        **{
            **fields,
            "template": None,
            "name": expanded.name or template.name,
            "locks": [*expanded.locks, *(() if phase is None else (LockRequest(key=phase.key),))],
        }
    )


def reserve(
    tx: Transaction,
    request: ReservationRequest,
    default_environment: DefaultEnvironment,
    *,
    actor: str,
    has_client: bool = False,
) -> ReserveOutcome:
    """Reserve a direct execution, checked by the rules of a submit. Reservations start in the order of their arrival,
    before all queued jobs."""
    if request.command is None and (request.timeout or request.idle_timeout):
        message = "timeouts need a command that Rota runs; leave them out, or name the command"
        raise InvalidInput(message).at_path(".timeout" if request.timeout else ".idle_timeout")
    checker = SubmitChecker(tx, default_environment)
    submission = Submission(
        **{
            **msgspec.structs.asdict(request),
            "command": ["true"] if request.command is None else request.command,
            "env": {**request.env, "ROTA_PARAMS": msgspec.json.encode(request.params).decode()}
            if request.params
            else request.env,
        }
    )
    check_fields(submission)
    spec = checker.make_spec(submission)
    demand = checker.pool_demand(spec)
    has_command = request.command is not None
    new = NewReservation(
        name=spec.name,
        command=spec.command if has_command else None,
        cwd=spec.cwd if has_command else None,
        environment=spec.environment if has_command else None,
        type=spec.type,
        flow=spec.flow,
        target=spec.target,
        demand=demand,
        locks=spec.locks,
        trace=spec.trace if has_command else {},
        timeout=spec.timeout,
        idle_timeout=spec.idle_timeout,
        has_client=has_client,
    )
    reservation = tx.reservations.add(new, tx.now, actor)
    tx.effects.has_reservations = True
    return ReserveOutcome(reservation=reservation, warnings=list(checker.warnings))


def release(tx: Transaction, reservation: ReservationId, *, actor: str) -> ReservationId:
    """Release a reservation whose client program has done its work."""
    current = _find_reservation(tx, reservation)
    if current.state is ReservationState.ENDED:
        return reservation
    if current.state is ReservationState.WAITING:
        return withdraw(tx, reservation, reason="released before its start", actor=actor)
    if current.command is not None:
        raise Conflict(
            f"{format_reservation_id(reservation)} runs a command and is released when the command ends; cancel it,"
            " or wait"
        )
    tx.reservations.end(reservation, RunResult(status=Status.COMPLETED, exit_code=0, reason=None), tx.now, actor)
    return reservation


def withdraw(tx: Transaction, reservation: ReservationId, *, reason: str, actor: str | None = None) -> ReservationId:
    """Cancel a reservation. A running command is stopped, and the reservation is CANCELLED when its process tree is
    gone."""
    current = _find_reservation(tx, reservation)
    if current.state is ReservationState.ENDED:
        return reservation
    if current.run is None:
        end = RunResult(status=Status.CANCELLED, exit_code=EXIT_CANCELLED, reason=reason)
        tx.reservations.end(reservation, end, tx.now, actor)
    else:
        tx.reservations.request_stop(reservation, reason, tx.now, actor)
        tx.effects.orders.append(StopOrder(run=current.run, kill_after=tx.settings.kill_after.total_seconds()))
    return reservation


def expire(tx: Transaction, reservation: ReservationId, *, reason: str) -> ReservationId:
    """Withdraw a reservation whose client is silent. A reservation that runs a command stays until its process is
    gone."""
    return (
        reservation if _find_reservation(tx, reservation).run is not None else withdraw(tx, reservation, reason=reason)
    )


def reattach_client(tx: Transaction, reservation: ReservationId) -> ReservationId:
    """Record that the client of a reservation has come back after a restart of the scheduler."""
    tx.effects.returned_clients.add(_find_reservation(tx, reservation).id)
    return reservation


def abandon(tx: Transaction, reservation: ReservationId, *, reason: str) -> ReservationId:
    """Cancel a reservation that did not start in time; one that has started stays."""
    if _find_reservation(tx, reservation).state is ReservationState.WAITING:
        end = RunResult(status=Status.CANCELLED, exit_code=ReservationTimeout.exit_code, reason=reason)
        tx.reservations.end(reservation, end, tx.now)
    return reservation


def forward_signal(tx: Transaction, reservation: ReservationId, number: int) -> ReservationId:
    """Send a signal to the running command of a reservation."""
    if number not in FORWARDED_SIGNALS:
        names = ", ".join(sorted(known.name for known in FORWARDED_SIGNALS))
        raise InvalidInput(f"signal {number} is not forwarded; forwarded signals are {names}").at_path(".signal")
    current = _find_reservation(tx, reservation)
    if current.state in (ReservationState.WAITING, ReservationState.ENDED) or current.run is None:
        raise Conflict(
            f"{format_reservation_id(reservation)} runs no command now ({current.display_status}); nothing was sent"
        )
    tx.effects.orders.append(SignalOrder(run=current.run, number=number))
    return reservation


def _find_reservation(tx: Transaction, reservation: ReservationId) -> Reservation:
    stored = tx.reservations.find(reservation)
    if stored is None:
        raise tx.reservations.not_found(reservation)
    return stored

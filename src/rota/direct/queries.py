"""Direct executions as the API shows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rota.db.session import AnyReader
from rota.direct.schemas import ReservationView
from rota.engine.direct import reservation_directory
from rota.engine.dispatch import plan_starts
from rota.ids import ReservationId, format_reservation_id
from rota.jobs.explain import describe_blockers
from rota.jobs.queries import ViewContext, hold_wait
from rota.jobs.schemas import render_lock, render_wait
from rota.kernel.reservations import Reservation, ReservationState
from rota.kernel.verdict import Wait


def list_reservations(
    reader: AnyReader, context: ViewContext, *, after: int = 0, limit: int = 1000
) -> tuple[list[ReservationView], str | None]:
    """Return waiting and running direct executions in order of arrival, and the last id if there are more."""
    reservations = reader.reservations.list_open_after(after, limit + 1)
    waits = _reservation_waits(reader, reservations, context)
    views = [
        _render_reservation(reader, reservation, context, waits.get(reservation.id))
        for reservation in reservations[:limit]
    ]
    return views, views[-1].id if len(reservations) > limit else None


def show(reader: AnyReader, reservation: ReservationId, context: ViewContext) -> ReservationView:
    record = reader.reservations.find(reservation)
    if record is None:
        raise reader.reservations.not_found(reservation)
    return _render_reservation(reader, record, context, _reservation_waits(reader, [record], context).get(reservation))


def _reservation_waits(
    reader: AnyReader, reservations: Sequence[Reservation], context: ViewContext
) -> Mapping[ReservationId, Wait]:
    """Return the waits from the start plan itself, so that explanations match decisions."""
    if not any(reservation.state is ReservationState.WAITING for reservation in reservations):
        return {}
    return plan_starts(reader, context.limits, context.batch_size, holds=context.holds).reservation_waits


def _render_reservation(
    reader: AnyReader, reservation: Reservation, context: ViewContext, wait: Wait | None
) -> ReservationView:
    wait = (hold_wait(context) or wait) if reservation.state is ReservationState.WAITING else None
    directory = reservation_directory(context.jobs_directory.parent, reservation.id)
    logs = ("stdout", "stderr") if reservation.command is not None else ()
    return ReservationView(
        id=format_reservation_id(reservation.id),
        status=reservation.display_status,
        ready=reservation.state in (ReservationState.STARTING, ReservationState.RUNNING),
        name=reservation.name,
        command=reservation.command,
        type=reservation.type,
        flow=reservation.flow,
        target=reservation.target,
        locks=[render_lock(lock) for lock in reservation.locks],
        pools=reservation.demand,
        has_client=reservation.has_client,
        actor=reservation.actor,
        created_at=reservation.created_at,
        started_at=reservation.started_at,
        finished_at=reservation.finished_at,
        exit_code=reservation.exit_code,
        reason=reservation.reason,
        pid=reservation.pid if reservation.finished_at is None else None,
        worker=reservation.worker,
        wait=None if wait is None else render_wait(wait),
        explanation=None if wait is None else f"{wait.detail}{describe_blockers(reader, wait, reservation.locks)}",
        log_paths={stream: f"{directory}/{stream}.log" for stream in logs},
    )

"""Preparation of reservations, for `/api/reservations` and `POST /api/direct`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import NamedTuple

from rota.api.context import Context
from rota.api.page import parse_field
from rota.command import reservation as command
from rota.command.expand import blame_template
from rota.command.reservation import ReservationRequest, ReserveOutcome
from rota.duration import parse_duration
from rota.engine.transaction import Transaction


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
    context: Context, request: DirectExecutionRequest, *, has_client: bool
) -> PreparedReservation:
    """Return the operation for the engine. A caller that has carried it out starts the lease, because from then on the
    reservation needs a client."""
    wait = parse_field("wait", request.wait, parse_duration)
    context.control.check_config()  # a change of the file applies to every later request
    await context.control.check_hold_file()
    spec = request.spec
    if spec.template is not None:
        spec = await context.read(partial(command.expand_reservation, request=spec))
    reserve = partial(
        command.reserve, request=spec, default_environment=context.default_environment, actor=context.actor
    )

    def operation(tx: Transaction) -> ReserveOutcome:
        with blame_template(request):
            return reserve(tx, has_client=has_client)

    return PreparedReservation(operation, wait)

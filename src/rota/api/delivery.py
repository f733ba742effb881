"""Deliveries over HTTP: what was sent to whom, and what became of it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Annotated

import msgspec
from msgspec import Meta

from rota.api.endpoint import Call, Endpoint, Nothing, Reply
from rota.api.example import SUBMITTED
from rota.api.once import carry_out
from rota.api.page import PageSize, begins_at, parsed
from rota.command import webhook as command
from rota.core.webhook import DeliveryState
from rota.engine.work import Work
from rota.errors import InvalidInput
from rota.ids import DeliveryId, parse_delivery, parse_job, parse_webhook
from rota.view import webhook as view
from rota.wire.text import DeliveryText, JobText, WebhookText
from rota.wire.webhook import DeliveriesForm, DeliveryForm, MessageForm, TryForm

State = Annotated[str, Meta(extra_json_schema={"enum": [state.value for state in DeliveryState]})]


class DeliveriesQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    job: JobText | None = None
    """Only what tells of this job."""
    webhook: WebhookText | None = None
    """Only what goes to this endpoint."""
    state: State | None = None
    """Only those in this state."""
    limit: PageSize = 100
    cursor: DeliveryText | None = None


async def list_deliveries(call: Call[DeliveriesQuery, None]) -> Reply[DeliveriesForm]:
    """List deliveries, the newest first. What is sent is said where one is looked at alone."""
    query = call.query
    look = partial(
        view.deliveries, job=parsed("job", query.job, parse_job), state=parsed("state", query.state, _state),
        webhook=parsed("webhook", query.webhook, parse_webhook), limit=query.limit,
        below=begins_at(query.cursor, parse_delivery, view.TOP),
    )  # fmt: skip
    return Reply(await call.context.look(look))


def _state(text: str) -> DeliveryState:
    try:
        return DeliveryState(text.upper())
    except ValueError:
        raise InvalidInput(f"unknown state {text}; the states are {', '.join(DeliveryState)}") from None


async def get_delivery(call: Call[Nothing, None]) -> Reply[MessageForm]:
    """Show a delivery, with what is sent."""
    delivery = call.place("delivery", parse_delivery)
    return Reply(await call.context.look(partial(view.delivery, number=delivery)))


async def redeliver(call: Call[Nothing, None]) -> Reply[MessageForm]:
    """Send a delivery again, with the id that it had. One that is still to be sent by itself is refused."""
    delivery, actor = call.place("delivery", parse_delivery), call.context.actor

    def act(work: Work) -> DeliveryId:
        command.redeliver(work, delivery, actor=actor)
        return delivery

    return (await carry_out(call, act, _see, Reply)).reply


def _see(work: Work, results: Sequence[DeliveryId]) -> list[MessageForm]:
    return [view.delivery(work.session, delivery) for delivery in results]


_TRY = TryForm(at=SUBMITTED, seconds=0.042, status=204, error=None)
_SHOWN = DeliveryForm(
    id="delivery-7",
    message="msg_2f9d1c4e8a7b4d06",
    webhook="webhook-1",
    url="https://example.org/hooks/rota",
    type="job.completed",
    job="job-21",
    run="run-21",
    group=None,
    state=DeliveryState.DELIVERED,
    created_at=SUBMITTED,
    next_at=None,
    finished_at=SUBMITTED + timedelta(milliseconds=42),
    reason=None,
    tries=[_TRY],
)
_PAYLOAD = {"type": "job.completed", "timestamp": "2026-11-16T08:20:00Z", "data": {"job": {}, "run": {}}}
_WHOLE = {**msgspec.to_builtins(_SHOWN), "payload": _PAYLOAD}
_AGAIN = {**_WHOLE, "state": "PENDING", "next_at": "2026-11-16T09:00:00Z", "finished_at": None}

_ONE = "/api/webhook-deliveries/{delivery}"
ENDPOINTS = [
    Endpoint(
        "GET", "/api/webhook-deliveries", list_deliveries, shows=DeliveriesForm(deliveries=[_SHOWN], next=None)
    ),
    Endpoint("GET", _ONE, get_delivery, shows=_WHOLE),
    Endpoint("POST", f"{_ONE}/redeliver", redeliver, refuses=(409,), is_keyed=True, shows=_AGAIN),
]  # fmt: skip

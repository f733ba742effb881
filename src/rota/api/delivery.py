"""Webhook deliveries over HTTP: messages, receivers and attempts."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Annotated

import msgspec
from msgspec import Meta

from rota.api.endpoint import Endpoint, Invocation, JsonReply, NoQuery
from rota.api.example import SUBMITTED_AT
from rota.api.idempotent_call import run_call
from rota.api.page import PageSize, parse_cursor, parse_field
from rota.command import webhook as command
from rota.core.webhook import DeliveryState
from rota.engine.transaction import Transaction
from rota.errors import InvalidInput
from rota.ids import DeliveryId, parse_delivery_id, parse_job_id, parse_webhook_id
from rota.view import webhook as view
from rota.wire.schema_types import DeliveryIdText, JobIdText, WebhookIdText
from rota.wire.webhook import DeliveryAttemptView, DeliveryDetail, DeliveryPage, DeliveryView

DeliveryStateName = Annotated[str, Meta(extra_json_schema={"enum": [state.value for state in DeliveryState]})]


class DeliveriesQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    job: JobIdText | None = None
    """Only messages about this job."""
    webhook: WebhookIdText | None = None
    """Only messages to this endpoint."""
    state: DeliveryStateName | None = None
    """Only deliveries in this state."""
    limit: PageSize = 100
    cursor: DeliveryIdText | None = None


async def list_deliveries(call: Invocation[DeliveriesQuery, None]) -> JsonReply[DeliveryPage]:
    """List deliveries, newest first. The list does not have the payloads."""
    query = call.query
    read_page = partial(
        view.list_deliveries,
        job=parse_field("job", query.job, parse_job_id),
        state=parse_field("state", query.state, _parse_state),
        webhook=parse_field("webhook", query.webhook, parse_webhook_id),
        limit=query.limit,
        before_id=parse_cursor(query.cursor, parse_delivery_id, view.MAX_DELIVERY_ID),
    )
    return JsonReply(await call.context.read(read_page))


def _parse_state(text: str) -> DeliveryState:
    try:
        return DeliveryState(text.upper())
    except ValueError:
        raise InvalidInput(f"unknown state {text}; the states are {', '.join(DeliveryState)}") from None


async def get_delivery(call: Invocation[NoQuery, None]) -> JsonReply[DeliveryDetail]:
    """Show a delivery with its payload."""
    delivery = call.path_parameter("delivery", parse_delivery_id)
    return JsonReply(await call.context.read(partial(view.show_delivery, delivery=delivery)))


async def redeliver(call: Invocation[NoQuery, None]) -> JsonReply[DeliveryDetail]:
    """Send a delivery again, with the same message id. A delivery that is still pending is refused."""
    delivery, actor = call.path_parameter("delivery", parse_delivery_id), call.context.actor

    def operation(tx: Transaction) -> DeliveryId:
        command.redeliver(tx, delivery, actor=actor)
        return delivery

    return (await run_call(call, operation, _render, JsonReply)).reply


def _render(tx: Transaction, results: Sequence[DeliveryId]) -> list[DeliveryDetail]:
    return [view.show_delivery(tx, delivery) for delivery in results]


_ATTEMPT = DeliveryAttemptView(at=SUBMITTED_AT, seconds=0.042, status=204, error=None)
_EXAMPLE = DeliveryView(
    id="delivery-7",
    message="msg_2f9d1c4e8a7b4d06",
    webhook="webhook-1",
    url="https://example.org/hooks/rota",
    type="job.completed",
    job="job-21",
    run="run-21",
    group=None,
    state=DeliveryState.DELIVERED,
    created_at=SUBMITTED_AT,
    next_at=None,
    finished_at=SUBMITTED_AT + timedelta(milliseconds=42),
    reason=None,
    attempts=[_ATTEMPT],
)
_PAYLOAD = {"type": "job.completed", "timestamp": "2026-11-16T08:20:00Z", "data": {"job": {}, "run": {}}}
_EXAMPLE_WITH_PAYLOAD = {**msgspec.to_builtins(_EXAMPLE), "payload": _PAYLOAD}
_RESENT_EXAMPLE = {**_EXAMPLE_WITH_PAYLOAD, "state": "PENDING", "next_at": "2026-11-16T09:00:00Z", "finished_at": None}

_PATH = "/api/webhook-deliveries/{delivery}"
ENDPOINTS = [
    Endpoint(
        "GET",
        "/api/webhook-deliveries",
        list_deliveries,
        response_example=DeliveryPage(deliveries=[_EXAMPLE], next=None),
    ),
    Endpoint("GET", _PATH, get_delivery, response_example=_EXAMPLE_WITH_PAYLOAD),
    Endpoint(
        "POST", f"{_PATH}/redeliver", redeliver, errors=(409,), accepts_key=True, response_example=_RESENT_EXAMPLE
    ),
]

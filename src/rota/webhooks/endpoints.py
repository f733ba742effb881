"""Webhooks and their deliveries over HTTP. A webhook receives messages about the ends of jobs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Annotated

import msgspec
from msgspec import Meta

from rota.db.session import Reader
from rota.engine.outbox import ensure_job_secret, make_message_id
from rota.engine.transaction import Transaction
from rota.errors import InvalidInput
from rota.http.endpoint import Endpoint, Invocation, JsonReply, NoQuery, PageSize, parse_cursor, parse_field
from rota.http.idempotency import run_call, run_external_call
from rota.ids import DeliveryId, WebhookId, format_webhook_id, parse_delivery_id, parse_job_id, parse_webhook_id
from rota.jobs.examples import SUBMITTED_AT
from rota.schema_types import DeliveryIdText, JobIdText, WebhookIdText, encode
from rota.webhooks import commands, queries
from rota.webhooks.commands import RotationRequest, WebhookRequest, refuse_unresolvable_host
from rota.webhooks.model import DEFAULT_MESSAGES, TEST_MESSAGE, DeliveryState, Webhook
from rota.webhooks.schemas import (
    DeliveryAttemptView,
    DeliveryDetail,
    DeliveryPage,
    DeliveryView,
    WebhookPage,
    WebhookSecret,
    WebhookTestResult,
    WebhookView,
    render_attempt,
)

DeliveryStateName = Annotated[str, Meta(extra_json_schema={"enum": [state.value for state in DeliveryState]})]


async def add_webhook(call: Invocation[NoQuery, WebhookRequest]) -> JsonReply[WebhookView]:
    """Add a webhook. The response has its signing secret. A repeated request with the same `Idempotency-Key` gets the
    same secret."""
    context, request = call.context, call.body
    context.control.check_config()
    await refuse_unresolvable_host(request.url, context.control.settings.webhooks)

    def make_reply(webhook: WebhookView) -> JsonReply[WebhookView]:
        # The secret is stored with the response. This reveals it to no other reader: the store has it in the webhook
        # as well, and a client with the key has received it before. Without it, a repeated request would be useless.
        return JsonReply(webhook, 201)

    operation = partial(commands.add_webhook, request=request, actor=context.actor)
    return (await run_call(call, operation, _reveal_webhooks, make_reply)).reply


def _render_webhooks(tx: Transaction, results: Sequence[Webhook]) -> list[WebhookView]:
    return [queries.show_webhook(tx, webhook, tx.now) for webhook in results]


def _reveal_webhooks(tx: Transaction, results: Sequence[Webhook]) -> list[WebhookView]:
    return [queries.show_webhook(tx, webhook, tx.now, reveal=True) for webhook in results]


class WebhooksQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    limit: PageSize = 100
    cursor: WebhookIdText | None = None


async def list_webhooks(call: Invocation[WebhooksQuery, None]) -> JsonReply[WebhookPage]:
    """List webhooks, oldest first."""
    after = parse_cursor(call.query.cursor, parse_webhook_id, WebhookId(0))
    read_page = partial(queries.list_webhooks, now=call.context.clock.now(), after=after, limit=call.query.limit)
    return JsonReply(await call.context.read(read_page))


class WebhookQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    secret: bool = False
    """Include the signing secret."""


async def get_webhook(call: Invocation[WebhookQuery, None]) -> JsonReply[WebhookView]:
    """Show a webhook."""
    webhook, now, reveal = call.path_parameter("webhook", parse_webhook_id), call.context.clock.now(), call.query.secret

    def show(reader: Reader) -> WebhookView:
        return queries.show_webhook(reader, queries.find_webhook(reader, webhook), now, reveal=reveal)

    return JsonReply(await call.context.read(show))


async def remove_webhook(call: Invocation[NoQuery, None]) -> JsonReply[WebhookView]:
    """Remove a webhook, and return it. Its pending messages fail."""
    return await _update(call, commands.remove_webhook)


async def enable_webhook(call: Invocation[NoQuery, None]) -> JsonReply[WebhookView]:
    """Enable a webhook. Its failures are cleared, and it is not held."""
    return await _update(call, commands.enable_webhook)


async def disable_webhook(call: Invocation[NoQuery, None]) -> JsonReply[WebhookView]:
    """Disable a webhook. Its pending messages fail, and it gets no messages until it is enabled again."""
    return await _update(call, commands.disable_webhook)


async def _update(call: Invocation[NoQuery, None], operation: Callable[..., Webhook]) -> JsonReply[WebhookView]:
    operation = partial(operation, webhook=call.path_parameter("webhook", parse_webhook_id), actor=call.context.actor)
    return JsonReply(await call.context.run_and_render(operation, _render_webhooks))


async def rotate_webhook(call: Invocation[NoQuery, RotationRequest | None]) -> JsonReply[WebhookView]:
    """Replace the signing secret of a webhook, and return the new one. For a while, the old secret signs messages
    too."""
    request = RotationRequest() if call.body is None else call.body
    operation = partial(
        commands.rotate_secret,
        webhook=call.path_parameter("webhook", parse_webhook_id),
        request=request,
        actor=call.context.actor,
    )
    return (await run_call(call, operation, _reveal_webhooks, JsonReply)).reply


async def test_webhook(call: Invocation[NoQuery, None]) -> JsonReply[WebhookTestResult]:
    """Send a test message to a webhook. It is sent once and immediately, even if the webhook is disabled or held,
    and is not listed as a delivery. The response is sent when the receiver has answered."""
    context, webhook = call.context, call.path_parameter("webhook", parse_webhook_id)

    async def send() -> JsonReply[WebhookTestResult]:
        context.control.check_config()
        record = await context.read(partial(queries.find_webhook, webhook=webhook))
        now, name = context.clock.now(), format_webhook_id(webhook)
        message = encode({"type": TEST_MESSAGE, "timestamp": now, "data": {"webhook": name}})
        attempt = await context.sender.send(record.url, make_message_id(), message, record.secrets(now))
        fields = msgspec.structs.asdict(render_attempt(attempt))
        return JsonReply(WebhookTestResult(webhook=name, delivered=attempt.is_success, **fields))

    return await run_external_call(call, send)


async def get_webhook_secret(call: Invocation[NoQuery, None]) -> JsonReply[WebhookSecret]:
    """Show the signing secret of messages to URLs that jobs name."""
    return JsonReply(WebhookSecret(secret=await call.context.run_in_turn(ensure_job_secret)))


class DeliveriesQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    job: JobIdText | None = None
    """Only messages about this job."""
    webhook: WebhookIdText | None = None
    """Only messages to this webhook."""
    state: DeliveryStateName | None = None
    """Only deliveries in this state."""
    limit: PageSize = 100
    cursor: DeliveryIdText | None = None


async def list_deliveries(call: Invocation[DeliveriesQuery, None]) -> JsonReply[DeliveryPage]:
    """List deliveries, newest first. The list does not have the payloads."""
    query = call.query
    read_page = partial(
        queries.list_deliveries,
        job=parse_field("job", query.job, parse_job_id),
        state=parse_field("state", query.state, _parse_state),
        webhook=parse_field("webhook", query.webhook, parse_webhook_id),
        limit=query.limit,
        before_id=parse_cursor(query.cursor, parse_delivery_id, queries.MAX_DELIVERY_ID),
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
    return JsonReply(await call.context.read(partial(queries.show_delivery, delivery=delivery)))


async def redeliver(call: Invocation[NoQuery, None]) -> JsonReply[DeliveryDetail]:
    """Send a delivery again, with the same message id. A delivery that is still pending is refused."""
    delivery, actor = call.path_parameter("delivery", parse_delivery_id), call.context.actor

    def operation(tx: Transaction) -> DeliveryId:
        commands.redeliver(tx, delivery, actor=actor)
        return delivery

    return (await run_call(call, operation, _render_deliveries, JsonReply)).reply


def _render_deliveries(tx: Transaction, results: Sequence[DeliveryId]) -> list[DeliveryDetail]:
    return [queries.show_delivery(tx, delivery) for delivery in results]


_SECRET_EXAMPLE = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"  # noqa: S105 - an example
_WEBHOOK_EXAMPLE = WebhookView(
    id="webhook-1",
    url="https://example.org/hooks/rota",
    events=list(DEFAULT_MESSAGES),
    state="enabled",
    created_at=SUBMITTED_AT,
    disabled_at=None,
    disabled_reason=None,
    unreadable=None,
    failures=0,
    held_until=None,
    old_secret_until=None,
    pending=0,
)
_DISABLED_EXAMPLE = msgspec.structs.replace(
    _WEBHOOK_EXAMPLE,
    state="disabled",
    disabled_at=SUBMITTED_AT + timedelta(minutes=4),
    disabled_reason="disabled by rota",
)
_ROTATED_EXAMPLE = msgspec.structs.replace(
    _WEBHOOK_EXAMPLE, old_secret_until=SUBMITTED_AT + timedelta(days=1), secret=_SECRET_EXAMPLE
)
_ADDED_EXAMPLE = {**msgspec.to_builtins(_WEBHOOK_EXAMPLE), "secret": _SECRET_EXAMPLE}
_TEST_EXAMPLE = WebhookTestResult(
    webhook="webhook-1", delivered=True, at=SUBMITTED_AT, seconds=0.042, status=204, error=None
)
_WEBHOOK_PATH = "/api/webhooks/{webhook}"
_ATTEMPT_EXAMPLE = DeliveryAttemptView(at=SUBMITTED_AT, seconds=0.042, status=204, error=None)
_DELIVERY_EXAMPLE = DeliveryView(
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
    attempts=[_ATTEMPT_EXAMPLE],
)
_PAYLOAD_EXAMPLE = {"type": "job.completed", "timestamp": "2026-11-16T08:20:00Z", "data": {"job": {}, "run": {}}}
_DELIVERY_DETAIL_EXAMPLE = {**msgspec.to_builtins(_DELIVERY_EXAMPLE), "payload": _PAYLOAD_EXAMPLE}
_RESENT_EXAMPLE = {
    **_DELIVERY_DETAIL_EXAMPLE,
    "state": "PENDING",
    "next_at": "2026-11-16T09:00:00Z",
    "finished_at": None,
}
_DELIVERY_PATH = "/api/webhook-deliveries/{delivery}"

ENDPOINTS = [
    Endpoint(
        "POST",
        "/api/webhooks",
        add_webhook,
        statuses=(201,),
        errors=(409,),
        accepts_key=True,
        request_example={"url": "https://example.org/hooks/rota", "events": list(DEFAULT_MESSAGES)},
        response_example=_ADDED_EXAMPLE,
    ),
    Endpoint(
        "GET", "/api/webhooks", list_webhooks, response_example=WebhookPage(webhooks=[_WEBHOOK_EXAMPLE], next=None)
    ),
    Endpoint(
        "GET",
        "/api/webhooks/secret",
        get_webhook_secret,
        errors=(507,),
        response_example=WebhookSecret(secret=_SECRET_EXAMPLE),
    ),
    Endpoint("GET", _WEBHOOK_PATH, get_webhook, response_example=_WEBHOOK_EXAMPLE),
    Endpoint("DELETE", _WEBHOOK_PATH, remove_webhook, response_example=_WEBHOOK_EXAMPLE),
    Endpoint("POST", f"{_WEBHOOK_PATH}/enable", enable_webhook, response_example=_WEBHOOK_EXAMPLE),
    Endpoint("POST", f"{_WEBHOOK_PATH}/disable", disable_webhook, response_example=_DISABLED_EXAMPLE),
    Endpoint(
        "POST",
        f"{_WEBHOOK_PATH}/rotate",
        rotate_webhook,
        errors=(409,),
        accepts_key=True,
        request_example={"keep_old_for": "1d"},
        response_example=_ROTATED_EXAMPLE,
    ),
    Endpoint("POST", f"{_WEBHOOK_PATH}/test", test_webhook, accepts_key=True, response_example=_TEST_EXAMPLE),
    Endpoint(
        "GET",
        "/api/webhook-deliveries",
        list_deliveries,
        response_example=DeliveryPage(deliveries=[_DELIVERY_EXAMPLE], next=None),
    ),
    Endpoint("GET", _DELIVERY_PATH, get_delivery, response_example=_DELIVERY_DETAIL_EXAMPLE),
    Endpoint(
        "POST",
        f"{_DELIVERY_PATH}/redeliver",
        redeliver,
        errors=(409,),
        accepts_key=True,
        response_example=_RESENT_EXAMPLE,
    ),
]

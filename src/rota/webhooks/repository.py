"""Storage of webhooks, of the messages to them and to the URLs of jobs, and of each delivery attempt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from rota.db.database import Database, Row
from rota.db.decoding import (
    RecordDecoder,
    delay_to_micros,
    duration_to_micros,
    from_micros,
    optional_from_micros,
    optional_to_micros,
    to_micros,
)
from rota.db.events import Events
from rota.db.ids import Ids
from rota.errors import NotFound
from rota.ids import DeliveryId, GroupId, JobId, RunId, WebhookId, format_delivery_id, format_webhook_id
from rota.kernel.events import Event
from rota.kernel.job import JobWebhook
from rota.webhooks.model import Delivery, DeliveryAttempt, DeliveryState, Webhook

SECRET_KEY = "webhook_secret"  # noqa: S105 - a key, not a secret
"""Key in `meta` of the secret that signs the messages to the URLs of jobs."""
CAUSE = "webhook"
NO_LIMIT = 2**62
_encode = msgspec.json.encode


class OutgoingMessage(msgspec.Struct, frozen=True, kw_only=True):
    """Message to store as a delivery."""

    message: str
    webhook: WebhookId | None
    receiver: str
    url: str
    kind: str
    job: JobId | None
    run: RunId | None
    group: GroupId | None
    payload: str


class WebhookRecords:
    def __init__(self, database: Database) -> None:
        self._db = database

    def list_all(self, *, after: int = 0, limit: int = NO_LIMIT) -> list[Webhook]:
        """Return the webhooks after `after`, by id."""
        return [_webhook_from_row(row) for row in self._db.rows("webhooks", after=after, limit=limit)]

    def find(self, webhook: WebhookId) -> Webhook | None:
        return next((record for record in self.list_all() if record.id == webhook), None)

    def not_found(self, webhook: WebhookId) -> NotFound:
        return NotFound(f"no such webhook: {format_webhook_id(webhook)}; `rota webhook list` lists all webhooks")

    def has_job_urls(self) -> bool:
        """Return whether any job has a webhook URL."""
        return bool(self._db.rows("find_job_webhook"))

    def of_jobs(self, jobs: Sequence[JobId]) -> dict[JobId, JobWebhook]:
        """Return the webhooks of the jobs that have one."""
        rows = self._db.rows("job_webhooks", ids=list(jobs)) if jobs else []
        return {JobId(job): hook for job, text in rows if (hook := _decode_job_webhook(text)) is not None}

    def pending_receivers(self) -> list[str]:
        """Return the receivers with pending deliveries."""
        return [str(row[0]) for row in self._db.rows("pending_receivers")]

    def pending_attempt_counts(self, receiver: str) -> list[int]:
        """Return the distinct attempt counts of the pending deliveries of a receiver, highest first."""
        return [int(row[0]) for row in self._db.rows("pending_attempt_counts", receiver=receiver)]

    def pending_deliveries(self, receiver: str, attempts: int, limit: int) -> list[tuple[DeliveryId, datetime]]:
        """Return the pending deliveries with this number of attempts, each with its due time, earliest first."""
        rows = self._db.rows("pending_deliveries", receiver=receiver, attempts=attempts, limit=limit)
        return [(DeliveryId(number), from_micros(next_at)) for number, next_at in rows]

    def count_pending_by_receiver(self) -> dict[str, int]:
        """Return the number of pending deliveries of each receiver."""
        return {str(receiver): int(count) for receiver, count in self._db.rows("count_pending_by_receiver")}

    def count_pending(self, receiver: str) -> int:
        ((count,),) = self._db.rows("count_pending", receiver=receiver)
        return int(count)

    def find_delivery(self, delivery: DeliveryId) -> Delivery | None:
        return next(map(_delivery_from_row, self._db.rows("deliveries", ids=[delivery])), None)

    def list_deliveries(
        self, *, job: JobId | None, webhook: WebhookId | None, state: DeliveryState | None, before_id: int, limit: int
    ) -> list[Delivery]:
        """Return the deliveries that match, newest first."""
        values: dict[str, Any] = {
            "before_id": before_id,
            "limit": limit,
            "state": None if state is None else state.value,
        }
        if job is not None:
            return [*map(_delivery_from_row, self._db.rows("deliveries_of_job", job=job, webhook=webhook, **values))]
        if webhook is not None:
            return [*map(_delivery_from_row, self._db.rows("deliveries_of_webhook", webhook=webhook, **values))]
        return [*map(_delivery_from_row, self._db.rows("latest_deliveries", **values))]

    def delivery_not_found(self, delivery: DeliveryId) -> NotFound:
        return NotFound(
            f"no such delivery: {format_delivery_id(delivery)}; `rota webhook deliveries` lists all deliveries"
        )

    def payload(self, delivery: DeliveryId) -> str:
        return str(self._db.rows("payload_of", id=delivery)[0][0])

    def attempts_of(self, ids: Sequence[DeliveryId]) -> Mapping[DeliveryId, list[DeliveryAttempt]]:
        attempts: dict[DeliveryId, list[DeliveryAttempt]] = {}
        for delivery, _number, at, duration, status, error in (
            self._db.rows("attempts_of", ids=list(ids)) if ids else ()
        ):
            attempt = DeliveryAttempt(
                at=from_micros(at), duration=from_micros(duration) - from_micros(0), status=status, error=error
            )
            attempts.setdefault(DeliveryId(delivery), []).append(attempt)
        return attempts

    def old_deliveries(self, until: datetime, limit: int) -> list[DeliveryId]:
        """Return up to `limit` deliveries that ended before `until`."""
        return [DeliveryId(row[0]) for row in self._db.rows("old_deliveries", until=to_micros(until), limit=limit)]

    def stale_deliveries(self, until: datetime) -> list[DeliveryId]:
        """Return the pending deliveries that were due before `until` and have not been attempted since."""
        return [DeliveryId(row[0]) for row in self._db.rows("stale_deliveries", until=to_micros(until))]


class Webhooks(WebhookRecords):
    def __init__(self, database: Database, ids: Ids, events: Events) -> None:
        super().__init__(database)
        self._ids = ids
        self._events = events

    def add(self, url: str, events: Sequence[str], secret: str, *, now: datetime, actor: str | None) -> WebhookId:
        webhook = WebhookId(self._ids.allocate("webhook", 1))
        self._db.run(
            "add_webhook", id=webhook, url=url, events=_encode(events).decode(), secret=secret, now=to_micros(now)
        )
        self._emit("created", webhook, now, actor=actor, data={"events": list(events)})
        return webhook

    def enable(self, webhook: WebhookId, *, now: datetime, actor: str | None) -> None:
        self._db.run("enable_webhook", id=webhook)
        self._emit("enabled", webhook, now, actor=actor)

    def disable(self, webhook: WebhookId, reason: str, *, now: datetime, actor: str | None) -> None:
        """Disable a webhook. Its pending deliveries fail with this reason."""
        if self._db.run("disable_webhook", id=webhook, now=to_micros(now), reason=reason):
            failed = self._abandon_deliveries(webhook, reason, now)
            self._emit("disabled", webhook, now, actor=actor, data={"reason": reason, "failed": failed})

    def remove(self, webhook: WebhookId, *, now: datetime, actor: str | None) -> None:
        failed = self._abandon_deliveries(webhook, "the endpoint was removed", now)
        self._db.run("remove_webhook", id=webhook)
        self._ids.retire("webhook", webhook)
        self._emit("removed", webhook, now, actor=actor, data={"failed": failed})

    def rotate(
        self, webhook: WebhookId, secret: str, until: datetime | None, *, now: datetime, actor: str | None
    ) -> None:
        """Set a new secret. The old one signs as well until `until`."""
        self._db.run(
            "rotate_webhook",
            id=webhook,
            secret=secret,
            until=optional_to_micros(until),
            duration=delay_to_micros(until, now),
        )
        self._emit("rotated", webhook, now, actor=actor)

    def hold(self, webhook: WebhookId, failures: int, until: datetime | None, *, now: datetime) -> None:
        self._db.run(
            "hold_webhook",
            id=webhook,
            failures=failures,
            until=optional_to_micros(until),
            duration=delay_to_micros(until, now),
        )

    def emit_hold(self, webhook: WebhookId, kind: str, now: datetime, until: datetime | None) -> None:
        """Emit `webhook.held` or `webhook.released`."""
        self._emit(kind, webhook, now, data={} if until is None else {"until": until})

    def add_deliveries(self, messages: Sequence[OutgoingMessage], now: datetime) -> None:
        first, at = self._ids.allocate("delivery", len(messages)), to_micros(now)
        rows = [{**msgspec.structs.asdict(message), "id": first + n, "now": at} for n, message in enumerate(messages)]
        self._db.run_many("add_delivery", rows)

    def add_attempt(self, delivery: Delivery, attempt: DeliveryAttempt) -> None:
        number = delivery.attempts + 1
        self._db.run(
            "add_attempt",
            id=delivery.id,
            number=number,
            at=to_micros(attempt.at),
            duration=duration_to_micros(attempt.duration),
            status=attempt.status,
            error=attempt.error,
        )
        self._db.run("count_attempt", id=delivery.id, attempts=number)

    def end_delivery(self, delivery: Delivery, state: DeliveryState, reason: str | None, now: datetime) -> None:
        self._db.run("end_delivery", id=delivery.id, state=state.value, reason=reason, now=to_micros(now))
        if state is DeliveryState.FAILED:
            data = {"delivery": format_delivery_id(delivery.id), "type": delivery.kind, "reason": reason}
            self._emit("delivery_failed", delivery.webhook, now, data=data)

    def reschedule_delivery(
        self, delivery: DeliveryId, next_at: datetime, reason: str | None, *, now: datetime
    ) -> None:
        delay = delay_to_micros(next_at, now)
        self._db.run("reschedule_delivery", id=delivery, next_at=to_micros(next_at), delay=delay, reason=reason)

    def resend_delivery(self, delivery: DeliveryId, *, now: datetime, actor: str | None) -> bool:
        """Send an ended delivery again. Return false if it is still pending."""
        if not self._db.run("resend_delivery", id=delivery, now=to_micros(now)):
            return False
        self._emit("redelivered", None, now, actor=actor, data={"delivery": format_delivery_id(delivery)})
        return True

    def remove_deliveries(self, ids: Sequence[DeliveryId]) -> int:
        """Remove the deliveries among these that have ended."""
        ended = [row[0] for row in self._db.rows("ended_deliveries", ids=list(ids))]
        if not ended:
            return 0
        self._db.run("remove_attempts", ids=ended)
        self._ids.retire("delivery", max(ended))
        return self._db.run("remove_deliveries", ids=ended)

    def abandon_stale_deliveries(self, ids: Sequence[DeliveryId], until: datetime, reason: str, now: datetime) -> int:
        """Fail the pending deliveries among these that are still due before `until`."""
        values = {"until": to_micros(until), "reason": reason, "now": to_micros(now)}
        failed = self._db.run("abandon_stale_deliveries", ids=list(ids), **values)
        if failed:
            self._emit("abandoned", None, now, data={"reason": reason, "failed": failed})
        return failed

    def _abandon_deliveries(self, webhook: WebhookId, reason: str, now: datetime) -> int:
        return self._db.run(
            "abandon_deliveries", receiver=format_webhook_id(webhook), reason=reason, now=to_micros(now)
        )

    def _emit(
        self,
        kind: str,
        webhook: WebhookId | None,
        now: datetime,
        *,
        actor: str | None = None,
        data: Mapping[str, object] | None = None,
    ) -> None:
        """Emit an event of a webhook. Events contain neither URLs nor secrets."""
        subject = {} if webhook is None else {"webhook": format_webhook_id(webhook)}
        event = Event(
            kind=f"webhook.{kind}", at=to_micros(now), cause=CAUSE, actor=actor, data={**subject, **(data or {})}
        )
        self._events.emit(event)


def _webhook_from_row(row: Row) -> Webhook:
    decoder = RecordDecoder()
    return Webhook(
        id=WebhookId(row[0]),
        url=row[1],
        events=decoder.json("events", row[2], tuple[str, ...], ()),
        secret=row[3],
        old_secret=row[4],
        old_secret_until=optional_from_micros(row[5]),
        created_at=from_micros(row[6]),
        disabled_at=optional_from_micros(row[7]),
        disabled_reason=row[8],
        failures=row[9],
        held_until=optional_from_micros(row[10]),
        unreadable=decoder.error,
    )


def _decode_job_webhook(text: str) -> JobWebhook | None:
    """Return the webhook of a job, or None if it is unreadable: it must not block the others."""
    try:
        return msgspec.json.decode(text, type=JobWebhook)
    except msgspec.DecodeError:
        return None


def _delivery_from_row(row: Row) -> Delivery:
    """Return a delivery. If its state is unknown, it is pending if it has a next attempt, and failed otherwise."""
    decoder = RecordDecoder()
    state = decoder.delivery_state(row[9], DeliveryState.FAILED if row[13] is None else DeliveryState.PENDING)
    return Delivery(
        id=DeliveryId(row[0]),
        message_id=row[1],
        webhook=None if row[2] is None else WebhookId(row[2]),
        receiver=row[3],
        url=row[4],
        kind=row[5],
        job=None if row[6] is None else JobId(row[6]),
        run=None if row[7] is None else RunId(row[7]),
        group=None if row[8] is None else GroupId(row[8]),
        state=state,
        attempts=row[10],
        attempts_since_resend=row[11],
        created_at=from_micros(row[12]),
        next_at=optional_from_micros(row[13]),
        finished_at=optional_from_micros(row[14]),
        reason=decoder.error or row[15],
    )

"""Stores endpoints, messages to them and to the URLs that jobs name, and each try to bring one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from rota.core.event import Event
from rota.core.webhook import Delivery, DeliveryState, JobHook, Try, Webhook
from rota.errors import NotFound
from rota.ids import DeliveryId, GroupId, JobId, RunId, WebhookId, show_delivery, show_webhook
from rota.store.database import Database, Row
from rota.store.event import Emitting
from rota.store.moment import duration_to_stored, from_stored, maybe_from_stored, maybe_to_stored, to_stored

SECRET = "webhook_secret"  # noqa: S105 - where it is in `meta`
"""In `meta`: what messages to the URLs of jobs are signed with."""
CAUSE = "webhook"
ALL = 2**62

_encode = msgspec.json.encode


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """A message that is to be brought."""

    message: str
    webhook: WebhookId | None
    receiver: str
    url: str
    kind: str
    job: JobId | None
    run: RunId | None
    group: GroupId | None
    payload: str


class HookRecords:
    _db: Database

    def webhooks(self, *, after: int = 0, limit: int = ALL) -> list[Webhook]:
        """By number."""
        return [_webhook(row) for row in self._db.rows("webhooks", after=after, limit=limit)]

    def webhook(self, webhook: WebhookId) -> Webhook | None:
        return next((each for each in self.webhooks() if each.id == webhook), None)

    def no_such_webhook(self, webhook: WebhookId) -> NotFound:
        return NotFound(f"no such webhook: {show_webhook(webhook)}; `rota webhook list` shows those there are")

    def names_urls(self) -> bool:
        """Whether any job names a URL."""
        return bool(self._db.rows("any_hook"))

    def hooks_of(self, jobs: Sequence[JobId]) -> dict[JobId, JobHook]:
        """Of those that name URLs."""
        rows = self._db.rows("hooks_of", ids=list(jobs)) if jobs else []
        return {JobId(job): hook for job, text in rows if (hook := _hook(text)) is not None}

    def receivers(self) -> list[str]:
        """Those that anything is to be sent to."""
        return [str(row[0]) for row in self._db.rows("receivers")]

    def pending_tries(self, receiver: str) -> list[int]:
        """How often what is to be sent to it was tried: each number once, the highest first."""
        return [int(row[0]) for row in self._db.rows("pending_tries", receiver=receiver)]

    def pending_of(self, receiver: str, tried: int, limit: int) -> list[tuple[DeliveryId, datetime]]:
        """Of those that were tried so often, with when each is due, the first of them first."""
        rows = self._db.rows("pending_of", receiver=receiver, tried=tried, limit=limit)
        return [(DeliveryId(number), from_stored(next_at)) for number, next_at in rows]

    def count_pending(self) -> dict[str, int]:
        """By receiver."""
        return {str(receiver): int(count) for receiver, count in self._db.rows("count_pending")}

    def count_pending_of(self, receiver: str) -> int:
        ((count,),) = self._db.rows("count_pending_of", receiver=receiver)
        return int(count)

    def delivery(self, delivery: DeliveryId) -> Delivery | None:
        return next(map(_delivery, self._db.rows("deliveries", ids=[delivery])), None)

    def deliveries(
        self, *, job: JobId | None, webhook: WebhookId | None, state: DeliveryState | None, below: int, limit: int
    ) -> list[Delivery]:
        """The newest first."""
        values: dict[str, Any] = {"below": below, "limit": limit, "state": None if state is None else state.value}
        if job is not None:
            return [*map(_delivery, self._db.rows("deliveries_of_job", job=job, webhook=webhook, **values))]
        if webhook is not None:
            return [*map(_delivery, self._db.rows("deliveries_of_webhook", webhook=webhook, **values))]
        return [*map(_delivery, self._db.rows("latest_deliveries", **values))]

    def no_such_delivery(self, delivery: DeliveryId) -> NotFound:
        return NotFound(f"no such delivery: {show_delivery(delivery)}; `rota webhook deliveries` shows those there are")

    def payload(self, delivery: DeliveryId) -> str:
        return str(self._db.rows("payload_of", id=delivery)[0][0])

    def tries_of(self, ids: Sequence[DeliveryId]) -> Mapping[DeliveryId, list[Try]]:
        found: dict[DeliveryId, list[Try]] = {}
        for delivery, _number, at, duration, status, error in self._db.rows("tries_of", ids=list(ids)) if ids else ():
            done = Try(at=from_stored(at), duration=from_stored(duration) - from_stored(0), status=status, error=error)
            found.setdefault(DeliveryId(delivery), []).append(done)
        return found

    def old_deliveries(self, until: datetime, limit: int) -> list[DeliveryId]:
        """Some that ended before that."""
        return [DeliveryId(row[0]) for row in self._db.rows("old_deliveries", until=to_stored(until), limit=limit)]

    def stale_deliveries(self, until: datetime) -> list[DeliveryId]:
        """Those that are still to be sent and were due before that: made or sent again by hand before, and not tried
        since."""
        return [DeliveryId(row[0]) for row in self._db.rows("stale_deliveries", until=to_stored(until))]


class Telling(Emitting, HookRecords):
    def add_webhook(
        self, url: str, events: Sequence[str], secret: str, *, now: datetime, actor: str | None
    ) -> WebhookId:
        webhook = WebhookId(self.take("webhook", 1))
        self._db.run(
            "add_webhook", id=webhook, url=url, events=_encode(events).decode(), secret=secret, now=to_stored(now)
        )
        self._tell_of("created", webhook, now, actor=actor, data={"events": list(events)})
        return webhook

    def enable_webhook(self, webhook: WebhookId, *, now: datetime, actor: str | None) -> None:
        self._db.run("enable_webhook", id=webhook)
        self._tell_of("enabled", webhook, now, actor=actor)

    def disable_webhook(self, webhook: WebhookId, reason: str, *, now: datetime, actor: str | None) -> None:
        """What is still to be sent to it fails for that reason."""
        if self._db.run("disable_webhook", id=webhook, now=to_stored(now), reason=reason):
            failed = self._give_up(webhook, reason, now)
            self._tell_of("disabled", webhook, now, actor=actor, data={"reason": reason, "failed": failed})

    def remove_webhook(self, webhook: WebhookId, *, now: datetime, actor: str | None) -> None:
        failed = self._give_up(webhook, "the endpoint was removed", now)
        self._db.run("remove_webhook", id=webhook)
        self.spend("webhook", webhook)
        self._tell_of("removed", webhook, now, actor=actor, data={"failed": failed})

    def rotate_webhook(
        self, webhook: WebhookId, secret: str, until: datetime | None, *, now: datetime, actor: str | None
    ) -> None:
        """The secret until now signs on beside the new one, until then."""
        self._db.run("rotate_webhook", id=webhook, secret=secret, until=maybe_to_stored(until))
        self._tell_of("rotated", webhook, now, actor=actor)

    def hold_webhook(self, webhook: WebhookId, failures: int, until: datetime | None) -> None:
        self._db.run("hold_webhook", id=webhook, failures=failures, until=maybe_to_stored(until))

    def announce_hold(self, webhook: WebhookId, what: str, now: datetime, until: datetime | None) -> None:
        """That it is `held`, or `freed`."""
        self._tell_of(what, webhook, now, data={} if until is None else {"until": until})

    def add_deliveries(self, messages: Sequence[Message], now: datetime) -> None:
        first, at = self.take("delivery", len(messages)), to_stored(now)
        rows = [
            {**msgspec.structs.asdict(each), "id": first + number, "now": at} for number, each in enumerate(messages)
        ]
        self._db.run_many("add_delivery", rows)

    def add_try(self, delivery: Delivery, done: Try) -> None:
        number = delivery.tries + 1
        self._db.run(
            "add_try", id=delivery.id, number=number, at=to_stored(done.at),
            duration=duration_to_stored(done.duration), status=done.status, error=done.error,
        )  # fmt: skip
        self._db.run("count_try", id=delivery.id, tries=number)

    def end_delivery(self, delivery: Delivery, state: DeliveryState, reason: str | None, now: datetime) -> None:
        self._db.run("end_delivery", id=delivery.id, state=state.value, reason=reason, now=to_stored(now))
        if state is DeliveryState.FAILED:
            told = {"delivery": show_delivery(delivery.id), "type": delivery.kind, "reason": reason}
            self._tell_of("delivery_failed", delivery.webhook, now, data=told)

    def put_off_delivery(self, delivery: DeliveryId, next_at: datetime, reason: str | None) -> None:
        self._db.run("put_off_delivery", id=delivery, next_at=to_stored(next_at), reason=reason)

    def send_again(self, delivery: DeliveryId, *, now: datetime, actor: str | None) -> bool:
        """False while it is still to be sent."""
        if not self._db.run("send_again", id=delivery, now=to_stored(now)):
            return False
        self._tell_of("redelivered", None, now, actor=actor, data={"delivery": show_delivery(delivery)})
        return True

    def remove_deliveries(self, ids: Sequence[DeliveryId]) -> int:
        """Those that have ended."""
        ended = [row[0] for row in self._db.rows("ended_deliveries", ids=list(ids))]
        if not ended:
            return 0
        self._db.run("remove_tries", ids=ended)
        self.spend("delivery", max(ended))
        return self._db.run("remove_deliveries", ids=ended)

    def give_up_stale(self, ids: Sequence[DeliveryId], until: datetime, reason: str, now: datetime) -> int:
        """Those of them that were due before that, still."""
        values = {"until": to_stored(until), "reason": reason, "now": to_stored(now)}
        failed = self._db.run("give_up_stale", ids=list(ids), **values)
        if failed:
            self._tell_of("given_up", None, now, data={"reason": reason, "failed": failed})
        return failed

    def _give_up(self, webhook: WebhookId, reason: str, now: datetime) -> int:
        return self._db.run(
            "give_up_deliveries", receiver=show_webhook(webhook), reason=reason, now=to_stored(now)
        )  # fmt: skip

    def _tell_of(
        self, what: str, webhook: WebhookId | None, now: datetime, *, actor: str | None = None,
        data: Mapping[str, object] | None = None,
    ) -> None:  # fmt: skip
        """Neither URLs nor secrets are in events."""
        named = {} if webhook is None else {"webhook": show_webhook(webhook)}
        event = Event(
            kind=f"webhook.{what}", at=to_stored(now), cause=CAUSE, actor=actor, data={**named, **(data or {})}
        )
        self.emit(event)


def _webhook(row: Row) -> Webhook:
    return Webhook(
        id=WebhookId(row[0]),
        url=row[1],
        events=_events(row[2]),
        secret=row[3],
        old_secret=row[4],
        old_secret_until=maybe_from_stored(row[5]),
        created_at=from_stored(row[6]),
        disabled_at=maybe_from_stored(row[7]),
        disabled_reason=row[8],
        failures=row[9],
        held_until=maybe_from_stored(row[10]),
    )


def _events(text: str) -> tuple[str, ...]:
    """What cannot be read asks for nothing: it must not keep the scheduler from starting."""
    try:
        return msgspec.json.decode(text, type=tuple[str, ...])
    except msgspec.DecodeError:
        return ()


def _hook(text: str) -> JobHook | None:
    """One that cannot be read tells nobody: it must not hold up the others."""
    try:
        return msgspec.json.decode(text, type=JobHook)
    except msgspec.DecodeError:
        return None


def _delivery(row: Row) -> Delivery:
    return Delivery(
        id=DeliveryId(row[0]),
        message=row[1],
        webhook=None if row[2] is None else WebhookId(row[2]),
        receiver=row[3],
        url=row[4],
        kind=row[5],
        job=None if row[6] is None else JobId(row[6]),
        run=None if row[7] is None else RunId(row[7]),
        group=None if row[8] is None else GroupId(row[8]),
        state=DeliveryState(row[9]),
        tries=row[10],
        tried=row[11],
        created_at=from_stored(row[12]),
        next_at=maybe_from_stored(row[13]),
        finished_at=maybe_from_stored(row[14]),
        reason=row[15],
    )

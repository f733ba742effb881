"""The webhook sender: posts messages to their receivers, as a task on the event loop.

The sender reads the due messages, sends a few per receiver and a bounded number in total (`webhooks/model.py`),
and sleeps until the next one is due or it is woken. It does not poll, and is idle when there is nothing to send. A turn
of the engine records each attempt.

- A receiver that hangs takes no delivery slot from receivers that accept messages.
- The order of messages to a receiver is not guaranteed.
- At shutdown, attempts in flight are cancelled without a record, and repeated at the next start.
- After an error while reading or recording, the sender logs it once and retries.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence, Set
from datetime import datetime, timedelta
from functools import partial

import msgspec

from rota.clock import Clock
from rota.db.database import FatalStoreError
from rota.db.session import Reader
from rota.engine.calls import ReadStore, RunInTurnAsync
from rota.engine.outbox import record_attempt
from rota.errors import RotaError, ServiceUnavailable, StoreUnavailable
from rota.ids import DeliveryId, format_delivery_id, format_webhook_id
from rota.webhooks.http_post import MessagePoster, PostResult
from rota.webhooks.model import (
    MAX_CONCURRENT,
    MAX_FIRST_ATTEMPTS,
    Delivery,
    DeliveryAttempt,
    DeliverySlots,
    ReceiverHealth,
    WebhookPolicy,
)
from rota.webhooks.repository import SECRET_KEY
from rota.webhooks.signature import signature_headers

log = logging.getLogger("rota.webhook")


_READ_STEP = "read the due messages"
_RECORD_STEP = "record a delivery attempt"
_MAX_REMEMBERED_RECEIVERS = 1_000
"""Receivers whose health is kept."""
_RETRY_INTERVAL = 1.0
_MAX_SLEEP = 60.0
"""Seconds of the longest sleep: the wall clock can be set."""


class DueMessage(msgspec.Struct, frozen=True, kw_only=True):
    delivery: Delivery
    body: bytes
    secrets: tuple[str, ...]


class DueMessages(msgspec.Struct, frozen=True, kw_only=True):
    messages: Sequence[DueMessage]
    next_at: datetime | None
    """Time at which the next message is due, unless an event comes first."""


InFlight = Mapping[str, Set[DeliveryId]]
"""Deliveries being attempted, by receiver."""


def find_due_messages(
    reader: Reader, *, now: datetime, in_flight: InFlight, health: Mapping[str, ReceiverHealth]
) -> DueMessages:
    """Return the messages to send now. Receivers take turns: `health` is in the order of their last service."""
    slots = DeliverySlots({receiver: len(deliveries) for receiver, deliveries in in_flight.items()}, health)
    webhooks_by_receiver = {format_webhook_id(webhook.id): webhook for webhook in reader.webhooks.list_all()}
    job_secret = reader.meta.get(SECRET_KEY)
    messages: list[DueMessage] = []
    due_times: list[datetime] = []
    service_order = {receiver: number for number, receiver in enumerate(health)}
    for receiver in sorted(reader.webhooks.pending_receivers(), key=lambda name: service_order.get(name, -1)):
        webhook, in_progress = webhooks_by_receiver.get(receiver), in_flight.get(receiver, frozenset())
        held_until = None if webhook is None else webhook.held_until
        if held_until is not None and held_until > now:
            due_times.append(held_until)
            continue
        limit = min(
            slots.count_free(receiver),
            MAX_CONCURRENT[ReceiverHealth.HEALTHY] if held_until is None else 1 - len(in_progress),
        )
        max_first = MAX_FIRST_ATTEMPTS[slots.health_of(receiver)]
        secrets = webhook.secrets(now) if webhook is not None else (job_secret,) if job_secret is not None else ()
        chosen, next_at = _find_first_due(reader, receiver, now, in_progress, limit, max_first)
        slots.allocate(receiver, len(chosen))
        messages += [
            DueMessage(delivery=delivery, body=reader.webhooks.payload(delivery.id).encode(), secrets=secrets)
            for delivery in chosen
        ]
        due_times += [] if next_at is None else [next_at]
    return DueMessages(messages=messages, next_at=min(due_times, default=None))


def _find_first_due(
    reader: Reader, receiver: str, now: datetime, in_flight: Set[DeliveryId], limit: int, max_first: int
) -> tuple[list[Delivery], datetime | None]:
    """Return the due deliveries of a receiver, and the time at which the next one is due.

    Deliveries with more attempts come first, so that each message ends, however many follow. A receiver without free
    slots has no due time: the end of an attempt wakes the sender."""
    chosen: list[Delivery] = []
    due_times: list[datetime] = []
    for attempts in reader.webhooks.pending_attempt_counts(receiver) if limit > 0 else ():
        count = 0
        for delivery, next_at in reader.webhooks.pending_deliveries(
            receiver, attempts, limit - len(chosen) + len(in_flight)
        ):
            if not attempts and count == max_first:
                break
            count += 1
            if delivery in in_flight:
                continue
            if next_at > now:
                due_times.append(next_at)
                break
            record = reader.webhooks.find_delivery(delivery)
            chosen += [] if record is None else [record]
            if len(chosen) == limit:
                return chosen, None
    return chosen, min(due_times, default=None)


class WebhookSender:
    def __init__(
        self,
        *,
        clock: Clock,
        read_store: ReadStore,
        run_in_turn: RunInTurnAsync,
        post: MessagePoster,
        policy: Callable[[], WebhookPolicy],
    ) -> None:
        self._clock = clock
        self._read_store = read_store
        self._run_in_turn = run_in_turn
        self._post = post
        self._policy = policy
        self._in_flight: dict[str, dict[DeliveryId, asyncio.Task[None]]] = {}
        self._health: dict[str, ReceiverHealth] = {}
        """Health by receiver, in the order of their last service."""
        self._wake = asyncio.Event()
        self._is_stopping = False
        self._failing_steps: set[str] = set()
        """Steps that fail at present, to log each failure once."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._task = self._loop.create_task(self._run())

    def wake(self) -> None:
        """Wake the sender: a delivery may be due. Thread-safe."""
        if self._loop is not None:  # before `start` there is no need: the first read sees everything
            self._loop.call_soon_threadsafe(self._wake.set)

    async def close(self) -> None:
        tasks = [task for deliveries in self._in_flight.values() for task in deliveries.values()]
        tasks += [] if self._task is None else [self._task]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def send(self, url: str, message: str, body: bytes, secrets: Sequence[str]) -> DeliveryAttempt:
        """Send a message once, without retries."""
        at, started_at = self._clock.now(), self._clock.monotonic()
        try:
            response = await self._post(url, signature_headers(message, body, secrets, at), body, self._policy())
        except Exception as error:
            log.exception("internal error: a message cannot be sent")
            response = PostResult(error=f"internal error: {error!r}")
        duration = timedelta(seconds=max(0.0, self._clock.monotonic() - started_at))
        return DeliveryAttempt(at=at, duration=duration, status=response.status, error=response.error)

    async def _run(self) -> None:
        while not self._is_stopping:
            self._wake.clear()
            try:
                seconds = await self._send_due()
                self._failing_steps.discard(_READ_STEP)
            except Exception as error:  # noqa: BLE001 - this task must survive any error
                self._log_failure(_READ_STEP, error)
                await asyncio.sleep(_RETRY_INTERVAL)
                continue
            try:
                async with asyncio.timeout(seconds):
                    await self._wake.wait()
            except TimeoutError:
                continue

    def _log_failure(self, step: str, error: Exception) -> None:
        if step in self._failing_steps:
            return
        self._failing_steps.add(step)
        is_expected = isinstance(error, RotaError)
        prefix = "" if is_expected else "internal error: "
        log.error("%scannot %s, retrying: %s", prefix, step, error, exc_info=None if is_expected else error)

    async def _send_due(self) -> float | None:
        """Start the attempts that are due. Return the seconds until the next one, if known."""
        now = self._clock.now()
        in_flight = {receiver: frozenset(deliveries) for receiver, deliveries in self._in_flight.items()}
        due = await self._read_store(partial(find_due_messages, now=now, in_flight=in_flight, health={**self._health}))
        for message in () if self._is_stopping else due.messages:
            delivery = message.delivery
            task = asyncio.create_task(self._deliver(message))
            self._in_flight.setdefault(delivery.receiver, {})[delivery.id] = task
            task.add_done_callback(partial(self._end_delivery, delivery))
            self._remember_health(delivery.receiver, self._health.pop(delivery.receiver, ReceiverHealth.NEW))
        if due.next_at is None:
            return None
        return min(max(0.0, (due.next_at - self._clock.now()).total_seconds()), _MAX_SLEEP)

    def _remember_health(self, receiver: str, health: ReceiverHealth) -> None:
        self._health[receiver] = health
        if len(self._health) > _MAX_REMEMBERED_RECEIVERS:
            del self._health[next(iter(self._health))]

    def _end_delivery(self, delivery: Delivery, _task: asyncio.Task[None]) -> None:
        in_flight = self._in_flight[delivery.receiver]
        del in_flight[delivery.id]
        if not in_flight:
            del self._in_flight[delivery.receiver]
        self._wake.set()

    async def _deliver(self, message: DueMessage) -> None:
        """Send a message once, and record the attempt.

        The delivery stays in flight until the record is stored, so that a store error does not cause repeated sends."""
        delivery = message.delivery
        attempt = await self.send(delivery.url, delivery.message_id, message.body, message.secrets)
        self._remember_health(
            delivery.receiver, ReceiverHealth.HEALTHY if attempt.is_success else ReceiverHealth.FAILING
        )
        if not attempt.is_success:
            log.info("%s to %s: %s", format_delivery_id(delivery.id), delivery.receiver, attempt.error)
        while True:
            try:
                await self._run_in_turn(partial(record_attempt, delivery=delivery.id, attempt=attempt))
                self._failing_steps.discard(_RECORD_STEP)
                return
            except StoreUnavailable as error:
                self._log_failure(_RECORD_STEP, error)
            except (FatalStoreError, ServiceUnavailable):
                # The scheduler is stopping, so later attempts could not be recorded either.
                self._is_stopping = True
                return
            except Exception as error:  # noqa: BLE001 - as above
                self._log_failure(_RECORD_STEP, error)
            await asyncio.sleep(_RETRY_INTERVAL)

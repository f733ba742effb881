"""The webhook outbox: messages are stored in the transaction of their events, and delivery attempts are recorded.

    turn    events ──▶ record_deliveries ──▶ delivery rows ──▶ COMMIT ──▶ wake the sender   (webhooks/delivery.py)
    turn    record_attempt ◀── response of the receiver

So no message reports a change that was rolled back, and no committed change is lost (DEC-009). The outbox caches
the webhooks, and whether any job has webhook URLs: without either, a job costs no query.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from rota.db.decoding import from_micros
from rota.db.session import AnyReader
from rota.engine.metrics import AttemptSample
from rota.engine.transaction import Transaction
from rota.errors import InvalidInput, StorageFull, StoreError
from rota.groups.schemas import render_group
from rota.ids import DeliveryId, GroupId, JobId, WebhookId, format_webhook_id, parse_group_id
from rota.job_files import read_session_path, read_worktree_path, run_directory
from rota.jobs.schemas import RunView, render_job, render_run
from rota.kernel.events import Event
from rota.kernel.job import Job, JobWebhook
from rota.schema_types import encode
from rota.webhooks.model import (
    GROUP_FINISHED,
    HOLD_AFTER_FAILURES,
    HOLD_DURATION,
    HTTP_GONE,
    MESSAGES,
    DeliveryAttempt,
    DeliveryState,
    Webhook,
    parse_url,
)
from rota.webhooks.repository import SECRET_KEY, OutgoingMessage
from rota.webhooks.signature import make_secret

log = logging.getLogger("rota.webhook")

_PAGE_SIZE = 500
"""Events rendered at once, to bound the memory."""
_SECRET_BYTES = 32

WebhookRecipient = tuple[WebhookId | None, str, str]
"""Endpoint (if the URL is of one), name of the receiver, URL."""


class WebhookOutbox:
    def __init__(self) -> None:
        self._webhooks: Sequence[Webhook] | None = None
        """Enabled webhooks; `None` if they must be loaded again."""
        self._has_job_urls = True
        """Whether a job may name webhook URLs."""
        self.wake_sender: Callable[[], None] = lambda: None
        """Callback after a commit that may have made a delivery due."""

    def load(self, reader: AnyReader) -> None:
        self._webhooks = [webhook for webhook in reader.webhooks.list_all() if webhook.is_enabled]
        self._has_job_urls = reader.webhooks.has_job_urls()

    def invalidate(self) -> None:
        """Discard the cached webhooks after a rollback."""
        self._webhooks = None

    def record_deliveries(self, tx: Transaction) -> None:
        """Store the deliveries for the events of this turn. Runs at its end."""
        self._has_job_urls = self._has_job_urls or tx.effects.has_webhook_urls
        if tx.effects.has_webhook_changes or self._webhooks is None:
            self._webhooks = [webhook for webhook in tx.webhooks.list_all() if webhook.is_enabled]
            tx.effects.has_deliveries = True
        if self._webhooks or self._has_job_urls:
            events = [event for event in tx.events.pending if event.kind in MESSAGES]
            for first in range(0, len(events), _PAGE_SIZE):
                self._record_page(tx, events[first : first + _PAGE_SIZE])
        if tx.effects.has_deliveries:
            tx.effects.on_commit.append(self.wake_sender)

    def _record_page(self, tx: Transaction, events: Sequence[Event]) -> None:
        hooks = (
            tx.webhooks.of_jobs([event.job for event in events if event.job is not None]) if self._has_job_urls else {}
        )
        addressed = [(event, recipients) for event in events if (recipients := [*self._recipients(event, hooks)])]
        if not addressed:
            return
        if hooks:
            ensure_job_secret(tx)
        ids = list(dict.fromkeys(event.job for event, _ in addressed if event.job is not None))
        jobs = {job.id: job for job in tx.jobs.find_all(ids)} if ids else {}
        messages = [
            message for event, recipients in addressed for message in _make_messages(tx, event, recipients, jobs)
        ]
        if messages:
            tx.webhooks.add_deliveries(messages, tx.now)
            tx.effects.has_deliveries = True

    def _recipients(self, event: Event, hooks: Mapping[JobId, JobWebhook]) -> Iterator[WebhookRecipient]:
        kind = MESSAGES[event.kind]
        for webhook in self._webhooks or ():
            if kind in webhook.events:
                yield webhook.id, format_webhook_id(webhook.id), webhook.url
        hook = None if event.job is None else hooks.get(event.job)
        if hook is not None and hook.is_subscribed_to(kind):
            for url in hook.urls:
                with suppress(InvalidInput):  # a damaged record: the URL was valid when it was submitted
                    yield None, parse_url(url).origin, url


def _make_messages(
    tx: Transaction, event: Event, recipients: Sequence[WebhookRecipient], jobs: Mapping[JobId, Job]
) -> list[OutgoingMessage]:
    """Make the messages about an event; none if its job or group cannot be rendered, so that the turn does not fail."""
    kind = MESSAGES[event.kind]
    try:
        group = parse_group_id(str(event.data["group"])) if kind == GROUP_FINISHED else None
        data = _render_job(tx, event, jobs) if group is None else _render_group(tx, group)
        payload = encode({"type": kind, "timestamp": from_micros(event.at), "data": data}).decode()
    except (StorageFull, StoreError):
        raise
    except Exception:
        log.exception("internal error: cannot render the webhook messages for %s", event.kind)
        return []
    return [
        OutgoingMessage(
            message=make_message_id(),
            webhook=webhook,
            receiver=receiver,
            url=url,
            kind=kind,
            job=event.job,
            run=event.run,
            group=group,
            payload=payload,
        )
        for webhook, receiver, url in recipients
    ]


def _render_group(tx: Transaction, group: GroupId) -> dict[str, Any]:
    (record,) = tx.groups.find_all([group])
    return {"group": render_group(record, tx.groups.counts([record])[group])}


def _render_job(tx: Transaction, event: Event, jobs_by_id: Mapping[JobId, Job]) -> dict[str, Any]:
    if event.job is None:
        raise LookupError(f"{event.kind} is about no job")
    job, jobs = jobs_by_id[event.job], tx.settings.artifact_paths.jobs
    directory = f"{jobs}/{job.id}"
    rendered = render_job(
        job,
        Path(jobs),
        session_path=None if job.current_run is None else read_session_path(directory),
        worktree=None if job.spec.workspace is None else read_worktree_path(directory),
    )
    return {"job": rendered, "run": _render_run(tx, event, job, rendered.run, directory)}


def _render_run(tx: Transaction, event: Event, job: Job, current: RunView | None, directory: str) -> RunView | None:
    """Render the run of the event. It is superseded if the job was rewound in the same turn."""
    if event.run is None or (job.current_run is not None and job.current_run.id == event.run):
        return None if event.run is None else current
    runs = (run for run in tx.runs.of_job(job.id) if run.id == event.run)
    return next((render_run(run, run_directory(directory, run.id), is_superseded=True) for run in runs), None)


def make_message_id() -> str:
    return f"msg_{os.urandom(16).hex()}"


def make_webhook_secret() -> str:
    return make_secret(os.urandom(_SECRET_BYTES))


def ensure_job_secret(tx: Transaction) -> str:
    """Return the signing secret for webhook URLs of jobs, created on first use."""
    secret = tx.meta.get(SECRET_KEY)
    if secret is None:
        secret = make_webhook_secret()
        tx.meta.set(SECRET_KEY, secret)
    return secret


def record_attempt(tx: Transaction, delivery: DeliveryId, attempt: DeliveryAttempt) -> None:
    """Record an attempt of a delivery. If the delivery has ended since, only log the attempt."""
    record = tx.webhooks.find_delivery(delivery)
    if record is None:
        return
    tx.webhooks.add_attempt(record, attempt)
    if record.state is not DeliveryState.PENDING:
        tx.effects.samples.append(AttemptSample(attempt.is_success, is_last=False))
        return
    webhook = None if record.webhook is None else tx.webhooks.find(record.webhook)
    if attempt.is_success:
        tx.effects.samples.append(AttemptSample(is_success=True, is_last=True))
        tx.webhooks.end_delivery(record, DeliveryState.DELIVERED, None, tx.now)
        if webhook is not None:
            _record_success(tx, webhook)
        return
    delay = (
        None
        if attempt.status == HTTP_GONE
        else tx.settings.webhooks.retry_delay(record.attempts_since_resend + 1, tx.random_source())
    )
    tx.effects.samples.append(AttemptSample(is_success=False, is_last=delay is None))
    if delay is None:
        tx.webhooks.end_delivery(record, DeliveryState.FAILED, attempt.error, tx.now)
    else:
        tx.webhooks.reschedule_delivery(delivery, tx.now + delay, attempt.error, now=tx.now)
    if webhook is not None and attempt.status == HTTP_GONE:
        tx.webhooks.disable(webhook.id, "it answered 410 Gone", now=tx.now, actor=None)
        tx.effects.has_webhook_changes = True
        log.warning("%s is disabled: it answered 410 Gone", format_webhook_id(webhook.id))
    elif webhook is not None:
        _record_failure(tx, webhook, is_final=delay is None)


def _record_success(tx: Transaction, webhook: Webhook) -> None:
    if webhook.failures or webhook.held_until is not None:
        tx.webhooks.hold(webhook.id, 0, None, now=tx.now)
    if webhook.held_until is not None:
        tx.webhooks.emit_hold(webhook.id, "released", tx.now, None)
        log.info("%s accepts messages again", format_webhook_id(webhook.id))


def _record_failure(tx: Transaction, webhook: Webhook, *, is_final: bool) -> None:
    """Count a failure of a webhook, and hold it after too many. A failed trial of a held webhook prolongs the hold;
    an attempt that began before the hold does not."""
    failures, until = webhook.failures + is_final, webhook.held_until
    if until is None and failures < HOLD_AFTER_FAILURES:
        if is_final:
            tx.webhooks.hold(webhook.id, failures, None, now=tx.now)
        return
    if until is None or until <= tx.now:
        until = tx.now + HOLD_DURATION
        tx.webhooks.emit_hold(webhook.id, "held", tx.now, until)
        log.warning(
            "%s is held until %s: its last %d deliveries failed", format_webhook_id(webhook.id), until, failures
        )
    tx.webhooks.hold(webhook.id, failures, until, now=tx.now)


def check_event_kinds(kinds: Sequence[str], known_kinds: Sequence[str]) -> tuple[str, ...]:
    """Return the kinds without duplicates. Raises `InvalidInput` for an unknown kind."""
    for n, kind in enumerate(kinds):
        if kind not in known_kinds:
            raise InvalidInput(f"unknown event kind {kind!r}; known kinds: {', '.join(known_kinds)}").at_path(f"[{n}]")
    return tuple(dict.fromkeys(kinds))

"""Webhook steps, and a check that each event has its messages in the same commit (DEC-009).

No message is sent: the step decides the result of each attempt.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

from rota.engine.outbox import record_attempt
from rota.errors import Conflict
from rota.ids import parse_group_id
from rota.kernel.events import Event
from rota.kernel.job import DEFAULT_JOB_MESSAGES
from rota.webhooks import commands
from rota.webhooks.commands import WebhookRequest
from rota.webhooks.model import MESSAGES, DeliveryAttempt, DeliveryState
from tests.harness import Scheduler, SqlRunner

JOB_WEBHOOK_URL = "http://127.0.0.1:9/own"
EVENTS: tuple[list[str], ...] = ([], ["job.run.cancelled", "group.finished"], list(MESSAGES.values()))
_MAX_ATTEMPTS = 4


class DeliveryChecker:
    def __init__(self, run_sql: SqlRunner) -> None:
        self._run_sql = run_sql
        self._last = 0

    def at_commit(self, events: Sequence[Event]) -> None:
        """Each event has one message to each subscribed receiver, and no other."""
        expected = Counter(
            message for event in events if event.kind in MESSAGES for message in self._expected_messages(event)
        )
        stored = self._run_sql(
            "SELECT id, webhook, url, kind, job, run, job_group, payload FROM delivery"
            f" WHERE id > {self._last} ORDER BY id"
        )
        actual = Counter(row[1:7] for row in stored)
        assert actual == expected, f"unexpected messages {actual - expected}, missing messages {expected - actual}"
        for number, _webhook, _url, kind, *_subject, payload in stored:
            self._last = number
            assert json.loads(payload)["type"] == kind

    def _expected_messages(self, event: Event) -> Iterator[tuple[Any, ...]]:
        kind = MESSAGES[event.kind]
        group = parse_group_id(str(event.data["group"])) if kind == "group.finished" else None
        subject = (kind, event.job, event.run, group)
        for number, url, events in self._run_sql("SELECT id, url, events FROM webhook WHERE disabled_at IS NULL"):
            if kind in json.loads(events):
                yield (number, url, *subject)
        for (text,) in self._run_sql(
            f"SELECT webhook FROM job JOIN spec ON spec.id = job.spec WHERE job.id = {event.job or 0} AND webhook <> ''"
        ):
            job_webhook = json.loads(text)
            if kind in (job_webhook.get("events") or DEFAULT_JOB_MESSAGES):
                yield from ((None, url, *subject) for url in job_webhook["urls"])

    def check(self) -> None:
        """No delivery has too many attempts, and each attempt is recorded."""
        for number, attempts, recent_attempts, recorded in self._run_sql(
            "SELECT id, attempts, attempts_since_resend,"
            " (SELECT count(*) FROM delivery_attempt WHERE delivery = delivery.id) FROM delivery"
        ):
            assert attempts == recorded, f"delivery-{number} has {attempts} attempts, {recorded} are recorded"
            assert recent_attempts <= _MAX_ATTEMPTS, f"delivery-{number} has {recent_attempts} attempts"


class WebhookSteps(Scheduler):
    def do_webhook(self, rng: random.Random) -> None:
        existing = self.reader.webhooks.list_all()
        action = rng.choice(("add", "add", "remove", "enable", "disable"))
        if action == "add" or not existing:
            url, events = f"http://127.0.0.1:9/{rng.choice('ab')}", rng.choice(EVENTS)
            self.run_request(
                partial(commands.add_webhook, request=WebhookRequest(url=url, events=events), actor="tester")
            )
        else:
            self.run_request(
                partial(getattr(commands, f"{action}_webhook"), webhook=rng.choice(existing).id, actor="tester")
            )

    def do_attempt_deliveries(self, rng: random.Random) -> None:
        """Attempt a few pending deliveries, or send finished ones again."""
        for _ in range(rng.choice((1, 3, 9))):
            deliveries = self.reader.webhooks.list_deliveries(
                job=None, webhook=None, state=None, before_id=2**62, limit=50
            )
            if not deliveries:
                raise Conflict("there is no delivery")
            delivery = rng.choice(deliveries)
            if delivery.state is not DeliveryState.PENDING:
                try:
                    self.run_request(partial(commands.redeliver, delivery=delivery.id, actor="tester"))
                except Conflict:
                    continue  # the endpoint was removed
            status = rng.choice((204, 204, 500, 500, 500, None, 410))
            error = None if status == 204 else f"answered {status}"
            attempt = DeliveryAttempt(
                at=self.clock.now(), duration=timedelta(milliseconds=3), status=status, error=error
            )
            self.run_request(partial(record_attempt, delivery=delivery.id, attempt=attempt))

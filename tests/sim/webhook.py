"""Webhooks in the simulation: who is to be told, and that the outbox has it with what it tells of (DEC-009).

No message is sent: what a receiver says to a try is decided by the step.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

from harness import Raw, Scheduler
from rota.command import webhook as webhooks
from rota.command.webhook import WebhookWanted
from rota.core.event import Event
from rota.core.webhook import MESSAGES, USUAL_OF_JOBS, DeliveryState, Try
from rota.engine.webhook import book_try
from rota.errors import Conflict
from rota.ids import parse_group

OWN = "http://127.0.0.1:9/own"
EVENTS: tuple[list[str], ...] = ([], ["job.run.cancelled", "group.finished"], list(MESSAGES.values()))
_MOST_TRIES = 4


class Deliveries:
    def __init__(self, raw: Raw) -> None:
        self._raw = raw
        self._last = 0

    def at_commit(self, events: Sequence[Event]) -> None:
        """With each end, one message to everybody who is to be told of it, and no other."""
        wanted = Counter(one for event in events if event.kind in MESSAGES for one in self._wanted(event))
        stored = self._raw(
            "SELECT id, webhook, url, kind, job, run, job_group, payload FROM delivery"
            f" WHERE id > {self._last} ORDER BY id"
        )
        told = Counter(row[1:7] for row in stored)
        assert told == wanted, f"told {told - wanted}, and not {wanted - told}"
        for number, _webhook, _url, kind, *_about, payload in stored:
            self._last = number
            assert json.loads(payload)["type"] == kind

    def _wanted(self, event: Event) -> Iterator[tuple[Any, ...]]:
        kind = MESSAGES[event.kind]
        group = parse_group(str(event.data["group"])) if kind == "group.finished" else None
        about = (kind, event.job, event.run, group)
        for number, url, events in self._raw("SELECT id, url, events FROM webhook WHERE disabled_at IS NULL"):
            if kind in json.loads(events):
                yield (number, url, *about)
        for (hook,) in self._raw(
            f"SELECT webhook FROM job JOIN spec ON spec.id = job.spec WHERE job.id = {event.job or 0} AND webhook <> ''"
        ):
            own = json.loads(hook)
            if kind in (own.get("events") or USUAL_OF_JOBS):
                yield from ((None, url, *about) for url in own["urls"])

    def check(self) -> None:
        """Nothing is tried more often than was promised, and each try is in the log."""
        for number, tries, tried, logged in self._raw(
            "SELECT id, tries, tried, (SELECT count(*) FROM delivery_try WHERE delivery = delivery.id) FROM delivery"
        ):
            assert tries == logged, f"delivery-{number} was tried {tries} times, and {logged} are known"
            assert tried <= _MOST_TRIES, f"delivery-{number} was tried {tried} times"


class WebhookVerbs(Scheduler):
    def do_webhook(self, chance: random.Random) -> None:
        known = self.reader.webhooks()
        verb = chance.choice(("add", "add", "remove", "enable", "disable"))
        if verb == "add" or not known:
            url, events = f"http://127.0.0.1:9/{chance.choice('ab')}", chance.choice(EVENTS)
            self.do(partial(webhooks.add, wanted=WebhookWanted(url=url, events=events), actor="tester"))
        else:
            self.do(partial(getattr(webhooks, verb), webhook=chance.choice(known).id, actor="tester"))

    def do_deliver(self, chance: random.Random) -> None:
        """What receivers say to a few tries; or somebody has one sent again."""
        for _ in range(chance.choice((1, 3, 9))):
            found = self.reader.deliveries(job=None, webhook=None, state=None, below=2**62, limit=50)
            if not found:
                raise Conflict("there is none")
            one = chance.choice(found)
            if one.state is not DeliveryState.PENDING:
                try:
                    self.do(partial(webhooks.redeliver, delivery=one.id, actor="tester"))
                except Conflict:
                    continue  # nobody is there any more to have it
            status = chance.choice((204, 204, 500, 500, 500, None, 410))
            error = None if status == 204 else f"answered {status}"
            done = Try(at=self.clock.now(), duration=timedelta(milliseconds=3), status=status, error=error)
            self.do(partial(book_try, delivery=one.id, done=done))

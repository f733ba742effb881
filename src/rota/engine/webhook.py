"""The outbox: messages are written in the transaction of what they tell of, and what came of them is booked here.

    turn    ends, events ──▶ Outbox.book ──▶ delivery rows ──▶ COMMIT ──▶ the sender is woken   (engine/sender.py)
    turn    book_try ◀── what the receiver said

So no message tells of what was undone, and none of what was done is lost (DEC-009). Whether anybody is to be told at
all is known without asking the store: a job that nobody is told of costs nothing here.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from rota.core.address import read_url
from rota.core.event import Event
from rota.core.job import Job
from rota.core.signature import make_secret
from rota.core.webhook import GONE, GROUP, HOLD, HOLD_AFTER, MESSAGES, DeliveryState, JobHook, Try, Webhook
from rota.engine.meter import Tried
from rota.engine.work import Work
from rota.errors import InvalidInput, StorageFull, StoreError
from rota.ids import DeliveryId, GroupId, JobId, WebhookId, parse_group, show_webhook
from rota.leftover import place_of
from rota.report import session_path, worktree_path
from rota.store.moment import from_stored
from rota.store.session import Session
from rota.store.webhook import SECRET, Message
from rota.wire import encode
from rota.wire.group import group_form
from rota.wire.job import RunForm, job_form, run_form

log = logging.getLogger("rota.webhook")

_PAGE = 500
"""Jobs whose forms are in memory at once."""
_SECRET_BYTES = 32

Recipient = tuple[WebhookId | None, str, str]
"""The endpoint, if it is one; who receives; the URL."""


class Outbox:
    def __init__(self) -> None:
        self._endpoints: Sequence[Webhook] | None = None
        """Those that are told; none where that is to be asked again."""
        self._names_urls = True
        """A job may name URLs of its own."""
        self.tell: Callable[[], None] = lambda: None
        """Called after a commit that left something to send."""

    def load(self, session: Session) -> None:
        self._endpoints = [each for each in session.webhooks() if each.is_enabled]
        self._names_urls = session.names_urls()

    def forget(self) -> None:
        """A turn was undone, and with it perhaps what is known here."""
        self._endpoints = None

    def book(self, work: Work) -> None:
        """Write down who is to be told of this turn, as its last act."""
        self._names_urls = self._names_urls or work.names_urls
        if work.changes_webhooks or self._endpoints is None:
            self._endpoints = [each for each in work.session.webhooks() if each.is_enabled]
            work.has_mail = True
        if self._endpoints or self._names_urls:
            told = [event for event in work.session.gathered if event.kind in MESSAGES]
            for first in range(0, len(told), _PAGE):
                self._book(work, told[first : first + _PAGE])
        if work.has_mail:
            work.afterwards.append(self.tell)

    def _book(self, work: Work, events: Sequence[Event]) -> None:
        hooks = work.session.hooks_of([each.job for each in events if each.job is not None]) if self._names_urls else {}
        wanted = [(event, recipients) for event in events if (recipients := [*self._recipients(event, hooks)])]
        if not wanted:
            return
        if hooks:
            own_secret(work)
        ids = list(dict.fromkeys(event.job for event, _ in wanted if event.job is not None))
        jobs = {job.id: job for job in work.session.jobs(ids)} if ids else {}
        messages = [message for event, recipients in wanted for message in _messages(work, event, recipients, jobs)]
        if messages:
            work.session.add_deliveries(messages, work.now)
            work.has_mail = True

    def _recipients(self, event: Event, hooks: Mapping[JobId, JobHook]) -> Iterator[Recipient]:
        kind = MESSAGES[event.kind]
        for endpoint in self._endpoints or ():
            if kind in endpoint.events:
                yield endpoint.id, show_webhook(endpoint.id), endpoint.url
        hook = None if event.job is None else hooks.get(event.job)
        if hook is not None and hook.wants(kind):
            for url in hook.urls:
                with suppress(InvalidInput):  # a damaged record, for what is stored was read before
                    yield None, read_url(url).origin, url


def _messages(
    work: Work, event: Event, recipients: Sequence[Recipient], jobs: Mapping[JobId, Job]
) -> list[Message]:  # fmt: skip
    """None where they cannot be made: a record that cannot be shown must not undo the turn of all the others."""
    kind = MESSAGES[event.kind]
    try:
        group = parse_group(str(event.data["group"])) if kind == GROUP else None
        data = _job_data(work, event, jobs) if group is None else _group_data(work, group)
        payload = encode({"type": kind, "timestamp": from_stored(event.at), "data": data}).decode()
    except (StorageFull, StoreError):
        raise
    except Exception:
        log.exception("a defect: nobody can be told of %s", event.kind)
        return []
    return [
        Message(
            message=new_message(), webhook=webhook, receiver=receiver, url=url, kind=kind, job=event.job, run=event.run,
            group=group, payload=payload,
        )
        for webhook, receiver, url in recipients
    ]  # fmt: skip


def _group_data(work: Work, group: GroupId) -> dict[str, Any]:
    (found,) = work.session.groups([group])
    return {"group": group_form(found, work.session.tallies([found])[group])}


def _job_data(work: Work, event: Event, found: Mapping[JobId, Job]) -> dict[str, Any]:
    if event.job is None:
        raise LookupError(f"{event.kind} is about no job")
    job, jobs = found[event.job], work.settings.places.jobs
    directory = f"{jobs}/{job.id}"
    form = job_form(
        job,
        Path(jobs),
        session_path=None if job.current_run is None else session_path(directory),
        worktree=None if job.spec.workspace is None else worktree_path(directory),
    )
    return {"job": form, "run": _run(work, event, job, form.run, directory)}


def _run(work: Work, event: Event, job: Job, current: RunForm | None, directory: str) -> RunForm | None:
    """The one that ended; a rewind of the same turn may have left it behind."""
    if event.run is None or (job.current_run is not None and job.current_run.id == event.run):
        return None if event.run is None else current
    found = (run for run in work.session.runs_of(job.id) if run.id == event.run)
    return next((run_form(run, place_of(directory, run.id), superseded=True) for run in found), None)


def new_message() -> str:
    return f"msg_{os.urandom(16).hex()}"


def new_secret() -> str:
    return make_secret(os.urandom(_SECRET_BYTES))


def own_secret(work: Work) -> str:
    """What messages to the URLs of jobs are signed with; made when it is first wanted."""
    secret = work.session.meta(SECRET)
    if secret is None:
        secret = new_secret()
        work.session.set_meta(SECRET, secret)
    return secret


def book_try(work: Work, delivery: DeliveryId, done: Try) -> None:
    """What came of a try. One that ended meanwhile stays as it is, and the try is in its log."""
    found = work.session.delivery(delivery)
    if found is None:
        return
    work.session.add_try(found, done)
    if found.state is not DeliveryState.PENDING:
        work.notes.append(Tried(done.is_success, is_last=False))
        return
    endpoint = None if found.webhook is None else work.session.webhook(found.webhook)
    if done.is_success:
        work.notes.append(Tried(is_success=True, is_last=True))
        work.session.end_delivery(found, DeliveryState.DELIVERED, None, work.now)
        if endpoint is not None:
            _book_success(work, endpoint)
        return
    delay = None if done.status == GONE else work.settings.webhooks.again_after(found.tried + 1, work.chance())
    work.notes.append(Tried(is_success=False, is_last=delay is None))
    if delay is None:
        work.session.end_delivery(found, DeliveryState.FAILED, done.error, work.now)
    else:
        work.session.put_off_delivery(delivery, work.now + delay, done.error)
    if endpoint is not None and done.status == GONE:
        work.session.disable_webhook(endpoint.id, "it answered 410 Gone", now=work.now, actor=None)
        work.changes_webhooks = True
        log.warning("%s is disabled: it answered 410 Gone", show_webhook(endpoint.id))
    elif endpoint is not None:
        _book_failure(work, endpoint, is_final=delay is None)


def _book_success(work: Work, endpoint: Webhook) -> None:
    if endpoint.failures or endpoint.held_until is not None:
        work.session.hold_webhook(endpoint.id, 0, None)
    if endpoint.held_until is not None:
        work.session.announce_hold(endpoint.id, "freed", work.now, None)
        log.info("%s takes messages again", show_webhook(endpoint.id))


def _book_failure(work: Work, endpoint: Webhook, *, is_final: bool) -> None:
    """One that was held and has just been asked is held on; what was under way when it was held changes nothing."""
    failures, until = endpoint.failures + is_final, endpoint.held_until
    if until is None and failures < HOLD_AFTER:
        if is_final:
            work.session.hold_webhook(endpoint.id, failures, None)
        return
    if until is None or until <= work.now:
        until = work.now + HOLD
        work.session.announce_hold(endpoint.id, "held", work.now, until)
        log.warning("%s is held until %s: its last %d deliveries failed", show_webhook(endpoint.id), until, failures)
    work.session.hold_webhook(endpoint.id, failures, until)


def check_kinds(given: Sequence[str], known: Sequence[str]) -> tuple[str, ...]:
    """Each once."""
    for n, kind in enumerate(given):
        if kind not in known:
            raise InvalidInput(f"nobody is told of {kind!r}; there are {', '.join(known)}").under(f"[{n}]")
    return tuple(dict.fromkeys(given))

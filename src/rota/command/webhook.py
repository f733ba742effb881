"""`webhook`: endpoints that are told of ends, the URLs that jobs name, and messages that are sent again."""

from __future__ import annotations

from datetime import datetime, timedelta
from math import ceil

import msgspec

from rota.command.submission import Submission
from rota.core.address import literal, read_url, refusal
from rota.core.signature import check_secret
from rota.core.webhook import KEEP_OLD_SECRET, MESSAGES, OF_JOBS, USUAL, Delivery, HookPolicy, JobHook, Webhook
from rota.duration import parse_duration, show_duration
from rota.engine.webhook import check_kinds, new_secret, own_secret
from rota.engine.work import Work
from rota.errors import Conflict, InvalidInput, within
from rota.ids import DeliveryId, WebhookId, show_delivery, show_webhook
from rota.wire.text import Span, Url

_MOST_URLS = 10
_MOST_ENDPOINTS = 100


class WebhookWanted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An endpoint as asked for."""

    url: Url
    """Where messages are to be sent to."""
    events: list[str] = []
    """None named: the usual ones."""
    secret: str | None = None
    """None: one is made."""


class RotationWanted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Another secret as asked for."""

    secret: str | None = None
    """The new one; none: one is made."""
    keep: Span | None = None
    """How long the secret until now goes on signing."""


def check_target(url: str, policy: HookPolicy) -> None:
    """What can be said of a URL without asking anybody for the address of a name."""
    address = literal(read_url(url).host)
    why = None if address is None else refusal(address, policy.allow)
    if why is not None:
        raise InvalidInput(why)


def hook_of(wanted: Submission, policy: HookPolicy) -> JobHook | None:
    """Whom a job has told."""
    if not wanted.webhooks and not wanted.webhook_events:
        return None
    with within(".webhook_events"):
        events = check_kinds(wanted.webhook_events, OF_JOBS)
        if not wanted.webhooks:
            raise InvalidInput("webhook_events says of what a job's webhooks are told; name one, in `webhooks`")
    urls = tuple(dict.fromkeys(wanted.webhooks))
    if len(urls) > _MOST_URLS:
        raise InvalidInput(f"a job names {_MOST_URLS} webhooks at most, not {len(urls)}").under(".webhooks")
    for url in urls:
        with within(f".webhooks[{wanted.webhooks.index(url)}]"):
            check_target(url, policy)
    return JobHook(urls=urls, events=events)


def add(work: Work, wanted: WebhookWanted, *, actor: str) -> Webhook:
    with within(".url"):
        check_target(wanted.url, work.settings.webhooks)
    with within(".events"):
        events = check_kinds(wanted.events, tuple(MESSAGES.values())) or USUAL
    secret = _secret(wanted.secret)
    if len(work.session.webhooks()) >= _MOST_ENDPOINTS:
        raise Conflict(
            f"there are {_MOST_ENDPOINTS} webhooks, and no more can be; `rota webhook remove` takes one away"
        )
    return _changed(work, work.session.add_webhook(wanted.url, events, secret, now=work.now, actor=actor))


def _secret(given: str | None) -> str:
    with within(".secret"):
        return new_secret() if given is None else check_secret(given)


def remove(work: Work, webhook: WebhookId, *, actor: str) -> Webhook:
    """What is still to be sent to it fails."""
    found = _find(work, webhook)
    work.session.remove_webhook(webhook, now=work.now, actor=actor)
    work.changes_webhooks = True
    return found


def enable(work: Work, webhook: WebhookId, *, actor: str) -> Webhook:
    """It begins anew: what it had failed is forgotten, and it is not held."""
    _find(work, webhook)
    work.session.enable_webhook(webhook, now=work.now, actor=actor)
    return _changed(work, webhook)


def disable(work: Work, webhook: WebhookId, *, actor: str) -> Webhook:
    _find(work, webhook)
    work.session.disable_webhook(webhook, f"disabled by {actor}", now=work.now, actor=actor)
    return _changed(work, webhook)


def rotate(work: Work, webhook: WebhookId, wanted: RotationWanted, *, actor: str) -> Webhook:
    found = _find(work, webhook)
    secret = _secret(wanted.secret)
    with within(".keep"):
        keep = KEEP_OLD_SECRET if wanted.keep is None else parse_duration(wanted.keep)
    if secret == found.secret:
        raise Conflict(f"{show_webhook(webhook)} has this secret already; nothing was changed")
    until = work.now + keep if keep else None
    work.session.rotate_webhook(webhook, secret, until, now=work.now, actor=actor)
    return _changed(work, webhook)


def redeliver(work: Work, delivery: DeliveryId, *, actor: str) -> None:
    """The same message once more, with its id and as often as a new one is tried."""
    found = work.session.delivery(delivery)
    if found is None:
        raise work.session.no_such_delivery(delivery)
    name = show_delivery(delivery)
    endpoint = None if found.webhook is None else work.session.webhook(found.webhook)
    if found.webhook is not None:
        shown = show_webhook(found.webhook)
        if endpoint is None:
            raise Conflict(f"{shown} was removed; {name} has nobody to go to")
        if not endpoint.is_enabled:
            raise Conflict(f"{shown} is disabled; `rota webhook enable {shown}` first, then send {name} again")
    if not work.session.send_again(delivery, now=work.now, actor=actor):
        raise Conflict(f"{name} is still to be sent, by itself; {_when(found, endpoint, work.now)}")
    work.has_mail = True


def _when(delivery: Delivery, endpoint: Webhook | None, now: datetime) -> str:
    if endpoint is not None and endpoint.held_until is not None and endpoint.held_until > now:
        shown = show_webhook(endpoint.id)
        until = show_duration(timedelta(seconds=ceil((endpoint.held_until - now).total_seconds())))
        return f"{shown} is held for {until} more, and `rota webhook enable {shown}` frees it"
    left = 0 if delivery.next_at is None else ceil((delivery.next_at - now).total_seconds())
    return f"its next try is in {show_duration(timedelta(seconds=left))}" if left > 0 else "it is due, or under way"


def secret_of_jobs(work: Work) -> str:
    return own_secret(work)


def _find(work: Work, webhook: WebhookId) -> Webhook:
    found = work.session.webhook(webhook)
    if found is None:
        raise work.session.no_such_webhook(webhook)
    return found


def _changed(work: Work, webhook: WebhookId) -> Webhook:
    work.changes_webhooks = True
    return _find(work, webhook)

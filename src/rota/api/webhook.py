"""Webhooks over HTTP: endpoints that are told how jobs end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial

import msgspec

from rota.api.context import Context
from rota.api.endpoint import Call, Endpoint, Nothing, Reply
from rota.api.example import SUBMITTED
from rota.api.once import carry_out, carry_outside
from rota.api.page import PageSize, begins_at
from rota.command import webhook as command
from rota.command.webhook import RotationWanted, WebhookWanted, check_target
from rota.core.address import read_url
from rota.core.webhook import TEST, USUAL, Webhook
from rota.engine.webhook import new_message
from rota.engine.work import Work
from rota.errors import RotaError, within
from rota.ids import WebhookId, parse_webhook, show_webhook
from rota.receiver.name import permitted
from rota.store.session import Reader
from rota.view import webhook as view
from rota.wire import encode
from rota.wire.text import WebhookText
from rota.wire.webhook import SecretForm, WebhookAddedForm, WebhookForm, WebhooksForm, WebhookTestForm, try_form

_LOOK_UP = 5.0
"""Seconds for names, before their URLs are stored: at each connect they are looked up again."""
_MOST_LOOKED_UP = 100


async def unknown_names(context: Context, urls: Mapping[str, str]) -> list[str]:
    """What to warn of; a name that leads only where nothing is sent to is refused. `urls` says of each where in the
    request it stands."""
    policy = context.control.settings.webhooks
    paths: dict[tuple[str, int], str] = {}
    for url, path in urls.items():
        with within(path):
            check_target(url, policy)
        parts = read_url(url)
        paths.setdefault((parts.host, parts.port), path)
    places = list(paths)[:_MOST_LOOKED_UP]
    looking = [asyncio.wait_for(permitted(*place, policy.allow), _LOOK_UP) for place in places]
    warnings = []
    for place, found in zip(places, await asyncio.gather(*looking, return_exceptions=True), strict=True):
        if isinstance(found, OSError):  # a time that is over is one too
            warnings.append(f"{place[0]} has no address now; until it has one, messages to it fail")
        elif isinstance(found, RotaError):
            raise found.under(paths[place])
        elif isinstance(found, BaseException):
            raise found
    return warnings


async def add_webhook(call: Call[Nothing, WebhookWanted]) -> Reply[WebhookAddedForm]:
    """Add an endpoint. The answer has its secret, as only that of a rotation has unasked; with an `Idempotency-Key`
    it has the same one again."""
    context, wanted = call.context, call.body
    context.control.look_at_config()
    warnings = await unknown_names(context, {wanted.url: ".url"})

    def tell(form: WebhookForm) -> Reply[WebhookAddedForm]:
        # The secret is kept with the answer. That shows it to nobody: who can read the store finds it beside the
        # endpoint too, who has the key was told it once, and without it the answer would be of no use to who lost it.
        return Reply(WebhookAddedForm(**msgspec.structs.asdict(form), warning="; ".join(warnings) or None), 201)

    act = partial(command.add, wanted=wanted, actor=context.actor)
    return (await carry_out(call, act, _see_with_secrets, tell)).reply


def _see(work: Work, results: Sequence[Webhook]) -> list[WebhookForm]:
    return [view.show_one(work.session, webhook, work.now) for webhook in results]


def _see_with_secrets(work: Work, results: Sequence[Webhook]) -> list[WebhookForm]:
    return [view.show_one(work.session, webhook, work.now, with_secret=True) for webhook in results]


class WebhooksQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    limit: PageSize = 100
    cursor: WebhookText | None = None


async def list_webhooks(call: Call[WebhooksQuery, None]) -> Reply[WebhooksForm]:
    """List endpoints, the oldest first."""
    after = begins_at(call.query.cursor, parse_webhook, WebhookId(0))
    look = partial(view.webhooks, now=call.context.clock.now(), after=after, limit=call.query.limit)
    return Reply(await call.context.look(look))


class WebhookQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    secret: bool = False
    """With its secret."""


async def get_webhook(call: Call[WebhookQuery, None]) -> Reply[WebhookForm]:
    """Show an endpoint."""
    webhook, now, with_secret = call.place("webhook", parse_webhook), call.context.clock.now(), call.query.secret

    def look(reader: Reader) -> WebhookForm:
        return view.show_one(reader, view.find(reader, webhook), now, with_secret=with_secret)

    return Reply(await call.context.look(look))


async def remove_webhook(call: Call[Nothing, None]) -> Reply[WebhookForm]:
    """Remove an endpoint, and show what it was. What is still to be sent to it fails."""
    return await _done(call, command.remove)


async def enable_webhook(call: Call[Nothing, None]) -> Reply[WebhookForm]:
    """Enable an endpoint. It begins anew: what it had failed is forgotten, and it is not held."""
    return await _done(call, command.enable)


async def disable_webhook(call: Call[Nothing, None]) -> Reply[WebhookForm]:
    """Disable an endpoint. What is still to be sent to it fails, and nothing is until it is enabled again."""
    return await _done(call, command.disable)


async def _done(call: Call[Nothing, None], act: Callable[..., Webhook]) -> Reply[WebhookForm]:
    act = partial(act, webhook=call.place("webhook", parse_webhook), actor=call.context.actor)
    return Reply(await call.context.perform_and_see(act, _see))


async def rotate_webhook(call: Call[Nothing, RotationWanted | None]) -> Reply[WebhookForm]:
    """Give an endpoint another secret, and show that. The one until now goes on signing beside it for a while."""
    wanted = RotationWanted() if call.body is None else call.body
    act = partial(command.rotate, webhook=call.place("webhook", parse_webhook), wanted=wanted, actor=call.context.actor)
    return (await carry_out(call, act, _see_with_secrets, Reply)).reply


async def test_webhook(call: Call[Nothing, None]) -> Reply[WebhookTestForm]:
    """Send a test message to an endpoint. That happens once and now, also where it is disabled or held, and is in no
    list of deliveries. Answered when the receiver has."""
    context, webhook = call.context, call.place("webhook", parse_webhook)

    async def send() -> Reply[WebhookTestForm]:
        context.control.look_at_config()
        found = await context.look(partial(view.find, webhook=webhook))
        now, name = context.clock.now(), show_webhook(webhook)
        said = encode({"type": TEST, "timestamp": now, "data": {"webhook": name}})
        done = await context.sender.exchange(found.url, new_message(), said, found.secrets(now))
        tried = msgspec.structs.asdict(try_form(done))
        return Reply(WebhookTestForm(webhook=name, delivered=done.is_success, **tried))

    return await carry_outside(call, send)


async def get_webhook_secret(call: Call[Nothing, None]) -> Reply[SecretForm]:
    """Show what messages to the URLs of jobs are signed with."""
    return Reply(SecretForm(secret=await call.context.perform(command.secret_of_jobs)))


_SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"  # noqa: S105 - an example
_SHOWN = WebhookForm(
    id="webhook-1",
    url="https://example.org/hooks/rota",
    events=list(USUAL),
    state="enabled",
    created_at=SUBMITTED,
    disabled_at=None,
    disabled_reason=None,
    failures=0,
    held_until=None,
    old_secret_until=None,
    pending=0,
)
_DISABLED = msgspec.structs.replace(
    _SHOWN, state="disabled", disabled_at=SUBMITTED + timedelta(minutes=4), disabled_reason="disabled by rota"
)  # fmt: skip
_ROTATED = msgspec.structs.replace(_SHOWN, old_secret_until=SUBMITTED + timedelta(days=1), secret=_SECRET)
_ADDED = {**msgspec.to_builtins(_SHOWN), "secret": _SECRET, "warning": None}
_TESTED = WebhookTestForm(
    webhook="webhook-1", delivered=True, at=SUBMITTED, seconds=0.042, status=204, error=None
)  # fmt: skip

_ONE = "/api/webhooks/{webhook}"
ENDPOINTS = [
    Endpoint(
        "POST", "/api/webhooks", add_webhook, statuses=(201,), refuses=(409,), is_keyed=True,
        sends={"url": "https://example.org/hooks/rota", "events": list(USUAL)}, shows=_ADDED,
    ),
    Endpoint("GET", "/api/webhooks", list_webhooks, shows=WebhooksForm(webhooks=[_SHOWN], next=None)),
    Endpoint("GET", "/api/webhooks/secret", get_webhook_secret, refuses=(507,), shows=SecretForm(secret=_SECRET)),
    Endpoint("GET", _ONE, get_webhook, shows=_SHOWN),
    Endpoint("DELETE", _ONE, remove_webhook, shows=_SHOWN),
    Endpoint("POST", f"{_ONE}/enable", enable_webhook, shows=_SHOWN),
    Endpoint("POST", f"{_ONE}/disable", disable_webhook, shows=_DISABLED),
    Endpoint(
        "POST", f"{_ONE}/rotate", rotate_webhook, refuses=(409,), is_keyed=True, sends={"keep": "1d"}, shows=_ROTATED
    ),
    Endpoint("POST", f"{_ONE}/test", test_webhook, is_keyed=True, shows=_TESTED),
]  # fmt: skip

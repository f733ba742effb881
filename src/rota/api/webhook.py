"""Webhooks over HTTP: endpoints, and what was sent to whom."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rota.api.context import Context, context_of
from rota.api.problem import answer, number, read
from rota.command import webhook as command
from rota.command.webhook import RotationWanted, WebhookWanted, check_target
from rota.core.address import read_url
from rota.core.webhook import TEST, DeliveryState, Webhook
from rota.engine.webhook import new_message
from rota.engine.work import Work
from rota.errors import InvalidInput, RotaError
from rota.ids import WebhookId, parse_delivery, parse_job, parse_webhook, show_webhook
from rota.receiver.name import permitted
from rota.view import webhook as view
from rota.wire import encode

_LOOK_UP = 5.0
"""Seconds for names, before their URLs are stored: at each connect they are looked up again."""
_MOST_LOOKED_UP = 100
_MOST_LISTED = 1000


async def unknown_names(context: Context, urls: Mapping[str, str]) -> list[str]:
    """What to warn of; a name that leads only where nothing is sent to is refused. `urls` says of each where in the
    request it stands."""
    policy = context.control.settings.webhooks
    paths: dict[tuple[str, int], str] = {}
    for url, path in urls.items():
        try:
            check_target(url, policy)
        except InvalidInput as error:
            raise error.under(path) from None
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


async def _shown(
    context: Context, webhook: Webhook, *, warnings: list[str] | None = None, secret: bool
) -> dict[str, Any]:
    pending = (await context.look(lambda reader: reader.count_pending())).get(show_webhook(webhook.id), 0)
    form = msgspec.structs.asdict(view.webhook_form(webhook, pending, context.clock.now()))
    warning = {} if warnings is None else {"warning": "; ".join(warnings) or None}
    return {**form, **({"secret": webhook.secret} if secret else {}), **warning}


async def add_webhook(request: Request) -> Response:
    """The only answer besides a rotation's that has the secret unasked."""
    context, wanted = context_of(request), await read(request, WebhookWanted)
    context.control.look_at_config()
    warnings = await unknown_names(context, {wanted.url: ".url"})
    made = await context.perform(partial(command.add, wanted=wanted, actor=context.actor))
    return answer(await _shown(context, made, warnings=warnings, secret=True), 201)


async def list_webhooks(request: Request) -> Response:
    context = context_of(request)
    return answer({"webhooks": await context.look(partial(view.webhooks, now=context.clock.now()))})


def _webhook(request: Request) -> WebhookId:
    return parse_webhook(request.path_params["webhook"])


async def get_webhook(request: Request) -> Response:
    context, webhook = context_of(request), _webhook(request)
    form = msgspec.structs.asdict(await context.look(partial(view.show_one, webhook=webhook, now=context.clock.now())))
    if request.query_params.get("secret") == "1":
        form["secret"] = (await context.look(partial(view.find, webhook=webhook))).secret
    return answer(form)


async def remove_webhook(request: Request) -> Response:
    context = context_of(request)
    gone = await context.perform(partial(command.remove, webhook=_webhook(request), actor=context.actor))
    return answer(await _shown(context, gone, secret=False))


async def enable_webhook(request: Request) -> Response:
    context = context_of(request)
    changed = await context.perform(partial(command.enable, webhook=_webhook(request), actor=context.actor))
    return answer(await _shown(context, changed, secret=False))


async def disable_webhook(request: Request) -> Response:
    context = context_of(request)
    changed = await context.perform(partial(command.disable, webhook=_webhook(request), actor=context.actor))
    return answer(await _shown(context, changed, secret=False))


async def rotate_webhook(request: Request) -> Response:
    context = context_of(request)
    wanted = await read(request, RotationWanted) if await request.body() else RotationWanted()
    act = partial(command.rotate, webhook=_webhook(request), wanted=wanted, actor=context.actor)
    return answer(await _shown(context, await context.perform(act), secret=True))


async def test_webhook(request: Request) -> Response:
    """Once, now, whether it is disabled or held; in no log."""
    context = context_of(request)
    context.control.look_at_config()
    found = await context.look(partial(view.find, webhook=_webhook(request)))
    now = context.clock.now()
    said = encode({"type": TEST, "timestamp": now, "data": {"webhook": show_webhook(found.id)}})
    done = await context.sender.exchange(found.url, new_message(), said, found.secrets(now))
    return answer({"webhook": show_webhook(found.id), "delivered": done.is_success, **_try(view.try_form(done))})


def _try(form: view.TryForm) -> dict[str, Any]:
    return msgspec.structs.asdict(form)


async def own_secret(request: Request) -> Response:
    """What messages to the URLs of jobs are signed with."""
    act: Any = command.secret_of_jobs
    return answer({"secret": await context_of(request).perform(act)})


def _state(request: Request) -> DeliveryState | None:
    text = request.query_params.get("state")
    try:
        return None if text is None else DeliveryState(text.upper())
    except ValueError:
        raise InvalidInput(f"unknown state {text}; the states are {', '.join(DeliveryState)}") from None


async def list_deliveries(request: Request) -> Response:
    """The newest first."""
    query, limit = request.query_params, int(number(request, "limit", 100, least=1, most=_MOST_LISTED))
    look = partial(
        view.deliveries,
        job=parse_job(query["job"]) if "job" in query else None,
        webhook=parse_webhook(query["webhook"]) if "webhook" in query else None,
        state=_state(request),
        below=parse_delivery(query["cursor"]) if "cursor" in query else view.TOP,
        limit=limit,
    )
    found = await context_of(request).look(look)
    return answer({"deliveries": found, "next": found[-1].id if len(found) == limit else None})


async def get_delivery(request: Request) -> Response:
    delivery = parse_delivery(request.path_params["delivery"])
    return answer(await context_of(request).look(partial(view.delivery, number=delivery)))


async def redeliver(request: Request) -> Response:
    context, delivery = context_of(request), parse_delivery(request.path_params["delivery"])

    def act(work: Work) -> dict[str, Any]:
        command.redeliver(work, delivery, actor=context.actor)
        return view.delivery(work.session, delivery)

    return answer(await context.perform(act))


ROUTES = [
    Route("/api/webhooks", add_webhook, methods=["POST"]),
    Route("/api/webhooks", list_webhooks, methods=["GET"]),
    Route("/api/webhooks/secret", own_secret, methods=["GET"]),
    Route("/api/webhooks/{webhook}", get_webhook, methods=["GET"]),
    Route("/api/webhooks/{webhook}", remove_webhook, methods=["DELETE"]),
    Route("/api/webhooks/{webhook}/enable", enable_webhook, methods=["POST"]),
    Route("/api/webhooks/{webhook}/disable", disable_webhook, methods=["POST"]),
    Route("/api/webhooks/{webhook}/rotate", rotate_webhook, methods=["POST"]),
    Route("/api/webhooks/{webhook}/test", test_webhook, methods=["POST"]),
    Route("/api/webhook-deliveries", list_deliveries, methods=["GET"]),
    Route("/api/webhook-deliveries/{delivery}", get_delivery, methods=["GET"]),
    Route("/api/webhook-deliveries/{delivery}/redeliver", redeliver, methods=["POST"]),
]

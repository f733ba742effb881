"""Lists with several pages."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import msgspec

from rota import AsyncClient, Client
from rota.webhooks.schemas import WebhookView
from tests.cli.fake_scheduler import RecordedRequest, json_response
from tests.client.sdk.keep_alive_server import KeepAliveServer
from tests.e2e.awaitable_client import AwaitableClient, collect


def render_webhook(number: int) -> Any:
    return msgspec.to_builtins(
        WebhookView(
            id=f"webhook-{number}",
            url="http://a/",
            events=[],
            state="enabled",
            created_at=datetime.now(UTC),
            disabled_at=None,
            disabled_reason=None,
            failures=0,
            held_until=None,
            old_secret_until=None,
            unreadable=None,
            pending=0,
        )
    )


def respond_with_page(request: RecordedRequest) -> bytes:
    """Respond with a page that starts with the last item of the previous page, as if that item had moved."""
    first = int(request.target.partition("cursor=webhook-")[2] or 1)
    cursor = None if first == 3 else f"webhook-{first + 1}"
    return json_response({"webhooks": [render_webhook(first), render_webhook(first + 1)], "next": cursor})


def test_item_on_two_pages_is_yielded_once(server: KeepAliveServer, client_type: type[Client | AsyncClient]) -> None:
    server.reply = respond_with_page

    def list_ids(**options: Any) -> list[str]:
        client = AwaitableClient(client_type(home=server.home.root, autostart=False))
        return [webhook.id for webhook in asyncio.run(collect(client.webhooks(**options)))]

    assert list_ids() == ["webhook-1", "webhook-2", "webhook-3", "webhook-4"]
    assert list_ids(limit=3) == ["webhook-1", "webhook-2", "webhook-3"]

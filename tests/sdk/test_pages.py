"""A list over several pages."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import msgspec

from cli.stand_in import Request, answer
from e2e.either import Either, collected
from rota import AsyncClient, Client
from rota.wire.webhook import WebhookForm
from sdk.lasting import Lasting


def form(number: int) -> Any:
    return msgspec.to_builtins(
        WebhookForm(
            id=f"webhook-{number}", url="http://a/", events=[], state="enabled", created_at=datetime.now(UTC),
            disabled_at=None, disabled_reason=None, failures=0, held_until=None, old_secret_until=None, pending=0,
        )
    )  # fmt: skip


def paged(request: Request) -> bytes:
    """Each page begins with the last of the one before, as if that had moved meanwhile."""
    begin = int(request.target.partition("cursor=webhook-")[2] or 1)
    following = None if begin == 3 else f"webhook-{begin + 1}"
    return answer({"webhooks": [form(begin), form(begin + 1)], "next": following})


def test_what_is_on_two_pages_comes_once(server: Lasting, kind: type[Client | AsyncClient]) -> None:
    server.reply = paged

    def ids(**asked: Any) -> list[str]:
        client = Either(kind(home=server.home.root, starts=False))
        return [each.id for each in asyncio.run(collected(client.webhooks(**asked)))]

    assert ids() == ["webhook-1", "webhook-2", "webhook-3", "webhook-4"]
    assert ids(limit=3) == ["webhook-1", "webhook-2", "webhook-3"]

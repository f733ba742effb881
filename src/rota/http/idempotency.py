"""Calls of the engine that are carried out once per idempotency key."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, TypeVar, cast

import msgspec
from starlette.responses import Response

from rota.engine.idempotency import IdempotentRequest, StoredResponse, find_response
from rota.engine.transaction import Transaction
from rota.http.endpoint import Invocation, JsonReply

T = TypeVar("T")
U = TypeVar("U")
F = TypeVar("F")
R = TypeVar("R", bound=JsonReply[Any] | Response | None)


class CallResult(Generic[R, U]):
    """Reply to a call, and the rendered result."""

    def __init__(self, reply: R, rendered: Sequence[U]) -> None:
        self.reply = reply
        self.rendered = rendered
        """Rendered result of the call; empty if the reply is a stored one."""


def render_unchanged(_tx: Transaction, results: Sequence[T]) -> Sequence[T]:
    """Return results that are already in the form to show."""
    return results


async def run_call(
    call: Invocation[Any, Any],
    operation: Callable[[Transaction], T],
    render: Callable[[Transaction, Sequence[T]], Sequence[U]],
    make_reply: Callable[[U], R],
) -> CallResult[R, U]:
    """Carry out a call, and return its reply. With a key, the reply is stored if it is a JsonReply; any other response
    means that nothing was done. `render` is called once for all calls of a turn that share it. Both it and `make_reply`
    run in the turn's transaction, so neither may block."""
    if call.key is None:
        rendered = await call.context.run_and_render(operation, render)
        return CallResult(make_reply(rendered), [rendered])
    replies: list[Any] = []

    def make_stored(rendered: U) -> StoredResponse | None:
        reply = make_reply(rendered)
        if not isinstance(reply, JsonReply):
            replies[:] = [reply]
            return None
        stored = reply.to_stored()
        replies[:] = [JsonReply(msgspec.Raw(stored.body), stored.status, reply.headers)]
        return stored

    idempotency = IdempotentRequest(key=call.key.key, digest=call.key.digest, render=make_stored)
    result = await call.context.run_once(idempotency, operation, render)
    if isinstance(result, StoredResponse):
        return CallResult(cast("R", JsonReply.replay(result)), [])
    return CallResult(replies[0], [result])


async def run_external_call(
    call: Invocation[Any, Any], operation: Callable[[], Awaitable[JsonReply[F]]]
) -> JsonReply[F]:
    """Carry out an operation outside the store, and store its reply for the key. If the scheduler stops in between, a
    repeated request carries it out again."""
    key = call.key
    if key is None:
        return await operation()
    stored = await call.context.read(lambda reader: find_response(reader, *key))
    if stored is not None:
        return JsonReply.replay(stored)
    reply = await operation()
    return (await run_call(call, lambda _: reply, render_unchanged, lambda rendered: rendered)).reply

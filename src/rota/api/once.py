"""Carrying a call out in the engine, once if it has a key."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, TypeVar, cast

import msgspec
from starlette.responses import Response

from rota.api.endpoint import Call, Reply
from rota.engine.once import Once, Told, told_before
from rota.engine.work import Work

T = TypeVar("T")
U = TypeVar("U")
F = TypeVar("F")
R = TypeVar("R", bound=Reply[Any] | Response | None)


class Done(Generic[R, U]):
    def __init__(self, reply: R, seen: Sequence[U]) -> None:
        self.reply = reply
        self.seen = seen
        """What was seen at the end of the turn, one thing; nothing where the reply is one of before."""


def as_it_is(_work: Work, results: Sequence[T]) -> Sequence[T]:
    """For what needs no further look to be shown."""
    return results


async def carry_out(
    call: Call[Any, Any], act: Callable[[Work], T], see: Callable[[Work, Sequence[T]], Sequence[U]],
    tell: Callable[[U], R],
) -> Done[R, U]:  # fmt: skip
    """What `tell` makes is kept for the key if it is a reply; all else says that nothing was done. `see` is called once
    for all calls of a turn that share it, in their transaction; `tell` in it too, so neither may wait for anything."""
    if call.key is None:
        shown = await call.context.perform_and_see(act, see)
        return Done(tell(shown), [shown])
    answers: list[Any] = []

    def kept(shown: U) -> Told | None:
        reply = tell(shown)
        if not isinstance(reply, Reply):
            answers[:] = [reply]
            return None
        told = reply.told()
        answers[:] = [Reply(msgspec.Raw(told.body), told.status, reply.headers)]
        return told

    once = Once(key=call.key.key, digest=call.key.digest, tell=kept)
    seen = await call.context.perform_once(once, act, see)
    if isinstance(seen, Told):
        return Done(cast("R", Reply.repeated(seen)), [])
    return Done(answers[0], [seen])


async def carry_outside(call: Call[Any, Any], do: Callable[[], Awaitable[Reply[F]]]) -> Reply[F]:
    """The same of what is not done in the store: the reply is kept when it is there. If the scheduler goes away before
    that, who asks again has it done again."""
    key = call.key
    if key is None:
        return await do()
    told = await call.context.look(lambda reader: told_before(reader, *key))
    if told is not None:
        return Reply.repeated(told)
    reply = await do()
    return (await carry_out(call, lambda _: reply, as_it_is, lambda kept: kept)).reply

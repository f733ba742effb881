"""Implementations of operation_contracts.py: they return their arguments."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

from rota.db.session import AnyReader
from rota.engine.transaction import Transaction
from rota.errors import Conflict
from tests import operation_contracts as ops
from tests.operation_schemas import Arguments, Color, NumberPage


def _show(arguments: Mapping[str, Any], *hidden: str) -> Arguments:
    return Arguments(repr({name: value for name, value in arguments.items() if name not in hidden}))


@ops.get_thing.reads
def get_thing(
    reader: AnyReader,
    job: str,
    key: str,
    *,
    text: str | None = None,
    count: int = 3,
    ratio: float | None = None,
    flag: bool = False,
    default_on: bool = True,
    wait: timedelta = timedelta(seconds=90),
    order: str = "up",
    color: Color | None = None,
    jobs: Sequence[str] = (),
    sizes: Sequence[int] = (),
    pauses: Sequence[timedelta] = (),
) -> Arguments:
    return _show(locals(), "reader")


async def _count_words(context: object, name: str, *_: object, **__: object) -> int:
    return len(name.split())


@ops.add_thing.prepared_by(_count_words).writes
def add_thing(
    tx: Transaction,
    words: int,
    name: str,
    parts: Sequence[str] = (),
    *,
    labels: Sequence[str],
    env: Mapping[str, str] = {},
    size: int | None = None,
    ttl: timedelta | None = None,
    after: str | None = None,
    force: bool = False,
) -> Arguments:
    if name == "taken":
        raise Conflict("taken exists; choose another name")
    return _show(locals(), "tx")


@ops.change_thing.writes
def change_thing(tx: Transaction, key: str, *, size: int = 1) -> Arguments:
    return _show(locals(), "tx")


@ops.remove_thing.writes
def remove_thing(tx: Transaction, key: str, *, force: bool = False) -> Arguments:
    return _show(locals(), "tx")


@ops.reset_things.writes
def reset_things(tx: Transaction) -> Arguments:
    return _show(locals(), "tx")


@ops.list_numbers.reads
def list_numbers(reader: AnyReader, *, limit: int = 100, cursor: str | None = None) -> NumberPage:
    first = int(cursor or 0)
    last = min(first + limit, 2500)
    return NumberPage([*range(first, last)], str(last) if last < 2500 else None)


@ops.watch_numbers.streams
async def watch_numbers(context: object, *, end: int) -> AsyncIterator[int]:
    for number in range(end):
        yield number

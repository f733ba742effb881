"""A request that is carried out once, however often it comes: what it is told is stored in the same transaction.

    first time       act, see, tell; the answer is kept under its key
    again            the answer of then, whatever has become of the thing since, also by another scheduler
    another request  with the same key: refused

What is refused leaves nothing under its key: who mends his request may send it with the same one.

What cannot be answered for a long time (a direct execution) is noted under its key when it begins, and the note gives
way to the answer when there is one. Who asks again meanwhile finds the note, and goes on from there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from rota.errors import KeyReused
from rota.ids import SlotId
from rota.store.session import Looking

BEGUN = 102
"""The status of a note: what has begun and has no answer yet. In HTTP that would be `Processing`."""


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """An answer as it was given."""

    status: int
    body: bytes


UNTOLD = Told(
    status=500,
    body=b'{"type":"/problems/error","title":"Something went wrong","status":500,"code":"error",'
    b'"detail":"it was done, but a defect in Rota keeps it from being told; `rota.log` in the home has the details"}',
)


class Once(msgspec.Struct, frozen=True, kw_only=True):
    key: str
    digest: str
    """Of the request that the key stands for."""
    tell: Callable[[Any], Told | None]
    """The answer to what came of it; none where that is not to be kept, for nothing was done."""


def told_before(reader: Looking, key: str, digest: str) -> Told | None:
    """None also where there is only a note."""
    found = _found(reader, key, digest)
    return None if found is None or found.status == BEGUN else found


def noted_before(reader: Looking, key: str, digest: str) -> Note | None:
    """What was noted of the same request, if that has begun and has no answer yet."""
    found = _found(reader, key, digest)
    return None if found is None or found.status != BEGUN else read_note(found.body)


def _found(reader: Looking, key: str, digest: str) -> Told | None:
    found = reader.answer(key)
    if found is None:
        return None
    before, status, body = found
    if before != digest:
        raise KeyReused("this Idempotency-Key came with another request before; use a new key for a new request")
    return Told(status=status, body=body.encode())


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """What has begun. It outlasts versions: a field that is added has a default."""

    slot: SlotId
    warnings: list[str] = []


def note(begun: Note) -> Told:
    return Told(status=BEGUN, body=msgspec.json.encode(begun))


def read_note(body: bytes) -> Note:
    return msgspec.json.decode(body, type=Note)

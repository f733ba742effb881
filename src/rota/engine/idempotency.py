"""Idempotent requests: the response is stored under the key of the request, in the same transaction.

    first time                   run, render, store the response
    repeated                     return the stored response, whatever has changed since, also after a restart
    other request with this key  refused

A refused request stores nothing, so a corrected request may use the same key.

A request that takes long (a direct execution) stores a pending response when it begins, and replaces it by the final
one at its end. A repeated request finds the pending response and continues from there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from rota.db.session import AnyReader
from rota.errors import IdempotencyKeyReused
from rota.ids import ReservationId

PENDING_STATUS = 102
"""Status of a pending response, after HTTP `102 Processing`."""


class StoredResponse(msgspec.Struct, frozen=True, kw_only=True):
    """A response as it was sent."""

    status: int
    body: bytes


UNRENDERABLE = StoredResponse(
    status=500,
    body=b'{"type":"/problems/error","title":"Internal error","status":500,"code":"error",'
    b'"detail":"the request was carried out, but its response cannot be rendered; see `rota.log` in the home"}',
)


class IdempotentRequest(msgspec.Struct, frozen=True, kw_only=True):
    key: str
    digest: str
    """Digest of the request."""
    render: Callable[[Any], StoredResponse | None]
    """Function from the result to the response; returns `None` if nothing was done and nothing is to be stored."""


def find_response(reader: AnyReader, key: str, digest: str) -> StoredResponse | None:
    """Return the final response; `None` also if the response is pending."""
    stored = _find_stored(reader, key, digest)
    return None if stored is None or stored.status == PENDING_STATUS else stored


def find_pending(reader: AnyReader, key: str, digest: str) -> PendingResponse | None:
    """Return the pending response, if the request has begun and has no final one."""
    stored = _find_stored(reader, key, digest)
    return None if stored is None or stored.status != PENDING_STATUS else decode_pending(stored.body)


def _find_stored(reader: AnyReader, key: str, digest: str) -> StoredResponse | None:
    row = reader.responses.find(key)
    if row is None:
        return None
    stored_digest, status, body = row
    if stored_digest != digest:
        raise IdempotencyKeyReused("this Idempotency-Key was used for a different request; use a new key")
    return StoredResponse(status=status, body=body.encode())


class PendingResponse(msgspec.Struct, frozen=True, kw_only=True):
    """The stored state of a request in progress. Later versions read it: a new field needs a default."""

    reservation: ReservationId
    warnings: list[str] = []


def encode_pending(pending: PendingResponse) -> StoredResponse:
    return StoredResponse(status=PENDING_STATUS, body=msgspec.json.encode(pending))


def decode_pending(body: bytes) -> PendingResponse:
    return msgspec.json.decode(body, type=PendingResponse)

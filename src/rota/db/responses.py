"""Storage of the responses to requests with an idempotency key."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from rota.db.database import SCAN_ROWS, Database
from rota.db.decoding import to_micros


class ResponseRecords:
    def __init__(self, database: Database) -> None:
        self._db = database

    def find(self, key: str) -> tuple[str, int, str] | None:
        """Return the stored response of an idempotency key: the digest of its request, the status and the body."""
        rows = self._db.rows("find_response", key=key)
        return None if not rows else (rows[0][0], rows[0][1], rows[0][2])

    def old_keys(self, until: datetime) -> list[str]:
        """Return the idempotency keys whose responses are older than `until`."""
        old: list[str] = []
        last_key = ""
        while page := self._db.rows("response_keys", key=last_key, limit=SCAN_ROWS):
            old += [key for key, at in page if at < to_micros(until)]
            last_key = page[-1][0]
        return old

    def with_status(self, status: int) -> list[tuple[str, str]]:
        """Return the key and the body of every stored response with this status."""
        responses: list[tuple[str, str]] = []
        last_key = ""
        while page := self._db.rows("responses_with_status", key=last_key, status=status, limit=SCAN_ROWS):
            responses += [(key, body) for key, body in page]
            last_key = page[-1][0]
        return responses

    def for_keys(self, keys: Sequence[str], status: int) -> list[tuple[str, str]]:
        """Return the key and the body of the stored responses with this status, for these keys only."""
        rows = self._db.rows("responses_for_keys", keys=list(keys), status=status) if keys else []
        return [(key, body) for key, body in rows]


class Responses(ResponseRecords):
    def add(self, key: str, digest: str, status: int, response: str, now: datetime) -> None:
        self._db.run("add_response", key=key, digest=digest, status=status, response=response, at=to_micros(now))

    def remove(self, keys: Sequence[str]) -> int:
        return self._db.run("remove_responses", keys=list(keys)) if keys else 0

    def remove_old(self, keys: Sequence[str], until: datetime) -> int:
        """Remove the responses with these keys that are older than `until`."""
        return self._db.run("remove_old_responses", keys=list(keys), until=to_micros(until)) if keys else 0

"""The stream of a slot taken apart: lines of JSON, some of them followed by as many bytes as they say."""

from __future__ import annotations

import json
from collections.abc import Iterator

from rota.client.problem import BadAnswer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rota.client.ask import Json

_LONGEST_LINE = 1 << 24


class Frames:
    def __init__(self) -> None:
        self._rest = bytearray()
        self._head: Json | None = None
        """Read, and its bytes are not all here."""

    def feed(self, data: bytes) -> Iterator[tuple[Json, bytes]]:
        """What is whole by now: each line with the bytes that belong to it."""
        self._rest += data
        while True:
            if self._head is None:
                self._head = self._line()
            size = 0 if self._head is None else int(self._head.get("size", 0))
            if self._head is None or len(self._rest) < size:
                return
            head, self._head = self._head, None
            payload = bytes(self._rest[:size])
            del self._rest[:size]
            yield head, payload

    def _line(self) -> Json | None:
        end = self._rest.find(b"\n")
        if end < 0:
            if len(self._rest) > _LONGEST_LINE:
                raise BadAnswer("the scheduler's stream has no end of line; is it another version? see `rota doctor`")
            return None
        line = bytes(self._rest[:end])
        del self._rest[: end + 1]
        try:
            head: Json = json.loads(line)
        except ValueError:
            raise BadAnswer(f"the scheduler's stream cannot be read: {line[:40]!r}; see `rota doctor`") from None
        return head

"""Decoder of a reservation's stream: lines of JSON, each followed by as many bytes of output as it announces."""

from __future__ import annotations

import json
from collections.abc import Iterator

from rota.client.problem import InvalidResponse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rota.client.requests import Json

_MAX_LINE_BYTES = 1 << 24


class FrameDecoder:
    """An incremental decoder of frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._header: Json | None = None
        """Header of the frame whose bytes are incomplete."""

    def feed(self, data: bytes) -> Iterator[tuple[Json, bytes]]:
        """Decode received bytes, and yield each complete line with its bytes of output."""
        self._buffer += data
        while True:
            if self._header is None:
                self._header = self._take_header()
            size = 0 if self._header is None else int(self._header.get("size", 0))
            if self._header is None or len(self._buffer) < size:
                return
            header, self._header = self._header, None
            payload = bytes(self._buffer[:size])
            del self._buffer[:size]
            yield header, payload

    def _take_header(self) -> Json | None:
        end = self._buffer.find(b"\n")
        if end < 0:
            if len(self._buffer) > _MAX_LINE_BYTES:
                raise InvalidResponse(
                    "the scheduler's stream has a line that is too long; it may be another version: see `rota doctor`"
                )
            return None
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        try:
            header: Json = json.loads(line)
        except ValueError:
            raise InvalidResponse(
                f"the scheduler's stream cannot be decoded: {line[:40]!r}; see `rota doctor`"
            ) from None
        return header

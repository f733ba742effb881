"""Incremental decoder of HTTP/1.1 responses.

It is fed with the received bytes and returns the bytes of the body. So the same code serves a short response, a long
poll that a selector watches together with others, and a log that is followed for hours.
"""

from __future__ import annotations

from collections.abc import Callable

from rota.client.problem import InvalidResponse

_MAX_LINE_BYTES = 65_536
_STATUSES_WITHOUT_BODY = (204, 304)


class ResponseDecoder:
    """An incremental decoder of one response."""

    def __init__(self) -> None:
        self.status = 0
        """HTTP status; 0 until the head is complete."""
        self.headers: dict[str, str] = {}
        self.is_finished = False
        self._closes_connection = False
        self._buffer = bytearray()
        self._body = bytearray()
        self._remaining = 0
        self._step: Callable[[], bool] = self._parse_status_line

    @property
    def is_connection_reusable(self) -> bool:
        """Whether the connection can be used for another request: this response is complete, no data follows it, and
        neither side announced to close the connection."""
        return self.is_finished and not self._closes_connection and not self._buffer

    def feed(self, data: bytes) -> bytes:
        """Decode received bytes, and return the bytes of the body among them. Empty data is the end of the
        connection."""
        if not data and self._step == self._parse_until_close:
            self.is_finished = self._closes_connection = True
        self._buffer += data
        # Each step returns whether it made progress; without progress it needs more bytes.
        while not self.is_finished and self._step():
            pass
        body, self._body = bytes(self._body), bytearray()
        return body

    def _take_line(self) -> bytes | None:
        end = self._buffer.find(b"\r\n")
        if end < 0:
            if len(self._buffer) > _MAX_LINE_BYTES:
                raise InvalidResponse(
                    "the response on the socket is not HTTP; `rota doctor` shows which process listens"
                )
            return None
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 2]
        return line

    def _parse_status_line(self) -> bool:
        line = self._take_line()
        if line is None:
            return False
        parts = line.split(b" ", 2)
        if len(parts) < 2 or not parts[0].startswith(b"HTTP/1.") or not parts[1].isdigit():
            raise InvalidResponse(
                f"the response on the socket is not HTTP ({line[:40]!r}); `rota doctor` shows which process listens"
            )
        self.status = int(parts[1])
        self._closes_connection = parts[0] == b"HTTP/1.0"
        self._step = self._parse_header
        return True

    def _parse_header(self) -> bool:
        line = self._take_line()
        if line is None:
            return False
        if line:
            name, _, value = line.decode("latin-1").partition(":")
            self.headers[name.strip().lower()] = value.strip()
        else:
            self._choose_body_parser()
        return True

    def _choose_body_parser(self) -> None:
        length = self.headers.get("content-length")
        self._closes_connection |= self.headers.get("connection", "").lower() == "close"
        if self.status < 200:  # An interim response, such as 100 Continue: the final one follows.
            self.headers.clear()
            self._step = self._parse_status_line
        elif self.status in _STATUSES_WITHOUT_BODY or length == "0":
            self.is_finished = True
        elif self.headers.get("transfer-encoding", "").lower() == "chunked":
            self._step = self._parse_chunk_size
        elif length is None:
            self._step = self._parse_until_close
        elif length.isdigit():
            self._remaining = int(length)
            self._step = self._parse_sized_body
        else:
            raise InvalidResponse(f"the scheduler sent an invalid Content-Length: {length!r}")

    def _take_body(self) -> bool:
        part = self._buffer[: self._remaining]
        del self._buffer[: len(part)]
        self._remaining -= len(part)
        self._body += part
        return bool(part)

    def _parse_sized_body(self) -> bool:
        progress = self._take_body()
        self.is_finished = self._remaining == 0
        return progress

    def _parse_chunk_size(self) -> bool:
        line = self._take_line()
        if line is None:
            return False
        try:
            self._remaining = int(line.split(b";", 1)[0], 16)
        except ValueError:
            raise InvalidResponse(f"the scheduler sent an invalid chunk size: {line[:40]!r}") from None
        self._step = self._parse_chunk if self._remaining else self._parse_trailer
        return True

    def _parse_chunk(self) -> bool:
        progress = self._take_body()
        if self._remaining == 0:
            self._step = self._parse_chunk_end
        return progress

    def _parse_chunk_end(self) -> bool:
        if self._take_line() is None:
            return False
        self._step = self._parse_chunk_size
        return True

    def _parse_trailer(self) -> bool:
        line = self._take_line()
        self.is_finished = line == b""
        return line is not None

    def _parse_until_close(self) -> bool:
        self._body += self._buffer
        self._buffer.clear()
        return False

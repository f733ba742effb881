"""An HTTP/1.1 answer, decoded as its bytes come in.

It is fed whatever the socket gives and hands out the body's bytes, so that one piece of code serves a short answer,
a long poll watched with others by a selector, and a log followed for hours.
"""

from __future__ import annotations

from collections.abc import Callable

from rota.client.problem import BadAnswer

_LONGEST_HEAD = 65_536
_BODILESS = (204, 304)


class Decoder:
    def __init__(self) -> None:
        self.status = 0
        """0 until the head is complete."""
        self.headers: dict[str, str] = {}
        self.finished = False
        self._is_last = False
        self._waiting = bytearray()
        self._body = bytearray()
        self._left = 0
        self._step: Callable[[], bool] = self._head

    @property
    def can_go_on(self) -> bool:
        """Whether another answer can come over the same connection: this one is whole, nothing came after it, and
        nobody said that it is the last."""
        return self.finished and not self._is_last and not self._waiting

    def feed(self, data: bytes) -> bytes:
        """Take in what was received; return what of it is body. Empty data is the end of the connection."""
        if not data and self._step == self._rest:
            self.finished = self._is_last = True
        self._waiting += data
        # Each step says whether it got anywhere; without progress it needs more bytes.
        while not self.finished and self._step():
            pass
        body, self._body = bytes(self._body), bytearray()
        return body

    def _line(self) -> bytes | None:
        end = self._waiting.find(b"\r\n")
        if end < 0:
            if len(self._waiting) > _LONGEST_HEAD:
                raise BadAnswer("the answer on the socket is not HTTP; `rota doctor` says what listens there")
            return None
        line = bytes(self._waiting[:end])
        del self._waiting[: end + 2]
        return line

    def _head(self) -> bool:
        line = self._line()
        if line is None:
            return False
        parts = line.split(b" ", 2)
        if len(parts) < 2 or not parts[0].startswith(b"HTTP/1.") or not parts[1].isdigit():
            raise BadAnswer(f"the answer on the socket is not HTTP ({line[:40]!r}); `rota doctor` says what listens")
        self.status = int(parts[1])
        self._is_last = parts[0] == b"HTTP/1.0"
        self._step = self._header
        return True

    def _header(self) -> bool:
        line = self._line()
        if line is None:
            return False
        if line:
            name, _, value = line.decode("latin-1").partition(":")
            self.headers[name.strip().lower()] = value.strip()
        else:
            self._choose_body()
        return True

    def _choose_body(self) -> None:
        length = self.headers.get("content-length")
        self._is_last |= self.headers.get("connection", "").lower() == "close"
        if self.status < 200:  # 100 Continue and its like: the answer proper follows.
            self.headers.clear()
            self._step = self._head
        elif self.status in _BODILESS or length == "0":
            self.finished = True
        elif self.headers.get("transfer-encoding", "").lower() == "chunked":
            self._step = self._chunk_size
        elif length is None:
            self._step = self._rest
        elif length.isdigit():
            self._left = int(length)
            self._step = self._sized
        else:
            raise BadAnswer(f"the scheduler sent a length that is none: {length!r}")

    def _take(self) -> bool:
        part = self._waiting[: self._left]
        del self._waiting[: len(part)]
        self._left -= len(part)
        self._body += part
        return bool(part)

    def _sized(self) -> bool:
        progress = self._take()
        self.finished = self._left == 0
        return progress

    def _chunk_size(self) -> bool:
        line = self._line()
        if line is None:
            return False
        try:
            self._left = int(line.split(b";", 1)[0], 16)
        except ValueError:
            raise BadAnswer(f"the scheduler sent a chunk without a size: {line[:40]!r}") from None
        self._step = self._chunk if self._left else self._trailer
        return True

    def _chunk(self) -> bool:
        progress = self._take()
        if self._left == 0:
            self._step = self._chunk_end
        return progress

    def _chunk_end(self) -> bool:
        if self._line() is None:
            return False
        self._step = self._chunk_size
        return True

    def _trailer(self) -> bool:
        line = self._line()
        self.finished = line == b""
        return line is not None

    def _rest(self) -> bool:
        self._body += self._waiting
        self._waiting.clear()
        return False

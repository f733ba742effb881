"""Server-sent events, taken apart as their bytes come in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple


class Message(NamedTuple):
    event: str
    data: bytes
    id: str | None
    """Of this message, or of the last before it that had one."""


class Messages:
    def __init__(self) -> None:
        self._rest = b""
        self._event = ""
        self._data: list[bytes] = []
        self._id: str | None = None

    def feed(self, data: bytes) -> Iterator[Message]:
        """Those that are whole by now."""
        *lines, self._rest = (self._rest + data).replace(b"\r\n", b"\n").split(b"\n")
        for line in lines:
            if line:
                self._take(*line.split(b":", 1))
            elif self._data:
                yield Message(self._event or "message", b"\n".join(self._data), self._id)
                self._event, self._data = "", []
            else:
                self._event = ""

    def _take(self, field: bytes, value: bytes = b"") -> None:
        """A line without a field is a comment: the sender says that it is still there."""
        value = value.removeprefix(b" ")
        if field == b"event":
            self._event = value.decode()
        elif field == b"data":
            self._data.append(value)
        elif field == b"id":
            self._id = value.decode()

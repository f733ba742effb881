"""Server-sent events taken apart: blocks of lines, each with an id, a name and data."""

from __future__ import annotations

import json
from collections.abc import Iterator

from rota.client.problem import BadAnswer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_LONGEST = 1 << 24


class Message:
    __slots__ = ("data", "event", "id")

    def __init__(self, event: str, data: str, id: str | None) -> None:  # noqa: A002 - its name in the format
        self.event = event
        """`message` where it has no name."""
        self.data = data
        self.id = id
        """Of this message or, where it has none, of the last that had: with it the stream is asked for again."""

    def json(self) -> Any:
        try:
            return json.loads(self.data)
        except ValueError:
            raise BadAnswer(f"the scheduler's stream cannot be read: {self.data[:40]!r}; see `rota doctor`") from None


class Messages:
    def __init__(self) -> None:
        self._rest = bytearray()
        self._fields: dict[str, list[str]] = {}
        self._id: str | None = None

    def feed(self, data: bytes) -> Iterator[Message]:
        """What is whole by now. Lines end as Rota ends them, by a line feed."""
        self._rest += data
        if len(self._rest) > _LONGEST and b"\n" not in self._rest:
            raise BadAnswer("the scheduler's stream has no end of line; is it another version? see `rota doctor`")
        *lines, self._rest = self._rest.split(b"\n")
        for line in lines:
            if not line:
                yield from self._ended()
            elif not line.startswith(b":"):
                name, _, value = line.decode("utf-8", "replace").partition(":")
                self._fields.setdefault(name, []).append(value.removeprefix(" "))

    def _ended(self) -> Iterator[Message]:
        fields, self._fields = self._fields, {}
        self._id = fields.get("id", [self._id])[-1]
        if "data" in fields:
            yield Message(fields.get("event", ["message"])[-1], "\n".join(fields["data"]), self._id)

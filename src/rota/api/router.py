"""From a request's path to its endpoint, by the path's segments: a literal one goes before a place.

/api/jobs/batch                    itself, and not the job called `batch`
/api/jobs/{job}/why
/api/pools/{name:path}             the rest of the path, slashes and all
/api/breakers/{key:path}/reset     the rest but for its end
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from rota.api.endpoint import Endpoint


class Found(NamedTuple):
    """The endpoints at a path, by method, and what stands in their places."""

    endpoints: Mapping[str, Endpoint]
    values: Sequence[str]

    def at(self, method: str) -> Endpoint | None:
        return self.endpoints.get("GET" if method == "HEAD" else method)

    @property
    def allowed(self) -> str:
        return ", ".join(sorted({*self.endpoints, *(("HEAD",) if "GET" in self.endpoints else ())}))


class _Node:
    def __init__(self) -> None:
        self.literals: dict[str, _Node] = {}
        self.place: _Node | None = None
        self.endpoints: dict[str, Endpoint] = {}
        self.rests: dict[tuple[str, ...], dict[str, Endpoint]] = {}
        """Those that take the rest of the path, by what it has to end with."""


class Router:
    def __init__(self, endpoints: Iterable[Endpoint]) -> None:
        self._root = _Node()
        self._whole: dict[str, Found] = {}
        """Paths with no place in them, which nothing else can be meant by: they are found at once."""
        for endpoint in endpoints:
            self._add(endpoint)

    def _add(self, endpoint: Endpoint) -> None:
        node = self._root
        for n, segment in enumerate(endpoint.segments):
            if segment.endswith(":path}"):
                _put(endpoint, node.rests.setdefault(endpoint.segments[n + 1 :], {}))
                return
            if segment.startswith("{"):
                node.place = node.place or _Node()
                node = node.place
            else:
                node = node.literals.setdefault(segment, _Node())
        _put(endpoint, node.endpoints)
        if not endpoint.places:
            self._whole[endpoint.path] = Found(node.endpoints, ())

    def find(self, path: str) -> Found | None:
        return self._whole.get(path) or _find(self._root, path.removeprefix("/").split("/"), ())

    def is_public(self, method: str, path: str) -> bool:
        """Whether it needs no token."""
        found = self.find(path)
        endpoint = None if found is None else found.at(method)
        return endpoint is not None and endpoint.is_public


def _put(endpoint: Endpoint, endpoints: dict[str, Endpoint]) -> None:
    if endpoint.method in endpoints:
        raise ValueError(f"two endpoints answer {endpoint.method} {endpoint.path}")
    endpoints[endpoint.method] = endpoint


def _find(node: _Node, segments: Sequence[str], values: tuple[str, ...]) -> Found | None:
    if not segments:
        return Found(node.endpoints, values) if node.endpoints else None
    first, *rest = segments
    if (literal := node.literals.get(first)) is not None and (found := _find(literal, rest, values)) is not None:
        return found
    if first and node.place is not None and (found := _find(node.place, rest, (*values, first))) is not None:
        return found
    for end, endpoints in sorted(node.rests.items(), key=lambda rest: -len(rest[0])):
        taken = segments[: len(segments) - len(end)]
        if any(taken) and tuple(segments[len(taken) :]) == end:
            return Found(endpoints, (*values, "/".join(taken)))
    return None

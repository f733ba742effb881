"""Router: finds the endpoint of a path by its segments. A literal segment has precedence over a parameter.

/api/jobs/batch                    the literal path, not the job `batch`
/api/jobs/{job}/why
/api/pools/{name:path}             the rest of the path, slashes included
/api/breakers/{key:path}/reset     the rest of the path except its last segment
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from rota.http.endpoint import Endpoint


class RouteMatch(NamedTuple):
    """Endpoints at a path by method, and the values of its path parameters."""

    endpoints: Mapping[str, Endpoint]
    values: Sequence[str]

    def endpoint_for(self, method: str) -> Endpoint | None:
        return self.endpoints.get("GET" if method == "HEAD" else method)

    @property
    def allowed_methods(self) -> str:
        return ", ".join(sorted({*self.endpoints, *(("HEAD",) if "GET" in self.endpoints else ())}))


class _Node:
    def __init__(self) -> None:
        self.literals: dict[str, _Node] = {}
        self.parameter: _Node | None = None
        self.endpoints: dict[str, Endpoint] = {}
        self.rest_endpoints: dict[tuple[str, ...], dict[str, Endpoint]] = {}
        """Endpoints that take the rest of the path, by the segments that it has to end with."""


class Router:
    def __init__(self, endpoints: Iterable[Endpoint]) -> None:
        self._root = _Node()
        self._static_routes: dict[str, RouteMatch] = {}
        """Matches of paths without parameters, which a lookup finds without a search."""
        for endpoint in endpoints:
            self._add(endpoint)

    def _add(self, endpoint: Endpoint) -> None:
        node = self._root
        for n, segment in enumerate(endpoint.segments):
            if segment.endswith(":path}"):
                _add_endpoint(endpoint, node.rest_endpoints.setdefault(endpoint.segments[n + 1 :], {}))
                return
            if segment.startswith("{"):
                node.parameter = node.parameter or _Node()
                node = node.parameter
            else:
                node = node.literals.setdefault(segment, _Node())
        _add_endpoint(endpoint, node.endpoints)
        if not endpoint.path_parameters:
            self._static_routes[endpoint.path] = RouteMatch(node.endpoints, ())

    def find(self, path: str) -> RouteMatch | None:
        return self._static_routes.get(path) or _find(self._root, path.removeprefix("/").split("/"), ())

    def is_public(self, method: str, path: str) -> bool:
        """Return whether the endpoint needs no token."""
        match = self.find(path)
        endpoint = None if match is None else match.endpoint_for(method)
        return endpoint is not None and endpoint.is_public


def _add_endpoint(endpoint: Endpoint, endpoints: dict[str, Endpoint]) -> None:
    if endpoint.method in endpoints:
        raise ValueError(f"two endpoints answer {endpoint.method} {endpoint.path}")
    endpoints[endpoint.method] = endpoint


def _find(node: _Node, segments: Sequence[str], values: tuple[str, ...]) -> RouteMatch | None:
    if not segments:
        return RouteMatch(node.endpoints, values) if node.endpoints else None
    first, *rest = segments
    if (literal := node.literals.get(first)) is not None and (match := _find(literal, rest, values)) is not None:
        return match
    if first and node.parameter is not None and (match := _find(node.parameter, rest, (*values, first))) is not None:
        return match
    for end, endpoints in sorted(node.rest_endpoints.items(), key=lambda item: -len(item[0])):
        captured = segments[: len(segments) - len(end)]
        if any(captured) and tuple(segments[len(captured) :]) == end:
            return RouteMatch(endpoints, (*values, "/".join(captured)))
    return None

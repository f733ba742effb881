"""Paths of `[direct.routes]` that change while the body of a request arrives."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from rota.direct.endpoints import find_route


def test_route_removed_during_a_request_keeps_its_template() -> None:
    config = SimpleNamespace(routes={"/run/t": "t"})
    context: Any = SimpleNamespace(control=SimpleNamespace(config=config, check_config=lambda: None))
    match = find_route(context, "/run/t")
    assert match is not None
    config.routes = {}
    assert match.endpoints["POST"].path_values(match.values) == {"route": "run/t", "template": "t"}
    assert find_route(context, "/run/t") is None

"""A path of `[direct.routes]`, between the moment when it was found and the one when its body has come."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from rota.api.direct import find_route


def test_a_path_that_is_taken_away_while_its_body_comes_still_has_its_template() -> None:
    config = SimpleNamespace(routes={"/run/t": "t"})
    context: Any = SimpleNamespace(control=SimpleNamespace(config=config, look_at_config=lambda: None))
    found = find_route(context, "/run/t")
    assert found is not None
    config.routes = {}
    assert found.endpoints["POST"].path_of(found.values) == {"route": "run/t", "template": "t"}
    assert find_route(context, "/run/t") is None

"""`[direct.routes]`: paths of one's own, none of which hides one of Rota's."""

from __future__ import annotations

from pathlib import Path

import pytest

from rota.api.app import ENDPOINTS
from rota.config import UNSET, edit, get, listing, load
from rota.config.section import OWN_PATHS, is_route
from rota.errors import ConfigError, InvalidInput


@pytest.fixture
def toml(tmp_path: Path) -> Path:
    return tmp_path / "rota.toml"


def test_none_of_rotas_own_paths_can_be_a_route() -> None:
    paths = [endpoint.path for endpoint in ENDPOINTS]
    assert len(paths) > 40
    assert {path.split("/")[1] for path in paths} <= set(OWN_PATHS)
    assert not any(is_route(path.replace("{", "").replace("}", "")) for path in paths)


@pytest.mark.parametrize("path", ["/story", "/story/generate", "/v1.0/a_b-c", "/apis", "/jobs.json"])
def test_a_path_of_ones_own(toml: Path, path: str) -> None:
    toml.write_text(f'[direct]\nwait = "1m"\n[direct.routes]\n"{path}" = "story"\n')
    assert load(toml).routes == {path: "story"}
    assert listing(load(toml))[f"direct.routes.{path}"] == "story"
    edit(toml, f"direct.routes.{path}", "other")
    assert get(load(toml), f"direct.routes.{path}") == "other"
    edit(toml, f"direct.routes.{path}", UNSET)
    assert load(toml).routes == {}
    assert load(toml).direct.wait.total_seconds() == 60


@pytest.mark.parametrize(
    "path",
    ["/api", "/api/jobs", "/health", "/jobs/story", "/scheduler/x", "/", "story", "/a/", "/a//b", "/a b", "/{x}"],
)  # fmt: skip
def test_what_cannot_be_a_route_is_refused_when_the_file_is_read(toml: Path, path: str) -> None:
    toml.write_text(f'[direct.routes]\n"{path}" = "story"\n')
    with pytest.raises(ConfigError, match=r"unknown key direct\.routes.*a route is a path such as /story/generate"):
        load(toml)
    before = toml.read_text()
    with pytest.raises(InvalidInput, match="a route is a path such as"):
        edit(toml, f"direct.routes.{path}", "story")
    assert toml.read_text() == before


def test_a_route_names_a_template(toml: Path) -> None:
    toml.write_text('[direct.routes]\n"/story" = 5\n')
    with pytest.raises(ConfigError, match="it takes the name of a template"):
        load(toml)

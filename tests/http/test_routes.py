"""Custom paths in `[direct.routes]`, which must not hide reserved paths."""

from __future__ import annotations

from pathlib import Path

import pytest

from rota.config import UNSET, edit, get, list_values, load
from rota.config.section import RESERVED_PATHS, is_route
from rota.errors import ConfigError, InvalidInput
from rota.routes import ENDPOINTS


@pytest.fixture
def toml(tmp_path: Path) -> Path:
    return tmp_path / "rota.toml"


def test_reserved_paths_cover_all_endpoints() -> None:
    paths = [endpoint.path for endpoint in ENDPOINTS]
    assert len(paths) > 40
    assert {path.split("/")[1] for path in paths} <= set(RESERVED_PATHS)
    assert not any(is_route(path.replace("{", "").replace("}", "")) for path in paths)


@pytest.mark.parametrize("path", ["/story", "/story/generate", "/v1.0/a_b-c", "/apis", "/jobs.json"])
def test_custom_route_is_loaded_and_edited(toml: Path, path: str) -> None:
    toml.write_text(f'[direct]\nwait = "1m"\n[direct.routes]\n"{path}" = "story"\n')
    assert load(toml).routes == {path: "story"}
    assert list_values(load(toml))[f"direct.routes.{path}"] == "story"
    edit(toml, f"direct.routes.{path}", "other")
    assert get(load(toml), f"direct.routes.{path}") == "other"
    edit(toml, f"direct.routes.{path}", UNSET)
    assert load(toml).routes == {}
    assert load(toml).direct.wait.total_seconds() == 60


@pytest.mark.parametrize(
    "path",
    ["/api", "/api/jobs", "/health", "/jobs/story", "/scheduler/x", "/", "story", "/a/", "/a//b", "/a b", "/{x}"],
)
def test_invalid_route_is_refused(toml: Path, path: str) -> None:
    toml.write_text(f'[direct.routes]\n"{path}" = "story"\n')
    with pytest.raises(ConfigError, match=r"unknown key direct\.routes.*a route is a path such as /story/generate"):
        load(toml)
    before = toml.read_text()
    with pytest.raises(InvalidInput, match="a route is a path such as"):
        edit(toml, f"direct.routes.{path}", "story")
    assert toml.read_text() == before


def test_route_value_must_be_a_template_name(toml: Path) -> None:
    toml.write_text('[direct.routes]\n"/story" = 5\n')
    with pytest.raises(ConfigError, match="it takes the name of a template"):
        load(toml)

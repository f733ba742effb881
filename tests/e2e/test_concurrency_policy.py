"""A concurrency policy from a plugin, selected in the configuration."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.rig import ChildControl, Rota
from tests.engine.test_policy import install


@pytest.fixture
def rota(make_rota: Callable[..., Rota], tmp_path: Path) -> Rota:
    packages = tmp_path / "packages"
    packages.mkdir()
    install(packages, night=":Night")
    return make_rota(PYTHONPATH=str(packages))


def test_policy_decides_the_demand_of_a_job(rota: Rota, children: ChildControl) -> None:
    rota.run("config", "set", "pools.global", "-1")
    rota.run("pool", "set", "resource/night", "3")
    before = rota.submit("--type", "story", *children.gated("before"))
    rota.run("config", "set", "scheduler.policy", "night")
    heavy = rota.submit("--type", "story", *children.gated("heavy"))
    light = rota.submit(*children.gated("light"))
    assert sorted(children.read_lines(2)) == ["before begins", "heavy begins"]
    assert rota.show(before)["pools"] == {"global": 1, "type/story": 1}
    assert rota.show(heavy)["pools"] == {"global": 1, "resource/night": 3}
    assert rota.show(light)["wait"]["detail"] == "waiting on pool resource/night (3/3)"
    children.release("heavy")
    assert children.read_lines(2) == ["heavy ends", "light begins"]
    children.release("light")
    children.release("before")
    rota.wait(before, heavy, light)


def test_unknown_policy_is_refused_with_the_known_names(rota: Rota) -> None:
    output = rota.run("config", "set", "scheduler.policy", "nihgt", code=2)
    assert "unknown concurrency policy 'nihgt'; known: pools, night" in output.err
    (rota.home / "rota.toml").write_text('[scheduler]\npolicy = "nihgt"\n')
    assert "known: pools, night" in rota.run("submit", "--", "true", code=1).err


def test_unloadable_policy_leaves_the_previous_one_active(rota: Rota, tmp_path: Path) -> None:
    rota.start()
    (tmp_path / "packages/rota_night.py").write_text("import nothing_of_that_name\n")
    output = rota.run("config", "set", "scheduler.policy", "night", code=2)
    assert "the concurrency policy night cannot be loaded: ModuleNotFoundError" in output.err
    assert rota.run("config", "get", "scheduler.policy").out == "pools\n", "an invalid value is not written"
    assert rota.json("submit", "--", "true")["job"]["pools"] == {"global": 1}

"""A policy of one's own, installed beside Rota and named in the configuration."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from e2e.rig import Rota, Stage
from engine.test_policy import install


@pytest.fixture
def rota(make_rota: Callable[..., Rota], tmp_path: Path) -> Rota:
    packages = tmp_path / "packages"
    packages.mkdir()
    install(packages, night=":Night")
    return make_rota(PYTHONPATH=str(packages))


def test_it_decides_what_a_job_draws(rota: Rota, stage: Stage) -> None:
    rota.ask("config", "set", "pools.global", "-1")
    rota.ask("pool", "set", "resource/night", "3")
    before = rota.submit("--type", "story", *stage.actor("before"))
    rota.ask("config", "set", "scheduler.policy", "night")
    heavy = rota.submit("--type", "story", *stage.actor("heavy"))
    light = rota.submit(*stage.actor("light"))
    assert sorted(stage.hear(2)) == ["before begins", "heavy begins"]
    assert rota.show(before)["pools"] == {"global": 1, "type/story": 1}
    assert rota.show(heavy)["pools"] == {"global": 1, "resource/night": 3}
    assert rota.show(light)["wait"]["detail"] == "waiting on pool resource/night (3/3)"
    stage.release("heavy")
    assert stage.hear(2) == ["heavy ends", "light begins"]
    stage.release("light")
    stage.release("before")
    rota.wait(before, heavy, light)


def test_an_unknown_name_is_refused_with_what_there_is(rota: Rota) -> None:
    said = rota.ask("config", "set", "scheduler.policy", "nihgt", code=2)
    assert "no concurrency policy is called 'nihgt'; there is pools, night" in said.err
    (rota.home / "rota.toml").write_text('[scheduler]\npolicy = "nihgt"\n')
    assert "there is pools, night" in rota.ask("submit", "--", "true", code=1).err


def test_one_that_cannot_be_loaded_any_more_leaves_the_one_before_in_force(rota: Rota, tmp_path: Path) -> None:
    rota.start()
    (tmp_path / "packages/rota_night.py").write_text("import nothing_of_that_name\n")
    said = rota.ask("config", "set", "scheduler.policy", "night", code=2)
    assert "the concurrency policy night cannot be loaded: ModuleNotFoundError" in said.err
    assert rota.ask("config", "get", "scheduler.policy").out == "pools\n", "nothing is written that cannot be used"
    assert rota.json("submit", "--", "true")["job"]["pools"] == {"global": 1}

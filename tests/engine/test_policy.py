"""Concurrency policies of a user: found by entry point, called at submit, checked before anything is stored."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rota.config import load
from rota.engine.settings import load_concurrency_policy
from rota.errors import ConfigError, InvalidInput
from rota.kernel.pools import PluginPolicy, PoolPolicy
from tests.harness import Scheduler, SqlRunner

PLUGIN = '''
class Night:
    """Stories are heavy, and everything of a target takes turns."""

    def pool_demand(self, job):
        own = {f"target/{job.target}": 1} if job.target else {}
        return {"resource/night": 3 if job.type == "story" else 1, **own}


night = Night()
broken = None


def raises():
    raise RuntimeError("no")
'''


def install(directory: Path, **points: str) -> None:
    """Write a package with its metadata, as an installer leaves it."""
    (directory / "rota_night.py").write_text(PLUGIN)
    info = directory / "rota_night-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: rota-night\nVersion: 1.0\n")
    lines = "".join(f"{name} = rota_night{at}\n" for name, at in points.items())
    (info / "entry_points.txt").write_text(f"[rota.concurrency_policy]\n{lines}")


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "packages"
    directory.mkdir()
    monkeypatch.syspath_prepend(str(directory))
    monkeypatch.delitem(sys.modules, "rota_night", raising=False)
    install(
        directory, night=":Night", made=":night", broken=":broken", raises=":raises", absent=":Absent", pools=":Night"
    )
    return directory


def test_policy_is_found_by_name(installed: Path, unlimited_scheduler: Scheduler) -> None:
    for name in ("night", "made"):
        unlimited_scheduler.configure(policy=load_concurrency_policy(name))
        job = unlimited_scheduler.submit(type="story", target="web")
        assert unlimited_scheduler.job(job).demand == {"global": 1, "target/web": 1, "resource/night": 3}
        assert list(unlimited_scheduler.job(job).demand) == ["global", "target/web", "resource/night"], (
            "in the order of the wait details"
        )


def test_built_in_pools_policy_cannot_be_replaced(installed: Path) -> None:
    assert isinstance(load_concurrency_policy("pools"), PoolPolicy)


def test_unknown_policy_is_refused_with_known_names(installed: Path, tmp_path: Path) -> None:
    toml = tmp_path / "rota.toml"
    toml.write_text('[scheduler]\npolicy = "nihgt"\n')
    with pytest.raises(ConfigError) as refusal:
        load(toml)
    assert refusal.value.message == (
        "scheduler.policy = \"nihgt\" in rota.toml cannot be used: unknown concurrency policy 'nihgt'; known:"
        " pools, absent, broken, made, night, raises (a package adds a policy with an entry point in the group"
        " rota.concurrency_policy)"
    )
    toml.write_text('[scheduler]\npolicy = "night"\n')
    assert load(toml).scheduler.policy == "night"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("absent", "the concurrency policy absent cannot be loaded: AttributeError"),
        ("broken", "broken is not a concurrency policy: it has no method pool_demand(job)"),
        ("raises", "raises is not a concurrency policy: it has no method pool_demand(job)"),
        ("missing", "unknown concurrency policy 'missing'"),
    ],
)
def test_policy_that_cannot_be_loaded_is_a_config_error(installed: Path, name: str, text: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        load_concurrency_policy(name)
    assert refusal.value.message.startswith(f"scheduler.policy: {text}")


class FixedPolicy:
    def __init__(self, demand: Any) -> None:
        self._demand = demand

    def pool_demand(self, job: Any) -> Mapping[str, int]:
        if isinstance(self._demand, Exception):
            raise self._demand
        demand: Mapping[str, int] = self._demand
        return demand


@pytest.mark.parametrize(
    ("demand", "text"),
    [
        (RuntimeError("lost"), "failed: RuntimeError('lost')"),
        (None, "failed: TypeError"),
        ([("resource/a", 1)], "failed: TypeError"),
        ({"gpu": 1}, "returned an invalid pool name: 'gpu'"),
        ({"flow/*": 1}, "returned an invalid pool name: 'flow/*'"),
        ({7: 1}, "returned an invalid pool name: 7"),
        ({"resource/a": 0}, "returned the weight 0 for resource/a; a weight is from 1 to 1000000"),
        ({"resource/a": True}, "returned the weight True for resource/a; a weight is from 1 to 1000000"),
        ({"resource/a": 1.5}, "returned the weight 1.5 for resource/a; a weight is from 1 to 1000000"),
        ({"global": -1}, "returned the weight -1 for global; a weight is from 1 to 1000000"),
    ],
)
def test_invalid_demand_refuses_the_submit_and_names_the_policy(
    unlimited_scheduler: Scheduler, run_sql: SqlRunner, demand: Any, text: str
) -> None:
    unlimited_scheduler.configure(policy=PluginPolicy("mine", FixedPolicy(demand)))
    with pytest.raises(InvalidInput) as refusal:
        unlimited_scheduler.submit()
    assert refusal.value.message.startswith(f"the concurrency policy mine {text}")
    assert refusal.value.message.endswith("; nothing was stored")
    assert run_sql("SELECT count(*) FROM job") == run_sql("SELECT count(*) FROM spec") == [(0,)]
    unlimited_scheduler.configure(policy=PoolPolicy())
    assert unlimited_scheduler.started_jobs() == []
    unlimited_scheduler.submit()
    assert len(unlimited_scheduler.started_jobs()) == 1


def test_global_pool_applies_to_every_policy(unlimited_scheduler: Scheduler) -> None:
    unlimited_scheduler.configure(policy=PluginPolicy("mine", FixedPolicy({})))
    unlimited_scheduler.set_pools(**{"global": 0})
    job = unlimited_scheduler.submit(type="story")
    assert (unlimited_scheduler.job(job).demand, unlimited_scheduler.started_jobs()) == ({"global": 1}, [])
    unlimited_scheduler.set_pools(**{"global": 1})
    assert unlimited_scheduler.started_jobs() == [job]


def test_changed_policy_applies_to_later_submits(unlimited_scheduler: Scheduler) -> None:
    unlimited_scheduler.set_pools(resource__night=1)
    before = [unlimited_scheduler.submit() for _ in range(2)]
    unlimited_scheduler.configure(policy=PluginPolicy("mine", FixedPolicy({"resource/night": 1})))
    after = [unlimited_scheduler.submit() for _ in range(2)]
    assert unlimited_scheduler.started_jobs() == [*before, after[0]]
    unlimited_scheduler.configure(policy=PoolPolicy())
    assert unlimited_scheduler.wait_detail(after[1]) == "waiting on pool resource/night (1/1)"
    retried = unlimited_scheduler.submit(retries=1)
    assert unlimited_scheduler.job(retried).demand == {"global": 1}


def test_weight_from_a_policy_above_pool_size_is_refused(unlimited_scheduler: Scheduler) -> None:
    unlimited_scheduler.set_pools(resource__night=2)
    unlimited_scheduler.configure(policy=PluginPolicy("mine", FixedPolicy({"resource/night": 3})))
    with pytest.raises(InvalidInput, match="needs 3 of resource/night, whose size is 2"):
        unlimited_scheduler.submit()

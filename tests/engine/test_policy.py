"""A concurrency policy of one's own: found by its entry point, asked at submit, checked before anything is stored."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from harness import Raw, Scheduler
from rota.config import load
from rota.core.pool import NamedPolicy, PoolPolicy
from rota.engine.policy import policy_named
from rota.errors import ConfigError, InvalidInput
from rota.view.why import why

PLUGIN = '''
class Night:
    """Stories are heavy, and everything of a target takes turns."""

    def draws(self, job):
        own = {f"target/{job.target}": 1} if job.target else {}
        return {"resource/night": 3 if job.type == "story" else 1, **own}


night = Night()
broken = None


def raises():
    raise RuntimeError("no")
'''


def install(directory: Path, **points: str) -> None:
    """A package with its metadata, as an installer leaves it."""
    (directory / "rota_night.py").write_text(PLUGIN)
    info = directory / "rota_night-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: rota-night\nVersion: 1.0\n")
    lines = "".join(f"{name} = rota_night{at}\n" for name, at in points.items())
    (info / "entry_points.txt").write_text(f"[rota.concurrency_policy]\n{lines}")


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "packages"
    place.mkdir()
    monkeypatch.syspath_prepend(str(place))
    monkeypatch.delitem(sys.modules, "rota_night", raising=False)
    install(place, night=":Night", made=":night", broken=":broken", raises=":raises", absent=":Absent", pools=":Night")
    return place


def test_it_is_found_by_name(installed: Path, wide: Scheduler) -> None:
    for name in ("night", "made"):
        wide.configure(policy=policy_named(name))
        job = wide.submit(type="story", target="web")
        assert wide.job(job).draws == {"global": 1, "target/web": 1, "resource/night": 3}
        assert list(wide.job(job).draws) == ["global", "target/web", "resource/night"], "in the speaking order"


def test_pools_is_rotas_own_whoever_claims_the_name(installed: Path) -> None:
    assert isinstance(policy_named("pools"), PoolPolicy)


def test_an_unknown_name_is_refused_with_what_there_is(installed: Path, tmp_path: Path) -> None:
    toml = tmp_path / "rota.toml"
    toml.write_text('[scheduler]\npolicy = "nihgt"\n')
    with pytest.raises(ConfigError) as refused:
        load(toml)
    assert refused.value.message == (
        "scheduler.policy = \"nihgt\" in rota.toml cannot be used: no concurrency policy is called 'nihgt'; there is"
        " pools, absent, broken, made, night, raises (a package adds one by an entry point in the group"
        " rota.concurrency_policy)"
    )
    toml.write_text('[scheduler]\npolicy = "night"\n')
    assert load(toml).scheduler.policy == "night"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("absent", "the concurrency policy absent cannot be loaded: AttributeError"),
        ("broken", "broken is no concurrency policy: it has no method draws(job)"),
        ("raises", "raises is no concurrency policy: it has no method draws(job)"),
        ("nobody", "no concurrency policy is called 'nobody'"),
    ],
)
def test_what_cannot_be_loaded_is_a_config_error(installed: Path, name: str, text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        policy_named(name)
    assert refused.value.message.startswith(f"scheduler.policy: {text}")


class Says:
    def __init__(self, said: Any) -> None:
        self._said = said

    def draws(self, job: Any) -> Mapping[str, int]:
        if isinstance(self._said, Exception):
            raise self._said
        said: Mapping[str, int] = self._said
        return said


@pytest.mark.parametrize(
    ("said", "text"),
    [
        (RuntimeError("lost"), "failed: RuntimeError('lost')"),
        (None, "failed: TypeError"),
        ([("resource/a", 1)], "failed: TypeError"),
        ({"gpu": 1}, "says that the job draws from 'gpu', which is no pool"),
        ({"flow/*": 1}, "says that the job draws from 'flow/*', which is no pool"),
        ({7: 1}, "says that the job draws from 7, which is no pool"),
        ({"resource/a": 0}, "says that the job draws 0 from resource/a: it is 1 to 1000000"),
        ({"resource/a": True}, "says that the job draws True from resource/a: it is 1 to 1000000"),
        ({"resource/a": 1.5}, "says that the job draws 1.5 from resource/a: it is 1 to 1000000"),
        ({"global": -1}, "says that the job draws -1 from global: it is 1 to 1000000"),
    ],
)
def test_nonsense_refuses_the_submit_by_the_policys_name_and_stores_nothing(
    wide: Scheduler, raw: Raw, said: Any, text: str
) -> None:
    wide.configure(policy=NamedPolicy("mine", Says(said)))
    with pytest.raises(InvalidInput) as refused:
        wide.submit()
    assert refused.value.message.startswith(f"the concurrency policy mine {text}")
    assert refused.value.message.endswith("; nothing was stored")
    assert raw("SELECT count(*) FROM job") == raw("SELECT count(*) FROM spec") == [(0,)]
    wide.configure(policy=PoolPolicy())
    assert wide.started() == []
    wide.submit()
    assert len(wide.started()) == 1


def test_global_is_the_switch_for_all(wide: Scheduler) -> None:
    wide.configure(policy=NamedPolicy("mine", Says({})))
    wide.set_pools(**{"global": 0})
    job = wide.submit(type="story")
    assert (wide.job(job).draws, wide.started()) == ({"global": 1}, [])
    wide.set_pools(**{"global": 1})
    assert wide.started() == [job]


def test_a_changed_policy_is_for_jobs_submitted_from_then_on(wide: Scheduler) -> None:
    wide.set_pools(resource__night=1)
    before = [wide.submit() for _ in range(2)]
    wide.configure(policy=NamedPolicy("mine", Says({"resource/night": 1})))
    after = [wide.submit() for _ in range(2)]
    assert wide.started() == [*before, after[0]]
    wide.configure(policy=PoolPolicy())
    assert wide.detail(after[1]) == "waiting on pool resource/night (1/1)"
    retried = wide.submit(retries=1)
    assert wide.job(retried).draws == {"global": 1}


def test_its_weights_are_warned_of_and_why_repeats_it(wide: Scheduler) -> None:
    wide.set_pools(resource__night=2)
    wide.configure(policy=NamedPolicy("mine", Says({"resource/night": 3})))
    told = wide.submitted()
    assert told.warnings == ["pool resource/night has size 2, the job draws 3: it cannot start until the pool grows"]
    assert why(wide.reader, told.jobs[0], wide.sight).warnings == told.warnings

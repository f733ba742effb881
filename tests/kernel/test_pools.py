"""Pools: the demand of a job, its messages, and the effect of a job that does not fit on later jobs."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.kernel.job import Spec
from rota.kernel.pools import PoolBoard, PoolPolicy, PoolSizes, pool_sort_key
from rota.kernel.status import Status
from rota.kernel.verdict import PASS, Pass, Wait, WaitKind
from tests.kernel.factories import rank


def _spec(pools: Mapping[str, int] | None = None, **fields: str) -> Spec:
    return Spec(command=("true",), cwd="/", environment=1, pools=pools or {}, **fields)  # type: ignore[arg-type]


def _full(name: str, used: int, size: int) -> Wait:
    return Wait(
        status=Status.QUEUED,
        kind=WaitKind.CAPACITY,
        detail=f"waiting on pool {name} ({used}/{size})",
        on=(f"pool:{name}",),
    )


@pytest.mark.parametrize(
    ("spec", "demand"),
    [
        (_spec(), {"global": 1}),
        (_spec(type="story"), {"global": 1, "type/story": 1}),
        (_spec(flow="plan"), {"global": 1, "flow/plan": 1}),
        (_spec(target="web"), {"global": 1, "target/web": 1}),
        (_spec({"resource/ollama": 1}), {"global": 1, "resource/ollama": 1}),
        (_spec({"global": 3}), {"global": 3}),
        (_spec({"type/story": 2}, type="story"), {"global": 1, "type/story": 2}),
        (_spec({"type/image": 2}, type="story"), {"global": 1, "type/image": 2, "type/story": 1}),
        (
            _spec({"resource/gpu": 2, "resource/cpu": 8, "global": 2}, type="story", flow="plan", target="web"),
            {"global": 2, "type/story": 1, "flow/plan": 1, "target/web": 1, "resource/cpu": 8, "resource/gpu": 2},
        ),
    ],
)
def test_dec_011_demand_of_a_job(spec: Spec, demand: Mapping[str, int]) -> None:
    assert list(PoolPolicy().pool_demand(spec).items()) == list(demand.items())


@given(
    st.dictionaries(
        st.sampled_from(["global", "type/a", "type/b", "flow/a", "target/a", "resource/a", "resource/b"]),
        st.integers(1, 9),
    )
)
def test_demand_is_independent_of_request_order(pools: dict[str, int]) -> None:
    """Equal demand means the same lane, in whatever order the pools were requested."""
    reordered = dict(reversed(pools.items()))
    demand = PoolPolicy().pool_demand(Spec(command=("true",), cwd="/", environment=1, pools=pools))
    reordered_demand = PoolPolicy().pool_demand(Spec(command=("true",), cwd="/", environment=1, pools=reordered))
    assert list(demand.items()) == list(reordered_demand.items())


def test_pool_sort_order_is_global_type_flow_target_resource_name() -> None:
    names = ["global", "type/a", "type/b", "flow/a", "flow/global", "target/a", "resource/a", "resource/type"]
    assert sorted(set(names), key=pool_sort_key) == names


def test_first_full_pool_in_sort_order_gives_the_reason() -> None:
    spec = _spec({"resource/b": 1, "resource/a": 1}, type="t", flow="f", target="x")
    demand = PoolPolicy().pool_demand(spec)
    sizes = dict.fromkeys(demand, 1)
    order = ["global", "type/t", "flow/f", "target/x", "resource/a", "resource/b"]
    for position, name in enumerate(order):
        board = PoolBoard(PoolSizes(sizes), dict.fromkeys(order[position:], 1))
        assert board.judge(demand) == _full(name, 1, 1)


SIZES = {"global": -1, "flow/*": 1, "flow/plan": 3, "flow/free": -1, "type/*": -1, "target/web": 0, "resource/*": 0}


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("global", None),
        ("flow/plan", 3),
        ("flow/other", 1),
        ("flow/free", None),
        ("type/story", None),
        ("target/web", 0),
        ("target/other", None),
        ("resource/ollama", 0),
    ],
)
def test_exact_size_overrides_wildcard_and_negative_is_unlimited(name: str, size: int | None) -> None:
    assert PoolSizes(SIZES).size(name) == size


def test_wildcard_does_not_apply_to_global() -> None:
    assert PoolSizes({"global/*": 1}).size("global") is None


@pytest.mark.parametrize(
    ("size", "used", "weight", "fits"),
    [
        (1, 0, 1, True),
        (1, 1, 1, False),
        (0, 0, 1, False),
        (-1, 0, 1, True),
        (-1, 10_000, 100, True),
        (3, 1, 2, True),
        (3, 2, 2, False),
        (2, 5, 1, False),
    ],
)
def test_dec_011_room_is_size_minus_usage_and_lowered_limit_drains(
    size: int, used: int, weight: int, fits: bool
) -> None:
    board = PoolBoard(PoolSizes({"global": size}), {"global": used})
    verdict = board.judge({"global": weight})
    assert verdict == (PASS if fits else _full("global", used, size))


def test_con_002_ollama_jobs_take_turns_and_others_continue() -> None:
    board = PoolBoard(PoolSizes({"global": 9, "resource/ollama": 1}), {})
    ollama = PoolPolicy().pool_demand(_spec({"resource/ollama": 1}))
    assert board.judge(ollama) == PASS
    board.allocate(ollama)
    assert board.judge(ollama) == _full("resource/ollama", 1, 1)
    assert board.judge(PoolPolicy().pool_demand(_spec())) == PASS


def test_wildcard_limits_each_pool_separately() -> None:
    board = PoolBoard(PoolSizes({"flow/*": 1}), {"flow/a": 1})
    assert board.judge({"global": 1, "flow/a": 1}) == _full("flow/a", 1, 1)
    assert board.judge({"global": 1, "flow/b": 1}) == PASS


def test_close_affects_only_pools_without_room() -> None:
    board = PoolBoard(PoolSizes({"resource/gpu": 4, "resource/cpu": 4}), {"resource/gpu": 3, "resource/cpu": 3})
    heavy = {"resource/cpu": 1, "resource/gpu": 2}
    assert board.judge(heavy) == _full("resource/gpu", 3, 4)
    board.close(heavy, rank(9))
    verdict = board.judge({"resource/gpu": 1})
    assert isinstance(verdict, Wait)
    assert verdict.detail == "waiting on pool resource/gpu (3/4)"
    assert board.is_closed({"resource/gpu": 1})
    assert board.judge({"resource/cpu": 1}) == PASS
    assert not board.is_closed({"resource/cpu": 1})


def test_closed_pool_holds_later_jobs_and_names_the_closing_job() -> None:
    board = PoolBoard(PoolSizes({"global": 3}), {"global": 2})
    board.close({"global": 2}, rank(5))
    assert board.judge({"global": 1}, rank(4)) == PASS
    verdict = board.judge({"global": 1}, rank(6))
    assert isinstance(verdict, Wait)
    assert (verdict.detail, verdict.on) == ("waiting on pool global (2/3)", ("pool:global", "job:5"))


def test_close_for_fitting_job_closes_no_pool() -> None:
    board = PoolBoard(PoolSizes({"global": 2}), {"global": 1})
    board.close({"global": 1, "type/free": 5}, rank(9))
    assert not board.is_closed({"global": 1, "type/free": 5})


def test_unlimited_pool_is_never_closed() -> None:
    board = PoolBoard(PoolSizes({"global": 0}), {})
    board.close({"global": 1}, rank(9))
    assert board.judge({"resource/tape": 7}) == PASS


def test_allocate_adds_to_usage() -> None:
    board = PoolBoard(PoolSizes({"global": 5}), {"global": 1})
    board.allocate({"global": 2, "type/story": 1})
    assert (board.used("global"), board.used("type/story"), board.used("flow/plan")) == (3, 1, 0)


names = st.sampled_from(["global", "type/a", "flow/a", "flow/b", "resource/a"])
limits = st.dictionaries(
    st.sampled_from(["global", "type/*", "type/a", "flow/*", "flow/a", "resource/a"]), st.integers(-1, 5)
)
uses = st.dictionaries(names, st.integers(0, 6))
demands = st.dictionaries(names, st.integers(1, 4), min_size=1)


@given(limits, uses, st.lists(demands, max_size=20))
def test_dec_011_no_pool_is_ever_exceeded(
    sizes: dict[str, int], used: dict[str, int], jobs: list[dict[str, int]]
) -> None:
    """Allocation after a pass stays within the size; a pool that is over its size accepts nothing more."""
    board = PoolBoard(PoolSizes(sizes), used)
    for demand in jobs:
        if isinstance(board.judge(demand), Pass):
            board.allocate(demand)
        else:
            board.close(demand, rank(9))
        for name in {*used, *demand}:
            size = PoolSizes(sizes).size(name)
            assert size is None or board.used(name) <= max(size, used.get(name, 0))


@given(limits, uses, demands)
def test_wait_names_a_pool_without_room(sizes: dict[str, int], used: dict[str, int], demand: dict[str, int]) -> None:
    verdict = PoolBoard(PoolSizes(sizes), used).judge(demand)
    lacking = [
        name
        for name, weight in demand.items()
        if (size := PoolSizes(sizes).size(name)) is not None and used.get(name, 0) + weight > size
    ]
    if oversized := [name for name, weight in demand.items() if 0 < (PoolSizes(sizes).size(name) or 0) < weight]:
        name = oversized[0]
        assert isinstance(verdict, Wait)
        assert verdict.detail == f"needs {demand[name]} of {name}, whose size is {PoolSizes(sizes).size(name)}"
    elif isinstance(verdict, Wait):
        assert verdict.on == (f"pool:{lacking[0]}",)
        assert (
            verdict.detail
            == f"waiting on pool {lacking[0]} ({used.get(lacking[0], 0)}/{PoolSizes(sizes).size(lacking[0])})"
        )
    else:
        assert not lacking


@pytest.mark.parametrize(
    ("spec", "warnings"),
    [
        (_spec(), []),
        (_spec({"global": 2}), []),
        (_spec({"global": 3}), ["pool global has size 2, the job draws 3: it cannot start until the pool grows"]),
        (_spec(flow="plan"), []),
        (_spec(type="story"), []),
        (
            _spec({"type/story": 1}, type="story"),
            ["pool type/story has no limit: set one with `rota pool set type/story N`"],
        ),
        (_spec({"resource/gpu": 1}), ["pool resource/gpu has no limit: set one with `rota pool set resource/gpu N`"]),
        (
            _spec({"resource/ollama": 4, "resource/gpu": 1}),
            [
                "pool resource/gpu has no limit: set one with `rota pool set resource/gpu N`",
                "pool resource/ollama has size 1, the job draws 4: it cannot start until the pool grows",
            ],
        ),
        (_spec(target="off"), ["pool target/off has size 0, the job draws 1: it cannot start until the pool grows"]),
    ],
)
def test_unstartable_or_unlimited_demand_gives_warnings(spec: Spec, warnings: list[str]) -> None:
    sizes = PoolSizes({"global": 2, "flow/*": 1, "resource/ollama": 1, "target/off": 0})
    assert sizes.warnings(PoolPolicy().pool_demand(spec), spec.pools) == warnings


def test_unlimited_global_gives_no_warning() -> None:
    spec = _spec({"global": 4})
    assert PoolSizes({"global": -1}).warnings(PoolPolicy().pool_demand(spec), spec.pools) == []

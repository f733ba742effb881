"""Pools: what a job draws, what it is told, and what a job that does not fit does to those behind it."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.making import rank
from rota.core.job import Spec
from rota.core.pool import Limits, PoolBoard, PoolPolicy, speaking_order
from rota.core.status import Status
from rota.core.verdict import PASS, Pass, Wait
from rota.core.wait import WaitKind


def _spec(pools: Mapping[str, int] | None = None, **fields: str) -> Spec:
    return Spec(command=("true",), cwd="/", surroundings=1, pools=pools or {}, **fields)  # type: ignore[arg-type]


def _full(name: str, used: int, size: int) -> Wait:
    return Wait(
        status=Status.QUEUED,
        kind=WaitKind.CAPACITY,
        detail=f"waiting on pool {name} ({used}/{size})",
        on=(f"pool:{name}",),
    )


@pytest.mark.parametrize(
    ("spec", "draws"),
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
def test_dec_011_what_a_job_draws(spec: Spec, draws: Mapping[str, int]) -> None:
    assert list(PoolPolicy().draws(spec).items()) == list(draws.items())


@given(
    st.dictionaries(
        st.sampled_from(["global", "type/a", "type/b", "flow/a", "target/a", "resource/a", "resource/b"]),
        st.integers(1, 9),
    )
)
def test_draws_do_not_depend_on_the_order_in_which_they_were_asked_for(pools: dict[str, int]) -> None:
    """The same draws are one lane, however they were written."""
    turned = dict(reversed(pools.items()))
    one = PoolPolicy().draws(Spec(command=("true",), cwd="/", surroundings=1, pools=pools))
    other = PoolPolicy().draws(Spec(command=("true",), cwd="/", surroundings=1, pools=turned))
    assert list(one.items()) == list(other.items())


def test_the_speaking_order_is_global_type_flow_target_resource_and_then_the_name() -> None:
    names = ["global", "type/a", "type/b", "flow/a", "flow/global", "target/a", "resource/a", "resource/type"]
    assert sorted(set(names), key=speaking_order) == names


def test_of_several_full_pools_the_first_in_that_order_speaks() -> None:
    spec = _spec({"resource/b": 1, "resource/a": 1}, type="t", flow="f", target="x")
    draws = PoolPolicy().draws(spec)
    sizes = dict.fromkeys(draws, 1)
    order = ["global", "type/t", "flow/f", "target/x", "resource/a", "resource/b"]
    for position, name in enumerate(order):
        board = PoolBoard(Limits(sizes), dict.fromkeys(order[position:], 1))
        assert board.judge(draws) == _full(name, 1, 1)


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
def test_a_line_of_its_own_comes_before_the_wildcard_and_less_than_nought_is_no_limit(
    name: str, size: int | None
) -> None:
    assert Limits(SIZES).size(name) == size


def test_no_wildcard_speaks_for_global() -> None:
    assert Limits({"global/*": 1}).size("global") is None


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
        (2, 0, 3, False),
        (2, 5, 1, False),
    ],
)
def test_dec_011_room_is_size_minus_used_and_a_lowered_limit_drains(
    size: int, used: int, weight: int, fits: bool
) -> None:
    board = PoolBoard(Limits({"global": size}), {"global": used})
    verdict = board.judge({"global": weight})
    assert verdict == (PASS if fits else _full("global", used, size))


def test_con_002_jobs_that_use_ollama_take_turns_and_others_go_on() -> None:
    board = PoolBoard(Limits({"global": 9, "resource/ollama": 1}), {})
    ollama = PoolPolicy().draws(_spec({"resource/ollama": 1}))
    assert board.judge(ollama) == PASS
    board.take(ollama)
    assert board.judge(ollama) == _full("resource/ollama", 1, 1)
    assert board.judge(PoolPolicy().draws(_spec())) == PASS


def test_a_pool_that_a_wildcard_limits_counts_by_itself() -> None:
    board = PoolBoard(Limits({"flow/*": 1}), {"flow/a": 1})
    assert board.judge({"global": 1, "flow/a": 1}) == _full("flow/a", 1, 1)
    assert board.judge({"global": 1, "flow/b": 1}) == PASS


def test_a_job_that_does_not_fit_closes_where_it_lacks_room_and_nowhere_else() -> None:
    board = PoolBoard(Limits({"resource/gpu": 4, "resource/cpu": 4}), {"resource/gpu": 3, "resource/cpu": 3})
    heavy = {"resource/cpu": 1, "resource/gpu": 2}
    assert board.judge(heavy) == _full("resource/gpu", 3, 4)
    board.close(heavy, rank(9))
    verdict = board.judge({"resource/gpu": 1})
    assert isinstance(verdict, Wait)
    assert verdict.detail == "waiting on pool resource/gpu (3/4)"
    assert board.is_closed({"resource/gpu": 1})
    assert board.judge({"resource/cpu": 1}) == PASS
    assert not board.is_closed({"resource/cpu": 1})


def test_a_pool_is_closed_to_those_behind_and_says_by_whom() -> None:
    board = PoolBoard(Limits({"global": 3}), {"global": 2})
    board.close({"global": 2}, rank(5))
    assert board.judge({"global": 1}, rank(4)) == PASS
    verdict = board.judge({"global": 1}, rank(6))
    assert isinstance(verdict, Wait)
    assert (verdict.detail, verdict.on) == ("waiting on pool global (2/3)", ("pool:global", "job:5"))


def test_closing_for_a_job_that_fits_closes_nothing() -> None:
    board = PoolBoard(Limits({"global": 2}), {"global": 1})
    board.close({"global": 1, "type/free": 5}, rank(9))
    assert not board.is_closed({"global": 1, "type/free": 5})


def test_a_job_that_draws_from_nothing_limited_is_never_closed_out() -> None:
    board = PoolBoard(Limits({"global": 0}), {})
    board.close({"global": 1}, rank(9))
    assert board.judge({"resource/tape": 7}) == PASS


def test_what_is_taken_is_used() -> None:
    board = PoolBoard(Limits({"global": 5}), {"global": 1})
    board.take({"global": 2, "type/story": 1})
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
    """Whoever takes after a yes stays within the size; a pool that was above it before takes nothing more."""
    board = PoolBoard(Limits(sizes), used)
    for draws in jobs:
        if isinstance(board.judge(draws), Pass):
            board.take(draws)
        else:
            board.close(draws, rank(9))
        for name in {*used, *draws}:
            size = Limits(sizes).size(name)
            assert size is None or board.used(name) <= max(size, used.get(name, 0))


@given(limits, uses, demands)
def test_a_no_names_a_pool_in_which_room_is_really_missing(
    sizes: dict[str, int], used: dict[str, int], draws: dict[str, int]
) -> None:
    verdict = PoolBoard(Limits(sizes), used).judge(draws)
    lacking = [
        name
        for name, weight in draws.items()
        if (size := Limits(sizes).size(name)) is not None and used.get(name, 0) + weight > size
    ]
    if isinstance(verdict, Wait):
        assert verdict.on == (f"pool:{lacking[0]}",)
        assert (
            verdict.detail
            == f"waiting on pool {lacking[0]} ({used.get(lacking[0], 0)}/{Limits(sizes).size(lacking[0])})"
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
def test_what_cannot_start_or_holds_nothing_is_accepted_with_a_warning(spec: Spec, warnings: list[str]) -> None:
    sizes = Limits({"global": 2, "flow/*": 1, "resource/ollama": 1, "target/off": 0})
    assert sizes.warnings(PoolPolicy().draws(spec), spec.pools) == warnings


def test_a_named_global_without_a_limit_is_direct_mode_and_no_reason_to_warn() -> None:
    spec = _spec({"global": 4})
    assert Limits({"global": -1}).warnings(PoolPolicy().draws(spec), spec.pools) == []

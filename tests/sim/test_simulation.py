"""A sample of the seeds; `make soak SEEDS=10000` runs more."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.sample import SOAK
from tests.sim.plan import STEP_WEIGHTS, Plan, Step, make_plan
from tests.sim.search import find_failure, format_plan, shrink
from tests.sim.simulation import Simulation

_COUNTED_SEEDS = 30
"""Seeds whose successful steps are counted."""
FIRST_SEED = SOAK * 100_000 or _COUNTED_SEEDS
"""First of the other seeds."""
_MIN_STEPS = 3


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + (40 * SOAK or 10)))
def test_seed_violates_no_invariant(seed: int) -> None:
    plan = make_plan(seed)
    failure = find_failure(plan)
    if failure is not None:
        small, failure = shrink(plan, failure)
        pytest.fail(f"`python -m tests.sim {seed}` shrinks to\n{format_plan(small)}\n\n{failure}")


def test_each_kind_of_step_succeeds_sometimes() -> None:
    """A step that is always refused tests nothing. These seeds must not violate an invariant either: the last printed
    seed is the one that fails, and `python -m tests.sim SEED` shrinks it."""
    completed: Counter[str] = Counter()
    for seed in range(_COUNTED_SEEDS):
        print(f"seed {seed}")
        simulation = Simulation(make_plan(seed))
        try:
            simulation.run()
        finally:
            simulation.close()
        completed += simulation.completed_steps
    rare = {kind: completed[kind] for kind in STEP_WEIGHTS if completed[kind] < _MIN_STEPS}
    assert not rare


def test_plan_of_a_seed_is_deterministic() -> None:
    assert make_plan(7) == make_plan(7)
    assert make_plan(7) != make_plan(8)


def test_shrink_keeps_only_necessary_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    def find_failure(plan: Plan) -> str | None:
        kinds = [step.kind for step in plan.steps]
        fails = "pause" in kinds and "crash" in kinds[kinds.index("pause") :]
        return '  File "judge.py", line 1\nAssertionError' if fails else None

    monkeypatch.setattr("tests.sim.search.find_failure", find_failure)
    steps = tuple(
        Step(kind, 0) for kind in ("submit", "pass_time", "pause", "submit", "resize_pool", "crash", "pass_time")
    )
    small, _ = shrink(Plan(seed=0, steps=steps), str(find_failure(Plan(seed=0, steps=steps))))
    assert [step.kind for step in small.steps] == ["pause", "crash"]

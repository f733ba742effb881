"""A sample of the seeds; `make soak SEEDS=10000` runs more of them."""

from __future__ import annotations

from collections import Counter

import pytest

from sample import SOAK
from sim.plan import VERBS, Plan, Step, plan_of
from sim.search import fault_of, show, shrink
from sim.simulation import Simulation

_FIXED = 30
"""Of these the steps are counted, at the same time as they are judged."""
FIRST = SOAK * 100_000 or _FIXED
"""More of them are others."""
_A_FEW = 5


@pytest.mark.parametrize("seed", range(FIRST, FIRST + (40 * SOAK or 10)))
def test_whatever_happens_the_promises_hold(seed: int) -> None:
    plan = plan_of(seed)
    fault = fault_of(plan)
    if fault is not None:
        small, fault = shrink(plan, fault)
        pytest.fail(f"`PYTHONPATH=tests python -m sim {seed}` comes down to\n{show(small)}\n\n{fault}")


def test_of_each_verb_some_steps_are_not_refused() -> None:
    """A step that is always refused proves nothing. The promises hold here too: the last seed that is named is the one
    that fails, and `PYTHONPATH=tests python -m sim SEED` makes it small."""
    done: Counter[str] = Counter()
    for seed in range(_FIXED):
        print(f"seed {seed}")
        simulation = Simulation(plan_of(seed))
        try:
            simulation.run()
        finally:
            simulation.close()
        done += simulation.done
    rare = {verb: done[verb] for verb in VERBS if done[verb] < _A_FEW}
    assert not rare


def test_a_seed_is_the_same_every_time() -> None:
    assert plan_of(7) == plan_of(7)
    assert plan_of(7) != plan_of(8)


def test_what_fails_is_made_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many steps those are left without which it would not fail."""

    def judged(plan: Plan) -> str | None:
        verbs = [step.verb for step in plan.steps]
        fails = "pause" in verbs and "crash" in verbs[verbs.index("pause") :]
        return '  File "judge.py", line 1\nAssertionError' if fails else None

    monkeypatch.setattr("sim.search.fault_of", judged)
    steps = tuple(Step(verb, 0) for verb in ("submit", "time", "pause", "submit", "limit", "crash", "time"))
    small, _ = shrink(Plan(seed=0, steps=steps), str(judged(Plan(seed=0, steps=steps))))
    assert [step.verb for step in small.steps] == ["pause", "crash"]

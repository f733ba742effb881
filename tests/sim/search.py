"""Runs of seeds, and shrinking of failures."""

from __future__ import annotations

import argparse
import logging
import time
import traceback
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor

import msgspec

from tests.sim.plan import Plan, Step, make_plan
from tests.sim.simulation import Simulation

_MAX_SHRINK_RUNS = 400


def find_failure(plan: Plan) -> str | None:
    """Run the plan, and return its traceback, or `None` if it succeeds."""
    return _run_plan(plan)[0]


def _run_plan(plan: Plan) -> tuple[str | None, list[str]]:
    """Run the plan, and return its traceback, and the results of the steps up to there."""
    simulation = Simulation(plan)
    try:
        simulation.run()
    except Exception:  # noqa: BLE001 - any exception is a failure
        return traceback.format_exc(), simulation.step_results
    finally:
        simulation.close()
    return None, simulation.step_results


def _failure_location(failure: str) -> str:
    """Return the innermost location. Failures with the same location count as the same."""
    locations = [line for line in failure.splitlines() if line.strip().startswith("File ")]
    return locations[-1]


def shrink(plan: Plan, failure: str) -> tuple[Plan, str]:
    """Remove steps, many at first, as long as the plan fails at the same location; then remove faults."""
    location, run_count, size = _failure_location(failure), 0, max(1, len(plan.steps) // 2)
    while size and run_count < _MAX_SHRINK_RUNS:
        start, is_smaller = 0, False
        while start < len(plan.steps) and run_count < _MAX_SHRINK_RUNS:
            run_count += 1
            fewer = plan.steps[:start] + plan.steps[start + size :]
            result = find_failure(Plan(seed=plan.seed, steps=fewer))
            if result is not None and _failure_location(result) == location:
                plan, failure, is_smaller = Plan(seed=plan.seed, steps=fewer), result, True
            else:
                start += size
        size = size if is_smaller and size == 1 else size // 2
    for n, step in enumerate(plan.steps):
        if step.fault is not None:
            without_fault = (*plan.steps[:n], msgspec.structs.replace(step, fault=None), *plan.steps[n + 1 :])
            result = find_failure(Plan(seed=plan.seed, steps=without_fault))
            if result is not None and _failure_location(result) == location:
                plan, failure = Plan(seed=plan.seed, steps=without_fault), result
    return plan, failure


def format_plan(plan: Plan) -> str:
    """Run the plan, and format each step with its result."""
    _, step_results = _run_plan(plan)
    results = [*step_results, *["not reached"] * len(plan.steps)]
    return "\n".join(f"    {_format_step(step)}: {result}" for step, result in zip(plan.steps, results, strict=False))


def _format_step(step: Step) -> str:
    fault = "" if step.fault is None else f"   with {step.fault.kind} after {step.fault.after} operations"
    return f"{step.kind} {step.number}{fault}"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim")
    parser.add_argument("seeds", help="N, or FIRST-LAST")
    parser.add_argument("-j", "--jobs", type=int, default=2)
    options = parser.parse_args(arguments)
    logging.disable()
    first, _, last = options.seeds.partition("-")
    seeds = range(int(first), int(last or first) + 1)
    started_at, failed = time.monotonic(), list[int]()
    with ProcessPoolExecutor(options.jobs) as pool:
        for seed, failure in zip(seeds, pool.map(find_failure, map(make_plan, seeds), chunksize=10), strict=True):
            if failure is not None:
                failed.append(seed)
                print(f"seed {seed} fails: {failure.splitlines()[-1]}", flush=True)
            if (seed - seeds[0] + 1) % 1000 == 0:
                print(f"{seed - seeds[0] + 1} of {len(seeds)}, {len(failed)} failed", flush=True)
    print(f"{len(seeds)} seeds in {time.monotonic() - started_at:.0f} s, {len(failed)} failed")
    if failed:
        failure = find_failure(make_plan(failed[0]))
        if failure is not None:
            plan, failure = shrink(make_plan(failed[0]), failure)
            print(f"\nseed {failed[0]} shrinks to\n{format_plan(plan)}\n\n{failure}")
    return 1 if failed else 0

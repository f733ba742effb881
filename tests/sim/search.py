"""Run seeds, and make small what fails."""

from __future__ import annotations

import argparse
import logging
import time
import traceback
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor

import msgspec

from sim.plan import Plan, Step, plan_of
from sim.simulation import Simulation

_MOST_TRIES = 400


def fault_of(plan: Plan) -> str | None:
    """How it fails; none when it does not."""
    return _carried_out(plan)[0]


def _carried_out(plan: Plan) -> tuple[str | None, list[str]]:
    """How it fails, and what became of each step up to there."""
    simulation = Simulation(plan)
    try:
        simulation.run()
    except Exception:  # noqa: BLE001 - whatever it is, it is what was looked for
        return traceback.format_exc(), simulation.story
    finally:
        simulation.close()
    return None, simulation.story


def _where(fault: str) -> str:
    """The same failure is one that comes about at the same place."""
    places = [line for line in fault.splitlines() if line.strip().startswith("File ")]
    return places[-1]


def shrink(plan: Plan, fault: str) -> tuple[Plan, str]:
    """Leave out steps, many at first, as long as it fails in the same place; then the faults of those that are left."""
    where, tries, size = _where(fault), 0, max(1, len(plan.steps) // 2)
    while size and tries < _MOST_TRIES:
        at, is_smaller = 0, False
        while at < len(plan.steps) and tries < _MOST_TRIES:
            tries += 1
            fewer = plan.steps[:at] + plan.steps[at + size :]
            found = fault_of(Plan(seed=plan.seed, steps=fewer))
            if found is not None and _where(found) == where:
                plan, fault, is_smaller = Plan(seed=plan.seed, steps=fewer), found, True
            else:
                at += size
        size = size if is_smaller and size == 1 else size // 2
    for n, step in enumerate(plan.steps):
        if step.fault is not None:
            calmer = (*plan.steps[:n], msgspec.structs.replace(step, fault=None), *plan.steps[n + 1 :])
            found = fault_of(Plan(seed=plan.seed, steps=calmer))
            if found is not None and _where(found) == where:
                plan, fault = Plan(seed=plan.seed, steps=calmer), found
    return plan, fault


def show(plan: Plan) -> str:
    """Each step, and what became of it."""
    _, story = _carried_out(plan)
    told = [*story, *["not reached"] * len(plan.steps)]
    return "\n".join(f"    {_shown(step)}: {became}" for step, became in zip(plan.steps, told, strict=False))


def _shown(step: Step) -> str:
    fault = "" if step.fault is None else f"   and {step.fault.kind} after {step.fault.after} operations"
    return f"{step.verb} {step.number}{fault}"


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m sim")
    parser.add_argument("seeds", help="N, or FIRST-LAST")
    parser.add_argument("-j", "--jobs", type=int, default=2)
    options = parser.parse_args(words)
    logging.disable()
    first, _, last = options.seeds.partition("-")
    seeds = range(int(first), int(last or first) + 1)
    began, failed = time.monotonic(), list[int]()
    with ProcessPoolExecutor(options.jobs) as pool:
        for seed, fault in zip(seeds, pool.map(fault_of, map(plan_of, seeds), chunksize=10), strict=True):
            if fault is not None:
                failed.append(seed)
                print(f"seed {seed} fails: {fault.splitlines()[-1]}", flush=True)
            if (seed - seeds[0] + 1) % 1000 == 0:
                print(f"{seed - seeds[0] + 1} of {len(seeds)}, {len(failed)} failed", flush=True)
    print(f"{len(seeds)} seeds in {time.monotonic() - began:.0f} s, {len(failed)} failed")
    if failed:
        fault = fault_of(plan_of(failed[0]))
        if fault is not None:
            plan, fault = shrink(plan_of(failed[0]), fault)
            print(f"\nseed {failed[0]} comes down to\n{show(plan)}\n\n{fault}")
    return 1 if failed else 0

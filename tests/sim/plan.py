"""Plan of a seed: the setup of the scheduler and the steps.

Each step has its own number, from which all its choices are made, so that it means much the same when other steps are
removed. Each seed has its own weights: some kinds of steps are frequent, some never occur, because many failures need
many steps of few kinds.
"""

from __future__ import annotations

import random

import msgspec

from tests.sim.fault import Fault

STEP_WEIGHTS = {
    "submit": 12,
    "flood": 3,
    "group": 3,
    "reserve": 3,
    "finish_reservation": 2,
    "cancel": 3,
    "retry": 2,
    "rewind": 2,
    "move": 2,
    "edit": 3,
    "pause": 2,
    "resume": 3,
    "set_hold_file": 2,
    "clear": 2,
    "resize_pool": 3,
    "set_pacing": 2,
    "tick": 2,
    "change_facts": 4,
    "schedule": 3,
    "trigger": 2,
    "pass_time": 16,
    "set_clock": 3,
    "set_latency": 1,
    "repeat_messages": 1,
    "disconnect": 2,
    "kill_supervisor": 1,
    "suspend": 3,
    "continue": 4,
    "crash": 2,
    "close_group": 2,
    "cancel_group": 2,
    "join_group": 2,
    "template": 3,
    "submit_from_template": 4,
    "webhook": 2,
    "attempt_deliveries": 4,
    "damage_record": 5,
}

_MAX_FAULT_OFFSET = 60
"""Maximum number of operations before a fault: few steps have more."""


FLOOD_KINDS = {
    "pass_time",
    "resize_pool",
    "cancel",
    "set_latency",
    "repeat_messages",
    "disconnect",
    "kill_supervisor",
    "suspend",
    "continue",
    "crash",
}
"""Kinds of steps that keep their weight when a plan consists mostly of floods."""


class Step(msgspec.Struct, frozen=True):
    kind: str
    number: int
    fault: Fault | None = None


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    seed: int
    steps: tuple[Step, ...]


def make_plan(seed: int) -> Plan:
    rng = random.Random(f"plan {seed}")
    weights = {kind: weight * rng.choice((0, 1, 1, 1, 3)) for kind, weight in STEP_WEIGHTS.items()}
    if rng.random() < 0.3:  # mostly jobs of one kind, so that the supervisor can prefetch them
        weights = {kind: weight if kind in FLOOD_KINDS else weight // 3 for kind, weight in weights.items()}
        weights["flood"], weights["submit"] = 12, 1
    weights["submit"], weights["pass_time"] = weights["submit"] or 12, weights["pass_time"] or 16
    fault_rate = rng.choice((0.0, 0.05, 0.2))
    kinds = rng.choices(list(weights), list(weights.values()), k=rng.choice((15, 30, 60)))
    return Plan(seed=seed, steps=tuple(Step(kind, rng.getrandbits(32), _make_fault(rng, fault_rate)) for kind in kinds))


def _make_fault(rng: random.Random, fault_rate: float) -> Fault | None:
    if rng.random() >= fault_rate:
        return None
    return Fault(rng.choice(("crash", "crash", "crash", "full", "busy")), rng.randrange(_MAX_FAULT_OFFSET))

"""What a seed stands for: how the scheduler is set up, and what happens then, step by step.

A step has a number of its own, from which all its choices are made, so that it means much the same when others are left
out. Each seed has its own taste: some things happen often, some never, for what goes wrong often needs many of a few.
"""

from __future__ import annotations

import random

import msgspec

from sim.fault import Fault

VERBS = {
    "submit": 12, "flood": 3,
    "group": 3, "reserve": 3, "leave": 2, "cancel": 3, "retry": 2, "rewind": 2, "move": 2, "edit": 3,
    "pause": 2, "resume": 3, "hold": 1, "clear": 1, "limit": 3, "pace": 1, "tick": 2, "world": 4, "schedule": 3,
    "trigger": 2, "time": 16, "jump": 2, "latency": 1, "repeat": 1, "break_off": 2, "kill_supervisor": 1, "crash": 2,
    "close_group": 1, "cancel_group": 1, "join_group": 2, "template": 3, "make": 4, "webhook": 2, "deliver": 3,
}  # fmt: skip

_LATEST = 60
"""Operations that go well before a fault, at most: few steps have more."""


STEADY = {"time", "limit", "cancel", "latency", "repeat", "break_off", "kill_supervisor", "crash"}


class Step(msgspec.Struct, frozen=True):
    verb: str
    number: int
    fault: Fault | None = None


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    seed: int
    steps: tuple[Step, ...]


def plan_of(seed: int) -> Plan:
    chance = random.Random(f"plan {seed}")
    tastes = {verb: weight * chance.choice((0, 1, 1, 1, 3)) for verb, weight in VERBS.items()}
    if chance.random() < 0.3:  # little but jobs of one kind, so that it is known who is next
        tastes = {verb: weight if verb in STEADY else weight // 3 for verb, weight in tastes.items()}
        tastes["flood"], tastes["submit"] = 12, 1
    tastes["submit"], tastes["time"] = tastes["submit"] or 12, tastes["time"] or 16
    luck = chance.choice((0.0, 0.05, 0.2))
    verbs = chance.choices(list(tastes), list(tastes.values()), k=chance.choice((15, 30, 60)))
    return Plan(seed=seed, steps=tuple(Step(verb, chance.getrandbits(32), _fault(chance, luck)) for verb in verbs))


def _fault(chance: random.Random, luck: float) -> Fault | None:
    if chance.random() >= luck:
        return None
    return Fault(chance.choice(("crash", "crash", "crash", "full", "busy")), chance.randrange(_LATEST))

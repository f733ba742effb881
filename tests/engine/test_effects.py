"""Effects of a turn: a rollback to a mark restores every field, including those that are added later."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from rota.engine.transaction import Effects

FIELDS = Effects.__struct_fields__
numbers = st.integers(0, 3)
steps = st.one_of(
    st.just("mark"),
    st.tuples(st.just("rollback"), numbers),
    st.tuples(st.sampled_from(FIELDS), st.sampled_from(["add", "remove", "replace"]), numbers),
)


def contents(effects: Effects) -> dict[str, Any]:
    return deepcopy(msgspec.structs.asdict(effects))


def change(effects: Effects, name: str, action: str, number: int) -> None:
    """Change a field. Its values are numbers, since `Effects` does not depend on their types."""
    match getattr(effects, name):
        case list() as items:
            if action == "add":
                items.append(number)
            elif action == "remove" and items:
                items.pop(number % len(items))
            else:
                setattr(effects, name, [number])
        case dict() as mapping:
            if action == "add":
                mapping[number] = len(mapping)
            elif action == "remove":
                mapping.pop(number, None)
            else:
                setattr(effects, name, {number: 0})
        case set() as members:
            if action == "add":
                members.add(number)
            elif action == "remove":
                members.discard(number)
            else:
                setattr(effects, name, {number})
        case _:
            setattr(effects, name, {number: 0} if action == "add" else number)


@given(st.lists(steps, max_size=50))
def test_rollback_restores_exactly_the_marked_state(sequence: list[Any]) -> None:
    """Marks nest, and a mark can be rolled back to again."""
    effects = Effects()
    marks = [(effects.mark(), contents(effects))]
    for step in sequence:
        match step:
            case "mark":
                marks.append((effects.mark(), contents(effects)))
            case ("rollback", number):
                del marks[number + 1 :]
                mark, marked = marks[-1]
                effects.rollback_to(mark)
                assert contents(effects) == {**marked, "open_runs": {}}, "the cache of open runs is dropped"
            case (name, action, number):
                change(effects, name, action, number)


def test_fields_are_containers_that_a_mark_copies_or_immutable() -> None:
    for value in msgspec.structs.astuple(Effects()):
        assert type(value) in (list, dict, set) or hash(value) is not None

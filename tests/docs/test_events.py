"""`docs/events.md` lists every kind of event, and the source emits these and no other."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import NamedTuple

import rota
from docs.page import rows
from rota.core.event import KINDS
from rota.core.schedule import FireState
from rota.core.status import Status


@cache
def _modules() -> list[ast.Module]:
    return [ast.parse(path.read_text()) for path in sorted(Path(rota.__file__).parent.rglob("*.py"))]


OF_A_VALUE: Mapping[str, Iterable[StrEnum]] = {
    "row[2]": (),  # read back from the table
    "placement.to.lower()": Status,
    "status.lower()": Status,
    "fire.state.value": FireState,
    "FireState.MISSED.value": FireState,
}
"""What an event is named after, where no word in the source says it."""


def test_the_page_lists_every_kind_with_what_it_says() -> None:
    listed = {kind.strip("`"): said for kind, said, *_ in rows("events.md", "Kinds")}
    assert listed == dict(KINDS)


def test_the_source_emits_what_is_listed() -> None:
    emitted = set(_emitted())
    assert emitted - set(KINDS) == set()
    assert set(KINDS) - emitted == set(), "listed, and nobody emits it"


class Place(NamedTuple):
    module: ast.Module
    function: ast.FunctionDef


def _emitted() -> Iterator[str]:
    for place, call in _calls("Event"):
        for kind in [word.value for word in call.keywords if word.arg == "kind"]:
            if isinstance(kind, ast.JoinedStr):
                noun, rest = kind.values
                assert isinstance(noun, ast.Constant)
                assert isinstance(noun.value, str)
                assert isinstance(rest, ast.FormattedValue)
                yield from (noun.value + word for word in _words(rest.value, place))
            else:
                yield from _words(kind, place)


def _words(value: ast.expr, place: Place) -> Iterator[str]:
    """What an expression can be that stands there."""
    parameters = [each.arg for each in place.function.args.args]
    match value:
        case ast.Constant(value=str(word)):
            yield word
        case ast.IfExp():
            yield from _words(value.body, place)
            yield from _words(value.orelse, place)
        case ast.Name(id=name) if name in parameters:
            number = parameters.index(name) - (parameters[0] == "self")
            for caller, call in _calls(place.function.name, place.module):
                yield from _words(_argument(call, number, name), caller)
        case ast.Name(id=name):
            for each in ast.walk(place.function):
                if isinstance(each, ast.Assign) and ast.unparse(each.targets[0]) == name:
                    yield from _words(each.value, place)
        case _:
            yield from (each.value.lower() for each in OF_A_VALUE[ast.unparse(value)])


def _argument(call: ast.Call, number: int, name: str) -> ast.expr:
    named = [word.value for word in call.keywords if word.arg == name]
    return named[0] if named else call.args[number]


def _calls(name: str, home: ast.Module | None = None) -> Iterator[tuple[Place, ast.Call]]:
    """Calls of the class, or of the session's method, that has this name, each with where it stands. What begins with
    an underscore is called at home only."""
    for module in _modules():
        if name.startswith("_") and module is not home:
            continue
        for function in ast.walk(module):
            if isinstance(function, ast.FunctionDef):
                for each in ast.walk(function):
                    if isinstance(each, ast.Call) and _is_of(ast.unparse(each.func), name):
                        yield Place(module, function), each


def _is_of(called: str, name: str) -> bool:
    return called == name if name == "Event" else called == f"self.{name}" or called.endswith(f"session.{name}")

"""`docs/reference/events.md` lists exactly the kinds of events that the source emits."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import NamedTuple

import rota
from rota.kernel.events import KINDS
from rota.kernel.status import STORED
from rota.schedules.model import FireState
from tests.docs.page import rows


@cache
def _modules() -> list[ast.Module]:
    return [ast.parse(path.read_text()) for path in sorted(Path(rota.__file__).parent.rglob("*.py"))]


DYNAMIC_KINDS: Mapping[str, Iterable[StrEnum]] = {
    "row[2]": (),  # read back from the table
    "placement.new_status.lower()": STORED,
    "status.lower()": STORED,
    "fire.state.value": FireState,
    "FireState.MISSED.value": FireState,
}
"""Values of expressions in the source that are not literals, as suffixes of kinds."""


def test_page_lists_every_kind_with_its_description() -> None:
    listed = {kind.strip("`"): description for kind, description, *_ in rows("reference/events.md", "Kinds")}
    assert listed == dict(KINDS)


def test_source_emits_exactly_the_listed_kinds() -> None:
    emitted = set(_emitted())
    assert emitted - set(KINDS) == set()
    assert set(KINDS) - emitted == set(), "listed, but never emitted"


class CallSite(NamedTuple):
    module: ast.Module
    function: ast.FunctionDef
    repository: str
    """Name of the repository that the function belongs to, as callers write it; empty for other functions."""


def _emitted() -> Iterator[str]:
    for site, call in _calls("Event", None):
        for kind in [keyword.value for keyword in call.keywords if keyword.arg == "kind"]:
            if isinstance(kind, ast.JoinedStr):
                noun, rest = kind.values
                assert isinstance(noun, ast.Constant)
                assert isinstance(noun.value, str)
                assert isinstance(rest, ast.FormattedValue)
                yield from (noun.value + verb for verb in _possible_values(rest.value, site))
            else:
                yield from _possible_values(kind, site)


def _possible_values(value: ast.expr, site: CallSite) -> Iterator[str]:
    """Yield the values that the expression can have at this call site."""
    parameters = [parameter.arg for parameter in site.function.args.args]
    match value:
        case ast.Constant(value=str(text)):
            yield text
        case ast.IfExp():
            yield from _possible_values(value.body, site)
            yield from _possible_values(value.orelse, site)
        case ast.Name(id=name) if name in parameters:
            number = parameters.index(name) - (parameters[0] == "self")
            for caller, call in _calls(site.function.name, site):
                yield from _possible_values(_argument(call, number, name), caller)
        case ast.Name(id=name):
            for node in ast.walk(site.function):
                if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
                    yield from _possible_values(node.value, site)
        case _:
            yield from (member.value.lower() for member in DYNAMIC_KINDS[ast.unparse(value)])


def _argument(call: ast.Call, number: int, name: str) -> ast.expr:
    by_keyword = [keyword.value for keyword in call.keywords if keyword.arg == name]
    return by_keyword[0] if by_keyword else call.args[number]


def _calls(name: str, defined_at: CallSite | None) -> Iterator[tuple[CallSite, ast.Call]]:
    """Yield the calls of the class or repository method with this name. A private method is called in its module
    only."""
    for module in _modules():
        if name.startswith("_") and defined_at is not None and module is not defined_at.module:
            continue
        for site in _functions(module):
            for node in ast.walk(site.function):
                if isinstance(node, ast.Call) and _is_call_of(ast.unparse(node.func), name, defined_at, module):
                    yield site, node


@cache
def _functions(module: ast.Module) -> list[CallSite]:
    classes = [node for node in ast.walk(module) if isinstance(node, ast.ClassDef)]
    repositories = {method: each.name.lower() for each in classes for method in each.body}
    functions = [node for node in ast.walk(module) if isinstance(node, ast.FunctionDef)]
    return [CallSite(module, function, repositories.get(function, "")) for function in functions]


def _is_call_of(called: str, name: str, defined_at: CallSite | None, module: ast.Module) -> bool:
    if defined_at is None:
        return called == name
    if module is defined_at.module and called == f"self.{name}":
        return True
    return called.endswith(f".{defined_at.repository}.{name}")

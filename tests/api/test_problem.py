"""Problems: one table of them, which the code keeps to and the docs repeat."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import Response

from rota.api import problem as module
from rota.api.openapi.document import problem_rows
from rota.api.problem import defect, problem, refusal
from rota.errors import BY_CODE, Deferred, InFlight, InvalidInput, RotaError, Unavailable, WaitOver
from rota.wire.problem import meanings

ROOT = Path(__file__).parents[2]
API = Path(module.__file__).parent


def calls() -> Iterator[tuple[str, ast.Call]]:
    """Every `problem(…)` in the API."""
    for path in API.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "problem":
                yield f"{path.name}:{node.lineno}", node


def test_every_code_that_is_said_by_name_is_in_the_table_with_its_status() -> None:
    said = [
        (where, str(code.value), status.value)
        for where, call in calls()
        for code, status in [call.args[:2]]
        if isinstance(code, ast.Constant) and isinstance(status, ast.Constant)
    ]
    assert said, "the API says problems by name"
    table = {code: kind.http_status for code, kind in BY_CODE.items()}
    assert [(where, code) for where, code, status in said if table.get(str(code)) != status] == []


def subclasses(kind: type[RotaError]) -> Iterator[type[RotaError]]:
    yield kind
    for each in kind.__subclasses__():
        yield from subclasses(each)


def test_every_error_of_the_scheduler_is_in_the_table() -> None:
    own = [kind for kind in subclasses(RotaError) if kind.__module__ == RotaError.__module__]
    assert sorted({kind.code for kind in own}) == sorted(BY_CODE)
    assert all(BY_CODE[kind.code] is kind for kind in own), "two errors have one code"


def test_each_problem_has_words_of_its_own() -> None:
    for field in ("title", "meaning", "remedy"):
        said = [getattr(one, field) for one in meanings()]
        assert len(set(said)) == len(said), f"two problems have one {field}"


def test_the_page_has_the_table() -> None:
    page = (ROOT / "docs" / "problems.md").read_text()
    assert page.endswith(problem_rows()), "docs/problems.md is not what the code says; `make openapi` writes its table"


def answered(error: Exception) -> Response:
    return refusal(error) if isinstance(error, RotaError) else defect(error)


def body(response: Response) -> Any:
    return json.loads(bytes(response.body))


@pytest.mark.parametrize("kind", [Unavailable, WaitOver, InFlight, Deferred])
def test_what_is_over_in_a_while_says_when_to_ask_again(kind: type[RotaError]) -> None:
    assert int(answered(kind("later")).headers["retry-after"]) >= 1


def test_who_knows_better_says_when() -> None:
    assert problem("deferred", 429, "full", headers={"Retry-After": "30"}).headers["retry-after"] == "30"


def test_what_stays_wrong_does_not_ask_for_another_try() -> None:
    assert "retry-after" not in answered(InvalidInput("no")).headers


def test_a_problem_names_its_page_and_the_path_of_the_trouble() -> None:
    response = answered(InvalidInput("not a duration: 'soon'").under(".delay").under(".jobs[3]"))
    assert response.headers["content-type"] == "application/problem+json"
    assert body(response) == {
        "type": "/problems/invalid-input",
        "title": "The request cannot be understood",
        "status": 422,
        "detail": "not a duration: 'soon'",
        "code": "invalid-input",
        "path": "$.jobs[3].delay",
    }


def test_a_defect_says_where_to_look_and_nothing_of_itself() -> None:
    said = body(answered(KeyError("a secret")))
    assert (said["code"], said["status"]) == ("error", 500)
    assert "rota.log" in said["detail"]
    assert "secret" not in said["detail"]

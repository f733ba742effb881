"""Problem documents: the code and the docs agree with the error table."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import Response

from rota.errors import (
    BY_CODE,
    InvalidInput,
    QueueFull,
    RequestInProgress,
    ReservationTimeout,
    RotaError,
    ServiceUnavailable,
)
from rota.http import problem as http_problem
from rota.http.openapi.document import render_problem_rows
from rota.http.problem import internal_error_response, problem_response, refusal_response
from rota.http.problem_schemas import list_problem_kinds

ROOT = Path(__file__).parents[2]
API = Path(http_problem.__file__).parent


def find_calls() -> Iterator[tuple[str, ast.Call]]:
    """Yield every call of `problem_response` in the API, with its location."""
    for path in API.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "problem_response":
                yield f"{path.name}:{node.lineno}", node


def test_literal_problem_codes_match_the_error_table() -> None:
    literals = [
        (location, str(code.value), status.value)
        for location, call in find_calls()
        for code, status in [call.args[:2]]
        if isinstance(code, ast.Constant) and isinstance(status, ast.Constant)
    ]
    assert literals, "some calls have a literal code"
    table = {code: kind.http_status for code, kind in BY_CODE.items()}
    assert [(location, code) for location, code, status in literals if table.get(str(code)) != status] == []


def subclasses(kind: type[RotaError]) -> Iterator[type[RotaError]]:
    yield kind
    for subclass in kind.__subclasses__():
        yield from subclasses(subclass)


def test_every_error_class_is_in_the_error_table() -> None:
    own = [kind for kind in subclasses(RotaError) if kind.__module__ == RotaError.__module__]
    assert sorted({kind.code for kind in own}) == sorted(BY_CODE)
    assert all(BY_CODE[kind.code] is kind for kind in own), "two errors have one code"


def test_problem_texts_are_unique() -> None:
    for field in ("title", "meaning", "remedy"):
        texts = [getattr(kind, field) for kind in list_problem_kinds()]
        assert len(set(texts)) == len(texts), f"two problems have the same {field}"


def test_docs_problem_table_is_current() -> None:
    page = (ROOT / "docs" / "reference" / "problems.md").read_text()
    assert page.endswith(render_problem_rows()), (
        "the table in docs/reference/problems.md differs from the code; `make openapi` writes it"
    )


def error_response(error: Exception) -> Response:
    return refusal_response(error) if isinstance(error, RotaError) else internal_error_response(error)


def body(response: Response) -> Any:
    return json.loads(bytes(response.body))


@pytest.mark.parametrize("kind", [ServiceUnavailable, ReservationTimeout, RequestInProgress, QueueFull])
def test_temporary_refusal_has_retry_after(kind: type[RotaError]) -> None:
    assert int(error_response(kind("later")).headers["retry-after"]) >= 1


def test_explicit_retry_after_is_kept() -> None:
    assert problem_response("deferred", 429, "full", headers={"Retry-After": "30"}).headers["retry-after"] == "30"


def test_permanent_refusal_has_no_retry_after() -> None:
    assert "retry-after" not in error_response(InvalidInput("no")).headers


def test_problem_document_has_type_and_path() -> None:
    response = error_response(InvalidInput("invalid duration 'soon'").at_path(".delay").at_path(".jobs[3]"))
    assert response.headers["content-type"] == "application/problem+json"
    assert body(response) == {
        "type": "/problems/invalid-input",
        "title": "Invalid request",
        "status": 422,
        "detail": "invalid duration 'soon'",
        "code": "invalid-input",
        "path": "$.jobs[3].delay",
    }


def test_internal_error_names_the_log_and_reveals_nothing() -> None:
    problem = body(error_response(KeyError("a secret")))
    assert (problem["code"], problem["status"]) == ("error", 500)
    assert "rota.log" in problem["detail"]
    assert "secret" not in problem["detail"]

"""Operation contracts: from one signature to the query, the body, the OpenAPI entry, the clients and the command."""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rota import AsyncClient, Client, Conflict, InvalidInput
from rota.cli.operations import make_verb, read_arguments
from rota.cli.parser import Parser, UsageError, add_global_options
from rota.client.operations import build_request
from rota.client.requests import Request
from rota.client.sdk.methods import ClientMethods
from rota.client.sdk.operations import operation_call, operation_pages, operation_stream
from rota.client.session import SchedulerSession
from rota.home import Home
from rota.http.bind import make_endpoints
from rota.http.openapi import operation as openapi_operation
from rota.http.openapi.document import build_document
from rota.operation import Operation, operation, operations_in
from rota.routes import ENDPOINTS
from rota.work import operations as work_operations
from tests import operation_commands
from tests import operation_contracts as ops
from tests.docs.test_guards import GUARDS
from tests.e2e.awaitable_client import collect
from tests.http.served_home import StandInContext, served_home

ROOT = Path(__file__).parents[1]
CONTRACT_MODULES = (work_operations,)
"""Modules with the operations of Rota."""
GET_DEFAULTS: dict[str, Any] = {
    "job": "job-1",
    "key": "a/b",
    "text": None,
    "count": 3,
    "ratio": None,
    "flag": False,
    "default_on": True,
    "wait": timedelta(seconds=90),
    "order": "up",
    "color": None,
    "jobs": (),
    "sizes": (),
    "pauses": (),
}
ADD_DEFAULTS: dict[str, Any] = {
    "words": 1,
    "name": "n",
    "parts": (),
    "labels": ("b",),
    "env": {},
    "size": None,
    "ttl": None,
    "after": None,
    "force": False,
}
THING = "/api/jobs/job-1/things/a/b"


@pytest.fixture(scope="module")
def endpoints() -> Sequence[Any]:
    return make_endpoints(ops, operation_commands)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, endpoints: Sequence[Any]) -> Iterator[Home]:
    """Provide a home whose socket serves the contracts."""
    root = tmp_path / "home"
    root.mkdir(mode=0o700)
    monkeypatch.setenv("ROTA_HOME", str(root))
    home = Home(root)
    with served_home(home, endpoints, StandInContext()):
        yield home


def send(home: Home, method: str, target: str, body: Any = None, **options: Any) -> str:
    """Send a request, and return the arguments that the implementation got."""
    response = SchedulerSession(home).request_json(Request(method, target, body=body, **options))
    return str(response["arguments"])


class Words:
    """Command line of the contracts."""

    def __init__(self, verb: str) -> None:
        add_arguments, self.run = make_verb(ops, verb)
        self.parser = Parser(prog=f"rota {verb}")
        add_global_options(self.parser)
        add_arguments(self.parser)

    def parse(self, *words: str) -> argparse.Namespace:
        parsed: argparse.Namespace = self.parser.parse_args([*words], argparse.Namespace(home=None, json=False))
        return parsed


# Decoding.


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", {}),
        ("text=null", {"text": "null"}),
        ("count=5&ratio=1.5", {"count": 5, "ratio": 1.5}),
        ("flag=1&default_on=false", {"flag": True, "default_on": False}),
        ("wait=2m30s", {"wait": timedelta(minutes=2, seconds=30)}),
        ("order=down", {"order": "down"}),
        ("jobs=job-1&jobs=job-2&sizes=1", {"jobs": ("job-1", "job-2"), "sizes": (1,)}),
        ("pauses=1s&pauses=1m", {"pauses": (timedelta(seconds=1), timedelta(minutes=1))}),
    ],
)
def test_query_becomes_arguments(home: Home, query: str, expected: dict[str, Any]) -> None:
    assert send(home, "GET", f"{THING}?{query}") == repr({**GET_DEFAULTS, **expected})


def test_enum_is_decoded(home: Home) -> None:
    assert "'color': <Color.BLUE: 'blue'>" in send(home, "GET", f"{THING}?color=blue")


@pytest.mark.parametrize(
    ("target", "message", "path"),
    [
        (f"{THING}?cuont=1", "unknown query parameter 'cuont'; did you mean count?", "$.cuont"),
        (f"{THING}?count=x", "the query cannot be used: Expected `int`, got `str` - at `$.count`", "$.count"),
        (f"{THING}?count=1&count=2", "count cannot be repeated; send it once", "$.count"),
        (f"{THING}?ratio=null", "ratio cannot be null; leave it out instead", "$.ratio"),
        (f"{THING}?wait=soon", "not a duration: 'soon'; write it like 300ms, 1.5s, 2m30s or 1h", "$.wait"),
        (f"{THING}?order=left", "the query cannot be used: Invalid enum value 'left' - at `$.order`", "$.order"),
        (f"{THING}?jobs=job-1&jobs=run-1", "not a job id: 'run-1'; a job id looks like job-24", "$.jobs"),
        ("/api/jobs/7/things/a", "not a job id: '7'; a job id looks like job-24", "$.job"),
        ("/api/numbers?limit=0", "the query cannot be used: Expected `int` >= 1 - at `$.limit`", "$.limit"),
    ],
)
def test_invalid_query_is_refused_with_its_path(home: Home, target: str, message: str, path: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        SchedulerSession(home).request_json(Request("GET", target))
    assert (refused.value.message, refused.value.path) == (message, path)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({}, {}),
        ({"parts": ["a", "b"], "env": {"A": "1"}}, {"parts": ("a", "b"), "env": {"A": "1"}}),
        ({"size": 5, "force": True, "after": "job-3"}, {"size": 5, "after": "job-3", "force": True}),
        ({"ttl": "1h", "name": "two words"}, {"words": 2, "name": "two words", "ttl": timedelta(hours=1)}),
        ({"ttl": None}, {}),
    ],
)
def test_body_becomes_arguments(home: Home, body: dict[str, Any], expected: dict[str, Any]) -> None:
    sent = {"name": "n", "labels": ["b"], **body}
    assert send(home, "POST", "/api/things", sent) == repr({**ADD_DEFAULTS, **expected})


@pytest.mark.parametrize(
    ("body", "message", "path"),
    [
        ({}, "the request body cannot be used: Object missing required field `labels`", "$.labels"),
        ({"labels": [], "lables": []}, "Object contains unknown field `lables`", "$.lables"),
        ({"labels": [1]}, "Expected `str`, got `int` - at `$.labels[0]`", "$.labels[0]"),
        ({"labels": [], "size": "5"}, "Expected `int | null`, got `str` - at `$.size`", "$.size"),
        ({"labels": [], "after": "3"}, "not a job id: '3'; a job id looks like job-24", "$.after"),
        ({"labels": [], "ttl": "1 hour"}, "not a duration: '1 hour'", "$.ttl"),
    ],
)
def test_invalid_body_is_refused_with_its_path(home: Home, body: dict[str, Any], message: str, path: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        send(home, "POST", "/api/things", {"name": "n", **body})
    assert message in refused.value.message
    assert refused.value.path == path


def test_body_with_defaults_can_be_omitted(home: Home) -> None:
    assert send(home, "PATCH", "/api/things/a") == "{'key': 'a', 'size': 1}"
    assert send(home, "PATCH", "/api/things/a", {"size": 2}) == "{'key': 'a', 'size': 2}"
    assert send(home, "DELETE", "/api/things/a?force=1") == "{'key': 'a', 'force': True}"
    assert send(home, "POST", "/api/things/reset") == "{}"


def test_idempotent_operation_takes_effect_once_for_a_key(home: Home) -> None:
    body = {"name": "n", "labels": []}
    first, second = [
        SchedulerSession(home).request(Request("POST", "/api/things", body=body, key="k")) for _ in range(2)
    ]
    assert (first.status, first.body) == (second.status, second.body)
    assert first.status == 201
    assert second.headers["idempotent-replayed"] == "true"


def test_declared_error_reaches_the_client(home: Home) -> None:
    with pytest.raises(Conflict, match="taken exists; choose another name"):
        send(home, "POST", "/api/things", {"name": "taken", "labels": []})


def test_stream_sends_messages_until_it_ends(home: Home) -> None:
    stream = SchedulerSession(home).open_stream(Request("GET", "/api/numbers/live?end=2"))
    with closing(stream):
        assert stream.read().body.endswith(b"data: 0\n\ndata: 1\n\n")


# OpenAPI.


@pytest.fixture
def document(monkeypatch: pytest.MonkeyPatch, endpoints: Sequence[Any]) -> dict[str, Any]:
    tag = openapi_operation.Tag("things", "", ("/api",))
    monkeypatch.setattr(openapi_operation, "TAGS", (tag,))
    monkeypatch.setattr("rota.http.openapi.document.TAGS", (tag,))
    return build_document(endpoints)


def test_parameters_are_described(document: dict[str, Any]) -> None:
    get = document["paths"]["/api/jobs/{job}/things/{key}"]["get"]
    parameters = {parameter["name"]: parameter for parameter in get["parameters"]}
    assert (get["operationId"], get["summary"]) == ("get_thing", "Get a thing")
    job = parameters["job"]
    assert (job["in"], job["required"], job["description"], job["example"]) == (
        "path",
        True,
        "Id of the job.",
        "job-24",
    )
    assert job["schema"]["pattern"] == "^job-[1-9][0-9]{0,17}$"
    schemas = {name: parameter["schema"] for name, parameter in parameters.items()}
    assert parameters["text"]["description"] == "Match TEXT."
    assert not parameters["text"]["required"]
    assert schemas["text"]["type"] == "string"
    assert schemas["count"] == {"type": "integer", "default": 3}
    assert schemas["flag"] == {"type": "boolean", "default": False}
    assert (schemas["wait"]["type"], schemas["wait"]["default"]) == ("string", "1m30s")
    assert sorted(schemas["order"]["enum"]) == ["down", "up"]
    assert schemas["sizes"] == {"type": "array", "items": {"type": "integer"}}
    end = document["paths"]["/api/numbers/live"]["get"]["parameters"][0]
    assert (end["name"], end["required"]) == ("end", True)
    assert "text/event-stream" in document["paths"]["/api/numbers/live"]["get"]["responses"]["200"]["content"]


def test_body_is_a_component(document: dict[str, Any]) -> None:
    add = document["paths"]["/api/things"]["post"]
    content = add["requestBody"]["content"]["application/json"]
    assert add["requestBody"]["required"]
    assert content["example"] == {"name": "a", "labels": ["b"]}
    schema = document["components"]["schemas"]["AddThingRequest"]
    assert (schema["required"], schema["additionalProperties"]) == (["name", "labels"], False)
    assert schema["properties"]["env"]["additionalProperties"]["type"] == "string"
    assert not document["paths"]["/api/things/{key}"]["patch"]["requestBody"]["required"]
    assert {"$ref": "#/components/parameters/Idempotency-Key"} in add["parameters"]
    assert "conflict" in add["responses"]["409"]["$ref"]
    assert add["responses"]["201"]["content"]["application/json"]["example"] == {"arguments": "{}"}


# Commands.


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["get", "1", "a/b"], {"job": "job-1", "key": "a/b"}),
        (["get", "job-1", "k", "--text", "t", "--count", "5"], {"job": "job-1", "key": "k", "text": "t", "count": 5}),
        (
            ["get", "1", "k", "--flag", "--no-default-on"],
            {"job": "job-1", "key": "k", "flag": True, "default_on": False},
        ),
        (["get", "1", "k", "--wait", "1m"], {"job": "job-1", "key": "k", "wait": "1m"}),
        (["get", "1", "k", "--jobs", "2", "--jobs", "job-3"], {"job": "job-1", "key": "k", "jobs": ["job-2", "job-3"]}),
        (["get", "1", "k", "--ratio", "1.5"], {"job": "job-1", "key": "k", "ratio": 1.5}),
        (["add", "n", "-l", "b"], {"name": "n", "labels": ["b"]}),
        (["add", "n", "p", "q", "--label", "b"], {"name": "n", "parts": ["p", "q"], "labels": ["b"]}),
        (
            ["add", "n", "--label", "b", "--env", "A=1", "--env", "B=2=3"],
            {"name": "n", "labels": ["b"], "env": {"A": "1", "B": "2=3"}},
        ),
        (
            ["add", "n", "--label", "b", "--after", "3", "--size", "0"],
            {"name": "n", "labels": ["b"], "after": "job-3", "size": 0},
        ),
    ],
)
def test_words_become_arguments(words: list[str], expected: dict[str, Any]) -> None:
    args = Words("thing").parse(*words)
    declared = ops.get_thing if words[0] == "get" else ops.add_thing
    assert read_arguments(declared, args) == expected


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["get", "1"], "missing argument: KEY"),
        (["get", "1", "k", "--count", "x"], "--count cannot be 'x'; it takes a whole number"),
        (["get", "1", "k", "--order", "left"], "--order cannot be 'left'; it takes one of: up, down"),
        (["add", "n"], "missing argument: -l/--label"),
        (["add", "n", "--label", "b", "--env", "A"], "--env A: write it as NAME=VALUE"),
    ],
)
def test_invalid_words_are_refused(words: list[str], message: str) -> None:
    with pytest.raises(UsageError) as refused:
        read_arguments(ops.get_thing if words[0] == "get" else ops.add_thing, Words("thing").parse(*words))
    assert message in refused.value.message


def test_help_shows_the_parameters() -> None:
    parser = Words("thing").parser
    assert " get Get a thing. " in " ".join(parser.format_help().split())
    [actions] = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    text = " ".join(actions.choices["get"].format_help().split())
    assert "--wait DURATION Wait for DURATION." in text
    assert "--order up|down" in text
    assert "--env KEY=VALUE" in actions.choices["add"].format_help()


def test_verb_without_actions_and_missing_action(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    reset = Words("reset")
    assert reset.run(reset.parse()) == 0
    assert json.loads(capsys.readouterr().out) == {"arguments": "{}"}
    thing = Words("thing")
    with pytest.raises(UsageError, match="missing action; actions: get, add, change, remove; see `rota thing --help`"):
        thing.run(thing.parse())


def test_command_prints_json_or_with_its_printer(
    home: Home, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    thing = Words("thing")
    assert thing.run(thing.parse("add", "n", "-l", "b")) == 0
    assert json.loads(capsys.readouterr().out) == {"arguments": repr(ADD_DEFAULTS)}
    monkeypatch.setattr(ops.add_thing, "printer", lambda response: print("printed", response["arguments"]))
    assert thing.run(thing.parse("add", "n", "-l", "b")) == 0
    assert capsys.readouterr().out == f"printed {ADD_DEFAULTS}\n"
    assert thing.run(thing.parse("--json", "add", "n", "-l", "b")) == 0
    assert json.loads(capsys.readouterr().out) == {"arguments": repr(ADD_DEFAULTS)}


@pytest.mark.parametrize(("words", "count", "has_more"), [([], 2500, False), (["--limit", "1200"], 1200, True)])
def test_command_reads_all_pages(
    home: Home, capsys: pytest.CaptureFixture[str], words: list[str], count: int, has_more: bool
) -> None:
    number = Words("number")
    assert number.run(number.parse("--json", *words)) == 0
    page = json.loads(capsys.readouterr().out)
    assert page["numbers"] == [*range(count)]
    assert (page["next"] is not None) == has_more
    with pytest.raises(UsageError, match="--cursor"):
        number.parse("--cursor", "1")


# Clients.


class ThingMethods(ClientMethods):
    get_thing = operation_call(ops.get_thing)
    add_thing = operation_call(ops.add_thing)
    numbers = operation_pages(ops.list_numbers, lambda page: page.numbers)
    live = operation_stream(ops.watch_numbers)


class ThingClient(ThingMethods, Client): ...


class AsyncThingClient(ThingMethods, AsyncClient): ...


def test_blocking_client_has_typed_methods(home: Home) -> None:
    with ThingClient(home=home.root) as client:
        thing = client.get_thing("job-1", "a/b", wait=timedelta(minutes=1), sizes=[1, 2])
        assert thing.arguments == repr({**GET_DEFAULTS, "wait": timedelta(minutes=1), "sizes": (1, 2)})
        added = client.add_thing("n", labels=["b"], ttl=timedelta(seconds=90), env={"A": "1"})
        assert added.arguments == repr({**ADD_DEFAULTS, "env": {"A": "1"}, "ttl": timedelta(seconds=90)})
        assert list(client.numbers(limit=1001)) == [*range(1001)]
        assert list(client.live(end=3)) == [0, 1, 2]
        with pytest.raises(InvalidInput, match=r"labels must be a list: write \['b'\]"):
            client.add_thing("n", labels="b")
        with pytest.raises(TypeError, match="colour"):
            client.get_thing("job-1", "k", colour="red")  # type: ignore[call-arg]
        with pytest.raises(InvalidInput, match="must be text"):
            client.get_thing(1, "k")  # type: ignore[arg-type]


def test_async_client_has_the_same_methods(home: Home) -> None:
    async def steps() -> None:
        async with AsyncThingClient(home=home.root) as client:
            assert (await client.add_thing("n", labels=["b"])).arguments == repr(ADD_DEFAULTS)
            assert await collect(client.numbers(limit=3)) == [0, 1, 2]
            assert await collect(client.live(end=2)) == [0, 1]

    asyncio.run(steps())


def test_requests_of_idempotent_operations_have_a_random_key() -> None:
    first, second = [build_request(ops.add_thing, {"name": "n", "labels": []}) for _ in range(2)]
    assert first.headers["Idempotency-Key"] != second.headers["Idempotency-Key"]
    assert first.is_repeatable
    assert not build_request(ops.change_thing, {"key": "a"}).is_repeatable


# Declarations.


def _declare(route: str, **options: Any) -> Any:
    def contract(item: str, *, env: Any = None) -> None:
        """Do nothing."""

    contract.__annotations__ = {
        "item": "str",
        "env": options.pop("env", "str"),
        "return": options.pop("result", "None"),
    }
    return operation(route, **options)(contract)


@pytest.mark.parametrize(
    ("route", "options", "message"),
    [
        ("GET /api/{itme}", {}, "contract has no parameter itme"),
        ("GET /api/{item}", {"help": {"x": ""}}, "contract has no parameter x"),
        ("GET /api/{env}", {}, "contract has a default for env, which is in the path"),
        ("GET /api/{item}", {"env": "Mapping[str, str]"}, "contract has a Mapping, which a query cannot contain"),
        (
            "GET /api/{item}",
            {"result": "AsyncIterator[int]", "cli": "x"},
            "is a stream, which needs a command of its own",
        ),
        ("GET /api/{item}", {"pages": "items"}, "contract has pages, so it needs the parameters limit and cursor"),
    ],
)
def test_invalid_declaration_is_refused(route: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        _declare(route, **options)


def _do_nothing(side: object, item: str, *, env: object = None) -> None: ...


def test_invalid_implementation_is_refused() -> None:
    declared = _declare("POST /api/{item}", idempotent=True, cli="x")
    with pytest.raises(TypeError, match="is idempotent, so it needs an implementation that writes"):
        declared.reads(_do_nothing)
    with pytest.raises(TypeError, match="has the result AsyncIterator if, and only if, its implementation streams"):
        _declare("GET /api/{item}").streams(_do_nothing)
    declared.writes(_do_nothing)
    with pytest.raises(TypeError, match="has two implementations"):
        declared.writes(_do_nothing)


def test_operation_without_implementation_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ops.reset_things, "implementation", None)
    with pytest.raises(TypeError, match=r"no module implements Operation\(reset_things: POST /api/things/reset\)"):
        make_endpoints(ops, operation_commands)


ALL_OPERATIONS = [declared for module in (ops, *CONTRACT_MODULES) for declared in operations_in(module)]


@pytest.mark.parametrize("declared", ALL_OPERATIONS, ids=lambda declared: declared.name)
def test_commands_know_the_numbers_among_the_types(declared: Operation[..., Any]) -> None:
    """Commands see only the names of types, so an alias of a number has to be in NUMBERS."""
    schemas = {endpoint.operation_id: endpoint for endpoint in (*make_endpoints(ops, operation_commands), *ENDPOINTS)}
    endpoint = schemas[declared.name]
    kinds = build_parameter_types(endpoint)
    for parameter in declared.parameters:
        assert (parameter.number_type is not None) == (kinds.get(parameter.name) in ("integer", "number")), (
            parameter.name
        )


def build_parameter_types(endpoint: Any) -> dict[str, str]:
    """Return the JSON types of the parameters, or of their items, by name."""
    kinds: dict[str, str] = {}
    for struct in (endpoint.path_type, endpoint.query_type, endpoint.required_body_type):
        if not hasattr(struct, "__struct_fields__"):
            continue
        _, components = msgspec.json.schema_components([struct])
        for name, schema in components[struct.__name__]["properties"].items():
            options = [option for option in schema.get("anyOf", [schema]) if option.get("type") != "null"]
            kinds[name] = options[0].get("items", options[0]).get("type", "")
    return kinds


@pytest.mark.parametrize("declared", [d for m in CONTRACT_MODULES for d in operations_in(m)], ids=lambda d: d.name)
def test_operation_of_rota_is_served_and_names_known_guards(declared: Operation[..., Any]) -> None:
    assert declared.name in {endpoint.operation_id for endpoint in ENDPOINTS}
    assert {*declared.guards} <= {*GUARDS}


# Cost and types.


def test_contracts_import_nothing_expensive() -> None:
    modules = ("msgspec", "typing", "inspect", "starlette")
    code = f"import sys, rota.work.operations; print([name for name in {modules} if name in sys.modules])"
    result = subprocess.run(
        [sys.executable, "-S", "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(ROOT / "src")},
    )
    assert result.stdout == "[]\n"


WRONG = """
from rota.db.session import AnyReader
from rota.engine.transaction import Transaction
from tests import operation_contracts as ops
from tests.operation_schemas import Arguments, NumberPage

@ops.reset_things.writes
def right(tx: Transaction) -> Arguments:
    raise NotImplementedError

@ops.remove_thing.writes
def wrong_parameter_type(tx: Transaction, key: int, *, force: bool = False) -> Arguments:
    raise NotImplementedError

@ops.remove_thing.writes
def missing_parameter(tx: Transaction, key: str) -> Arguments:
    raise NotImplementedError

@ops.remove_thing.writes
def wrong_result(tx: Transaction, key: str, *, force: bool = False) -> NumberPage:
    raise NotImplementedError

@ops.list_numbers.reads
def transaction_in_a_read(tx: Transaction, *, limit: int = 1, cursor: str | None = None) -> NumberPage:
    raise NotImplementedError

async def prepare(context: object, *_: object, **__: object) -> int:
    return 1

@ops.remove_thing.prepared_by(prepare).writes
def wrong_prepared(tx: Transaction, words: str, key: str, *, force: bool = False) -> Arguments:
    raise NotImplementedError

@ops.watch_numbers.streams
async def wrong_stream(context: object, *, end: int) -> str:
    raise NotImplementedError
"""


def test_type_checker_holds_implementations_to_their_contracts(tmp_path: Path) -> None:
    """Slow, because mypy reads its cache of all modules that a transaction refers to."""
    file = tmp_path / "wrong.py"
    file.write_text(WRONG)
    result = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml"), str(file)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    lines = WRONG.splitlines()
    errors = [line for line in result.stdout.splitlines() if ": error: " in line]
    wrong = {lines[int(line.split(":")[1])].partition("(")[0].split()[-1] for line in errors}
    assert all("[arg-type]" in line for line in errors), result.stdout
    assert wrong == {
        "wrong_parameter_type",
        "missing_parameter",
        "wrong_result",
        "transaction_in_a_read",
        "wrong_prepared",
        "wrong_stream",
    }, result.stdout

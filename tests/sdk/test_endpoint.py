"""Every endpoint has a builder that the Python client uses; what builders say of requests is what the API takes."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator
from types import NoneType
from typing import Any, get_type_hints

import msgspec
import pytest

from rota.api.app import ENDPOINTS
from rota.api.endpoint import Endpoint
from rota.api.router import Router
from rota.client import ask as builders
from rota.client.ask import Ask, wanted
from rota.command.edit import Edit
from rota.command.schedule import ScheduleChange, ScheduleWanted
from rota.command.slot import SlotWanted
from rota.command.submission import AfterWanted, GroupWanted, LockWanted, Submission
from rota.core.template import TemplateBody
from rota.sdk import AsyncClient, Client, choice, course
from rota.sdk.verb import Course, Deed, Pages, Verb
from rota.sdk.verbs import Verbs
from rota.wire.scheduler import NothingForm

NOT_OF_THE_CLIENT = {
    "GET /api/slots/{slot}/stream",  # `rota run` hangs on it; `run` has the output in its answer
    "GET /api/display",  # how `rota list` and `rota show` are to look
    "DELETE /api/slots/{slot}",  # the same as POST …/release
    "GET /openapi.json",
    "GET /docs",
    "GET /docs/{file}",
    "GET /problems",
    "GET /problems/{code}",
}
"""What is for people, for other tools, or for one command alone."""

_GIVEN = {
    "job": "job-1", "run": "run-1", "group": "group-1", "webhook": "webhook-1", "delivery": "delivery-1",
    "slot": "slot-1", "artifact": "custom:a:b", "pool": "type/a", "key": "k",
}  # fmt: skip

_OF_KIND: dict[str, Any] = {
    "int": 1, "float": 1.0, "bool": True, "str": "x", "Sequence": ["x"], "Iterable": [], "Duration": "1s", "Group": {},
    "Seconds": 1.0, "Path": "/", "Command": ["x"],
    "Mapping": {}, "NewTemplate": {}, "TemplateChange": {}, "Job": {"command": ["true"]}, "Json": {},
}  # fmt: skip


def _built(build: Callable[..., Ask]) -> Ask:
    """An ask of it, with something in all that can be said."""
    given: dict[str, Any] = {}
    places = []
    for each in inspect.signature(build).parameters.values():
        kind = str(each.annotation).partition("[")[0].partition(" ")[0]
        value = _GIVEN.get(each.name, _OF_KIND[kind]) if kind == "str" else _OF_KIND.get(kind)
        if each.kind is each.POSITIONAL_ONLY:
            places.append(value)
        elif each.kind is not each.VAR_KEYWORD:
            given[each.name] = value
    return build(*places, **given)


def _all_builders() -> Iterator[Callable[..., Ask]]:
    for module in pkgutil.iter_modules(builders.__path__, "rota.client.ask."):
        found = importlib.import_module(module.name)
        for name, value in vars(found).items():
            is_own = inspect.isfunction(value) and value.__module__ == module.name
            if is_own and not name.startswith("_") and value.__annotations__.get("return") == "Ask":
                yield value


def _used() -> set[Callable[..., Any]]:
    """By the methods of the client."""
    verbs = {value.build for value in vars(Verbs).values() if isinstance(value, Verb | Pages)}
    return verbs | {
        value for module in (course, choice) for value in vars(module).values() if inspect.isfunction(value)
    }


def _endpoint(ask: Ask) -> Endpoint | None:
    found = Router(ENDPOINTS).find(ask.target.partition("?")[0])
    return None if found is None else found.endpoints.get(ask.method)


def _shown(endpoint: Endpoint) -> str:
    return f"{endpoint.method} {endpoint.path}"


BUILDERS = list(_all_builders())
CURRENT = [endpoint for endpoint in ENDPOINTS if not endpoint.is_deprecated]


def test_every_endpoint_is_asked_by_the_client() -> None:
    reached = {_shown(found) for build in BUILDERS if build in _used() and (found := _endpoint(_built(build)))}
    missing = {_shown(endpoint) for endpoint in CURRENT} - reached - NOT_OF_THE_CLIENT
    assert missing == set()


@pytest.mark.parametrize("build", BUILDERS, ids=lambda build: build.__name__)
def test_every_builder_asks_an_endpoint(build: Callable[..., Ask]) -> None:
    assert _endpoint(_built(build)) is not None


@pytest.mark.parametrize("build", BUILDERS, ids=lambda build: build.__name__)
def test_what_can_be_asked_for_once_carries_a_key(build: Callable[..., Ask]) -> None:
    """And nothing else does: a key that nobody looks at would have it sent again, and done again."""
    ask = _built(build)
    endpoint = _endpoint(ask)
    assert endpoint is not None
    if "stream=1" in ask.target:
        return  # a stream cannot be told again
    assert ("Idempotency-Key" in ask.headers) == endpoint.is_keyed


@pytest.mark.parametrize("build", BUILDERS, ids=lambda build: build.__name__)
def test_what_builders_ask_in_the_query_is_known(build: Callable[..., Ask]) -> None:
    """Of each parameter that is no place of the path and goes into no body."""
    ask = _built(build)
    endpoint = _endpoint(ask)
    assert endpoint is not None
    asked = {pair.partition("=")[0] for pair in ask.target.partition("?")[2].split("&") if pair}
    assert asked <= set(endpoint.known)


@pytest.mark.parametrize("name", [name for name, value in vars(Verbs).items() if isinstance(value, Verb | Pages)])
def test_what_the_client_reads_is_what_the_endpoint_gives(name: str) -> None:
    verb = vars(Verbs)[name]
    endpoint = _endpoint(_built(verb.build))
    assert endpoint is not None
    given = {endpoint.gives, *endpoint.or_gives.values()}
    assert verb.form in given or (verb.form is NoneType and given & {None, NoneType, NothingForm})


def test_methods_are_those_of_both_clients() -> None:
    names = [name for name, value in vars(Verbs).items() if isinstance(value, Deed | Course)]
    assert len(names) > 60
    for name in names:
        blocking, awaiting = getattr(Client, name), getattr(AsyncClient, name)
        assert blocking is awaiting
        assert blocking.__doc__


@pytest.mark.parametrize(
    ("said", "taken", "more"),
    [
        (wanted.Job, Submission, set()),
        (wanted.After, AfterWanted, set()),
        (wanted.Lock, LockWanted, set()),
        (wanted.Group, GroupWanted, set()),
        (wanted.Edit, Edit, set()),
        (wanted.NewTemplate, TemplateBody, {"name"}),
        (wanted.ScheduleChange, ScheduleChange, set()),
        (wanted.Schedule, ScheduleWanted, {"-name", "-cron", "-job"}),
        (wanted.Direct, SlotWanted, {"wait", "-command"}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_can_be_said_is_what_is_taken(said: type, taken: type[msgspec.Struct], more: set[str]) -> None:
    fields = set(taken.__struct_fields__) - {each[1:] for each in more if each.startswith("-")}
    assert set(get_type_hints(said)) == fields | {each for each in more if not each.startswith("-")}


def test_an_ask_does_not_change() -> None:
    ask = Ask("GET", "/")
    with pytest.raises(AttributeError, match="does not change"):
        ask.method = "POST"
    assert repr(ask) == "Ask(GET /)"


def test_what_is_sent_again_by_itself() -> None:
    """A rename that was done is refused the second time, so a PATCH is not."""
    assert [each for each in ("GET", "PUT", "PATCH", "POST", "DELETE") if Ask(each, "/").is_repeatable] == [
        "GET",
        "PUT",
    ]
    assert all(Ask(each, "/", key="k").is_repeatable for each in ("PATCH", "POST"))

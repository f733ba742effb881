"""Every endpoint has a request builder that the Python client uses, and the requests match the API."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator
from types import NoneType
from typing import Any, get_type_hints

import msgspec
import pytest

from rota.client import requests
from rota.client.requests import Request, options
from rota.client.sdk import AsyncClient, Client, methods, streams
from rota.client.sdk.calls import ClientCall, ClientStream, PagedStream, RequestCall
from rota.client.sdk.methods import ClientMethods
from rota.control.schemas import EmptyResult
from rota.direct.commands import ReservationRequest
from rota.http.endpoint import Endpoint
from rota.http.router import Router
from rota.jobs.edit import EditRequest
from rota.jobs.submission import Dependency, GroupRequest, LockRequest, Submission
from rota.routes import ENDPOINTS
from rota.schedules.commands import ScheduleChange, ScheduleRequest
from rota.templates.model import TemplateBody

ENDPOINTS_WITHOUT_CLIENT_METHOD = {
    "GET /api/reservations/{reservation}/stream",  # only for `rota run`; the response of `run` has the output
    "GET /api/display",  # configuration of `rota list` and `rota show`
    "DELETE /api/reservations/{reservation}",  # same as POST …/release
    "GET /openapi.json",
    "GET /docs",
    "GET /docs/{file}",
    "GET /problems",
    "GET /problems/{code}",
}
"""Endpoints for browsers, for other tools, or for a single command."""

_ARGUMENTS_BY_NAME = {
    "job": "job-1",
    "run": "run-1",
    "group": "group-1",
    "webhook": "webhook-1",
    "delivery": "delivery-1",
    "reservation": "reservation-1",
    "artifact": "custom:a:b",
    "pool": "type/a",
    "key": "k",
    "key_or_job": "k",
}

_ARGUMENTS_BY_TYPE: dict[str, Any] = {
    "int": 1,
    "float": 1.0,
    "bool": True,
    "str": "x",
    "Sequence": ["x"],
    "Iterable": [],
    "Duration": "1s",
    "GroupOptions": {},
    "Seconds": 1.0,
    "Path": "/",
    "Command": ["x"],
    "Mapping": {},
    "NewTemplateOptions": {},
    "TemplateChangeOptions": {},
    "NewJobOptions": {"command": ["true"]},
    "Json": {},
    "PageSize": 1,
    "ItemId": "x",
}


def _build_request(build: Callable[..., Request]) -> Request:
    """Build a request with a value for every argument."""
    keywords: dict[str, Any] = {}
    positional = []
    for param in inspect.signature(build).parameters.values():
        kind = str(param.annotation).partition("[")[0].partition(" ")[0]
        default = _ARGUMENTS_BY_TYPE.get(kind)
        value = _ARGUMENTS_BY_NAME.get(param.name, default) if kind == "str" else default
        if param.kind is param.POSITIONAL_ONLY:
            positional.append(value)
        elif param.kind is not param.VAR_KEYWORD:
            keywords[param.name] = value
    return build(*positional, **keywords)


def _all_builders() -> Iterator[Callable[..., Request]]:
    for module in pkgutil.iter_modules(requests.__path__, "rota.client.requests."):
        imported = importlib.import_module(module.name)
        for name, value in vars(imported).items():
            is_own = inspect.isfunction(value) and value.__module__ == module.name
            if is_own and not name.startswith("_") and value.__annotations__.get("return") == "Request":
                yield value


def _used_builders() -> set[Callable[..., Any]]:
    """Return the builders that methods of the client use."""
    builders = {value.build for value in vars(ClientMethods).values() if isinstance(value, RequestCall | PagedStream)}
    return builders | {
        value for module in (streams, methods) for value in vars(module).values() if inspect.isfunction(value)
    }


def _find_endpoint(request: Request) -> Endpoint | None:
    match = Router(ENDPOINTS).find(request.target.partition("?")[0])
    return None if match is None else match.endpoints.get(request.method)


def _format_endpoint(endpoint: Endpoint) -> str:
    return f"{endpoint.method} {endpoint.path}"


OPERATION_BUILDERS = [build for build in _used_builders() if hasattr(build, "__wrapped__")]
"""Builders made of operation contracts."""
BUILDERS = [*_all_builders(), *sorted(OPERATION_BUILDERS, key=lambda build: build.__name__)]
NOT_DEPRECATED = [endpoint for endpoint in ENDPOINTS if not endpoint.is_deprecated]


def test_client_covers_every_endpoint() -> None:
    covered = {
        _format_endpoint(endpoint)
        for build in BUILDERS
        if build in _used_builders() and (endpoint := _find_endpoint(_build_request(build)))
    }
    missing = {_format_endpoint(endpoint) for endpoint in NOT_DEPRECATED} - covered - ENDPOINTS_WITHOUT_CLIENT_METHOD
    assert missing == set()


@pytest.mark.parametrize("build", BUILDERS, ids=lambda build: build.__name__)
def test_every_builder_targets_an_endpoint(build: Callable[..., Request]) -> None:
    assert _find_endpoint(_build_request(build)) is not None


@pytest.mark.parametrize("build", BUILDERS, ids=lambda build: build.__name__)
def test_requests_carry_a_key_if_the_endpoint_accepts_it(build: Callable[..., Request]) -> None:
    """Other requests carry none: with a key that the endpoint ignores, the request would be repeated and take effect
    twice."""
    request = _build_request(build)
    endpoint = _find_endpoint(request)
    assert endpoint is not None
    if "stream=1" in request.target:
        return  # a stream cannot be replayed
    assert ("Idempotency-Key" in request.headers) == endpoint.accepts_key


@pytest.mark.parametrize("build", BUILDERS, ids=lambda build: build.__name__)
def test_query_parameters_of_builders_exist(build: Callable[..., Request]) -> None:
    request = _build_request(build)
    endpoint = _find_endpoint(request)
    assert endpoint is not None
    parameters = {pair.partition("=")[0] for pair in request.target.partition("?")[2].split("&") if pair}
    assert parameters <= set(endpoint.query_parameters)


@pytest.mark.parametrize(
    "name", [name for name, value in vars(ClientMethods).items() if isinstance(value, RequestCall | PagedStream)]
)
def test_response_types_of_methods_match_endpoints(name: str) -> None:
    method = vars(ClientMethods)[name]
    endpoint = _find_endpoint(_build_request(method.build))
    assert endpoint is not None
    declared = {endpoint.response_type, *endpoint.other_response_types.values()}
    response_type = method.response_type if isinstance(method, RequestCall) else method.page_type
    assert response_type in declared or (response_type is NoneType and declared & {None, NoneType, EmptyResult})


def test_both_clients_have_all_methods_with_documentation() -> None:
    names = [name for name, value in vars(ClientMethods).items() if isinstance(value, ClientCall | ClientStream)]
    assert len(names) > 60
    for name in names:
        blocking, asynchronous = getattr(Client, name), getattr(AsyncClient, name)
        assert blocking is asynchronous, "both classes inherit one descriptor, so neither client lacks a method"
        assert blocking.__doc__


@pytest.mark.parametrize(
    ("options_type", "request_type", "missing", "extra"),
    [
        (options.NewJobOptions, Submission, set(), set()),
        (options.DependencyOptions, Dependency, set(), set()),
        (options.LockOptions, LockRequest, set(), set()),
        (options.GroupOptions, GroupRequest, set(), set()),
        (options.EditOptions, EditRequest, set(), set()),
        (options.NewTemplateOptions, TemplateBody, set(), {"name"}),
        (options.ScheduleChangeOptions, ScheduleChange, set(), set()),
        (options.ScheduleOptions, ScheduleRequest, {"name", "cron", "job"}, set()),
        (options.DirectOptions, ReservationRequest, {"command"}, {"wait"}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_options_match_request_fields(
    options_type: type, request_type: type[msgspec.Struct], missing: set[str], extra: set[str]
) -> None:
    """The options are the fields of the request, without the `missing` ones (positional parameters of the method) and
    with the `extra` ones (parameters of the request's path or query)."""
    assert set(get_type_hints(options_type)) == set(request_type.__struct_fields__) - missing | extra

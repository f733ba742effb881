"""Endpoints of operation contracts: decoded arguments in, the result of the implementation out."""

from __future__ import annotations

import sys
from collections import abc
from collections.abc import AsyncGenerator, Callable, Iterable
from datetime import timedelta
from functools import cached_property, partial, reduce, update_wrapper
from operator import or_
from types import GenericAlias, ModuleType, NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec
from msgspec import UNSET, Meta
from starlette.responses import Response

from rota.duration import format_duration, parse_duration
from rota.errors import error_path
from rota.http.endpoint import Endpoint, Invocation, JsonReply
from rota.http.idempotency import render_unchanged, run_call
from rota.http.sse import MEDIA, EventStream, format_message
from rota.ids import check_id
from rota.operation import Implementation, Operation, Parameter, operations_in
from rota.schema_types import DurationText, make_validation_error


def make_endpoints(contracts: ModuleType, *implementations: ModuleType) -> tuple[Endpoint, ...]:
    """Return the endpoints of the operations that `contracts` declares. `implementations` are the modules that
    implement them: their import has registered the functions."""
    endpoints: list[Endpoint] = []
    for operation in operations_in(contracts):
        if operation.implementation is None:
            modules = ", ".join(module.__name__ for module in implementations)
            raise TypeError(f"no module implements {operation}; searched {modules}")
        endpoints.append(OperationEndpoint(operation, operation.implementation))
    return tuple(endpoints)


class OperationEndpoint(Endpoint):
    """Endpoint of an operation. Its types are structs that are made of the parameters of the contract."""

    def __init__(self, operation: Operation[..., Any], implementation: Implementation) -> None:
        handler: Any = partial(_HANDLERS[implementation.kind], self)
        super().__init__(
            operation.method,
            operation.path,
            update_wrapper(handler, operation.contract),
            statuses=(operation.status,),
            media=MEDIA if operation.is_stream else None,
            accepts_key=operation.is_idempotent,
            errors=operation.errors,
            request_example=operation.example or UNSET,
        )
        self.operation = operation
        self.implementation = implementation

    @cached_property
    def query_type(self) -> Any:
        return self._make_struct("Query", self._rest if self.operation.has_query else ())

    @cached_property
    def body_type(self) -> Any:
        if self.operation.has_query or not self._rest:
            return NoneType
        body: Any = self._make_struct("Request", self._rest)
        return body if any(parameter.is_required for parameter in self._rest) else body | None

    @property
    def _rest(self) -> list[Parameter]:
        """Parameters that are not in the path."""
        return [parameter for parameter in self.operation.parameters if not parameter.is_in_path]

    @cached_property
    def response_type(self) -> Any:
        return None if self.operation.is_stream else self.operation.types["return"]

    @cached_property
    def other_response_types(self) -> dict[int, Any]:
        return {}

    @cached_property
    def path_type(self) -> Any:
        return self._make_struct("Path", [parameter for parameter in self.operation.parameters if parameter.is_in_path])

    @cached_property
    def response_example(self) -> Any:
        """Example of the result: the one of its type in `EXAMPLES` of the module that defines it."""
        result = self.operation.types["return"]
        examples = getattr(sys.modules[result.__module__], "EXAMPLES", ())
        return next((example for example in examples if type(example) is result), UNSET)

    def _make_struct(self, suffix: str, parameters: Iterable[Parameter]) -> type[msgspec.Struct]:
        name = "".join(word.capitalize() for word in self.operation.name.split("_"))
        types = self.operation.types
        fields = [_make_field(parameter, types[parameter.name]) for parameter in parameters]
        return msgspec.defstruct(
            f"{name}{suffix}",
            fields,
            namespace={"__doc__": self.operation.summary},
            module=self.operation.contract.__module__,
            frozen=True,
            kw_only=True,
            forbid_unknown_fields=True,
        )

    def read_arguments(self, call: Invocation[Any, Any]) -> dict[str, Any]:
        """Return all arguments of the implementation by name, with the defaults of the contract."""
        try:
            path = msgspec.convert(call.path_values, type=self.path_type, strict=False)
        except msgspec.ValidationError as error:
            raise make_validation_error("the path", error) from None
        body = call.body
        if body is None and self.is_body_optional:
            body = self.required_body_type()
        arguments: dict[str, Any] = {}
        for part in (path, call.query, body):
            arguments |= {} if part is None else msgspec.structs.asdict(part)
        for parameter in self.operation.parameters:
            with error_path(f".{parameter.name}"):
                arguments[parameter.name] = _parse(parameter, arguments[parameter.name])
        return arguments


def _make_field(parameter: Parameter, kind: Any) -> tuple[str, Any] | tuple[str, Any, Any]:
    wire_type: Any = _wire_type(kind)
    described: Any = Annotated[wire_type, Meta(description=parameter.description or None)]
    if parameter.is_required:
        return parameter.name, described
    default = parameter.default
    return parameter.name, described, format_duration(default) if isinstance(default, timedelta) else default


def _wire_type(kind: Any) -> Any:
    """Return the type that is decoded for a type of a contract."""
    if kind is timedelta:
        return DurationText
    origin = get_origin(kind)
    if origin is abc.Sequence:
        return GenericAlias(tuple, (*map(_wire_type, get_args(kind)), ...))
    if origin is abc.Mapping:
        return GenericAlias(dict, tuple(map(_wire_type, get_args(kind))))
    if origin in (Union, UnionType):
        return reduce(or_, map(_wire_type, get_args(kind)))
    return kind


def _parse(parameter: Parameter, value: Any) -> Any:
    """Parse a decoded value: a duration is text on the wire, and an id has to be valid."""
    if value is None:
        return None
    if parameter.is_duration:
        return tuple(map(parse_duration, value)) if parameter.is_sequence else parse_duration(value)
    if parameter.id_kind is not None:
        for text in value if parameter.is_sequence else (value,):
            check_id(text, parameter.id_kind)
    return value


async def _call_with(endpoint: OperationEndpoint, call: Invocation[Any, Any]) -> Callable[..., Any]:
    """Return the implementation with its arguments. Only its first one is left: a reader, or the transaction."""
    implementation, arguments = endpoint.implementation, endpoint.read_arguments(call)
    if implementation.prepare is None:
        return partial(implementation.function, **arguments)
    prepared = await implementation.prepare(call.context, **arguments)
    return lambda side: implementation.function(side, prepared, **arguments)


async def _read(endpoint: OperationEndpoint, call: Invocation[Any, Any]) -> JsonReply[Any]:
    return JsonReply(await call.context.read(await _call_with(endpoint, call)), endpoint.operation.status)


async def _write(endpoint: OperationEndpoint, call: Invocation[Any, Any]) -> JsonReply[Any]:
    def make_reply(result: Any) -> JsonReply[Any]:
        return JsonReply(result, endpoint.operation.status)

    return (await run_call(call, await _call_with(endpoint, call), render_unchanged, make_reply)).reply


async def _stream(endpoint: OperationEndpoint, call: Invocation[Any, Any]) -> Response:
    items = (await _call_with(endpoint, call))(call.context)

    async def messages() -> AsyncGenerator[bytes, None]:
        async for item in items:
            yield format_message(item)

    return EventStream(messages(), call.context.stream_limit)


_HANDLERS = {"reads": _read, "writes": _write, "streams": _stream}

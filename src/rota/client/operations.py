"""Requests of operation contracts. Commands import this module, so it imports little."""

from __future__ import annotations

from rota.client.requests import RESPONSE_TIMEOUT, Request, build_query, quote
from rota.client.requests.arguments import as_duration, as_idempotency_key, as_list, as_mapping

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from rota.operation import Operation, Parameter


def build_request(operation: Operation[..., Any], arguments: Mapping[str, Any]) -> Request:
    """Build a request from arguments by name. The scheduler knows the defaults of the others."""
    path, fields = operation.path.replace(":path}", "}"), {}
    for parameter in operation.parameters:
        name = parameter.name
        if name not in arguments:
            continue
        if parameter.is_in_path:
            path = path.replace(f"{{{name}}}", quote(arguments[name]))
        else:
            fields[name] = _encode(parameter, arguments[name])
    key = as_idempotency_key(None) if operation.is_idempotent else None
    if operation.has_query:
        timeout = None if operation.is_stream else RESPONSE_TIMEOUT
        return Request(operation.method, f"{path}{build_query(*fields.items())}", key=key, timeout=timeout)
    has_body = any(not parameter.is_in_path for parameter in operation.parameters)
    return Request(operation.method, path, body=fields if has_body else None, key=key)


def _encode(parameter: Parameter, value: Any) -> Any:
    if value is None:
        return None
    if parameter.is_sequence:
        values = as_list(parameter.name, value)
        return [*map(as_duration, values)] if parameter.is_duration else values
    if parameter.is_mapping:
        return as_mapping(parameter.name, value)
    return as_duration(value) if parameter.is_duration else value

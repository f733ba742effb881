"""Hooks that limit the requests of schemathesis: no external URLs, short waits, each idempotency key once.

Schemathesis loads this module in its own process; see test_contract.py.
"""

from __future__ import annotations

from itertools import count
from typing import Any

import schemathesis
from schemathesis.core import NotSet
from schemathesis.core.parameters import ParameterLocation

CLOSED_URL = "http://127.0.0.1:9/"
STREAMING_PARAMETERS = ("follow", "stream", "attach")
"""Query parameters that keep a response open until a job ends. No job runs."""
WAITING_PATHS = ("/api/direct", "/api/reservations")
"""Endpoints that wait for a start that never comes."""
_numbers = count()


def _replace_url(url: Any) -> Any:
    return CLOSED_URL if isinstance(url, str) and url.startswith(("http://", "https://")) else url


def _without_external_urls(body: Any) -> Any:
    """Return the body with every webhook URL replaced by a closed port."""
    if isinstance(body, list):
        return [_without_external_urls(item) for item in body]
    if not isinstance(body, dict):
        return body
    output = {name: _without_external_urls(item) for name, item in body.items()}
    if "url" in output:
        output["url"] = _replace_url(output["url"])
    if isinstance(urls := output.get("webhooks"), list):
        output["webhooks"] = [_replace_url(url) for url in urls]
    return output


def _shorten_wait(wait: Any) -> Any:
    """Replace a valid wait by a very short one."""
    try:
        return "0.01" if 0 < float(wait) <= 60 else wait
    except (TypeError, ValueError):
        return wait


@schemathesis.hook
def before_call(context: schemathesis.HookContext, case: schemathesis.Case[Any], kwargs: dict[str, Any]) -> None:
    if (body := _without_external_urls(case.body)) != case.body:
        case.body = body
    is_positive = case.meta is None or case.meta.generation.mode.is_positive
    if "wait" in case.query:
        case.query["wait"] = _shorten_wait(case.query["wait"])
    for name in STREAMING_PARAMETERS:
        if str(case.query.get(name)).lower() in ("true", "1"):
            case.query[name] = "false"
    if (
        case.operation.path in WAITING_PATHS
        and isinstance(case.body, dict)
        and (is_positive or "wait" not in case.body)
    ):
        case.body = {**case.body, "wait": "10ms"}
    if is_positive:
        # The scheduler issues these values. A schema cannot describe which are valid.
        for name in ("cursor", "last_seen"):
            case.query.pop(name, None)
        if not str(case.headers.get("Range", "bytes=")).startswith("bytes="):
            del case.headers["Range"]  # RFC 9110: a server ignores a Range that it does not understand
        if "Idempotency-Key" in case.headers:
            case.headers["Idempotency-Key"] = f"one of many: {next(_numbers)}"


@schemathesis.hook
def filter_case(context: schemathesis.HookContext, case: schemathesis.Case[Any]) -> bool:
    """Skip cases that schemathesis takes for invalid although they are not.

    A null of a response is offered as an id, and an optional value may be omitted. test_malformed.py tests a missing
    required body.
    """
    if any(value in (None, "null") for value in (case.path_parameters or {}).values()):
        return False
    if case.meta is None or case.meta.generation.mode.is_positive:
        return True
    invalid_parts = {part for part, info in case.meta.components.items() if info.mode.is_negative}
    return bool(invalid_parts - ({ParameterLocation.BODY} if isinstance(case.body, NotSet) else set()))

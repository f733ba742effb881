"""What schemathesis does to a scheduler, tamed: nobody outside is spoken to, nobody waits long, a key is used once.

It is loaded by schemathesis (see test_contract.py), in its own process.
"""

from __future__ import annotations

from itertools import count
from typing import Any

import schemathesis

NOBODY = "http://127.0.0.1:9/"
_numbers = count()


def _at_nobody(url: Any) -> Any:
    return NOBODY if isinstance(url, str) and url.startswith(("http://", "https://")) else url


def _tamed(body: Any) -> Any:
    """Webhooks go nowhere."""
    if isinstance(body, list):
        return [_tamed(each) for each in body]
    if not isinstance(body, dict):
        return body
    said = {name: _tamed(each) for name, each in body.items()}
    if "url" in said:
        said["url"] = _at_nobody(said["url"])
    if isinstance(urls := said.get("webhooks"), list):
        said["webhooks"] = [_at_nobody(url) for url in urls]
    return said


def _short(wait: Any) -> Any:
    """A moment instead of a minute, if it is one that is waited."""
    try:
        return "0.01" if 0 < float(wait) <= 60 else wait
    except (TypeError, ValueError):
        return wait


@schemathesis.hook
def before_call(context: schemathesis.HookContext, case: schemathesis.Case[Any], kwargs: dict[str, Any]) -> None:
    case.body = _tamed(case.body)
    is_right = case.meta is None or case.meta.generation.mode.is_positive
    if "wait" in case.query:
        case.query["wait"] = _short(case.query["wait"])
    if str(case.query.get("follow")).lower() in ("true", "1"):
        case.query["follow"] = "false"  # nothing runs here, so nothing that is followed ends
    if is_right:
        # These are given out by the scheduler: no schema can say which it has given.
        for name in ("cursor", "seen"):
            case.query.pop(name, None)
        if "Idempotency-Key" in case.headers:
            case.headers["Idempotency-Key"] = f"one of many: {next(_numbers)}"


@schemathesis.hook
def filter_path_parameters(context: schemathesis.HookContext, path_parameters: dict[str, Any] | None) -> bool:
    """What an answer has as null is no id, though it is offered as one."""
    return all(value not in (None, "null") for value in (path_parameters or {}).values())

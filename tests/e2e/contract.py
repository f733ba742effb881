"""What schemathesis does to a scheduler, tamed: nobody outside is spoken to, nobody waits long, a key is used once.

It is loaded by schemathesis (see test_contract.py), in its own process.
"""

from __future__ import annotations

from itertools import count
from typing import Any

import schemathesis
from schemathesis.core import NotSet
from schemathesis.core.parameters import ParameterLocation

NOBODY = "http://127.0.0.1:9/"
ENDLESS = ("follow", "stream", "attend")
"""What is asked by these ends with what runs, and nothing does."""
WAITING = ("/api/direct", "/api/slots")
"""For a turn that does not come."""
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
    if (tamed := _tamed(case.body)) != case.body:
        case.body = tamed
    is_right = case.meta is None or case.meta.generation.mode.is_positive
    if "wait" in case.query:
        case.query["wait"] = _short(case.query["wait"])
    for name in ENDLESS:
        if str(case.query.get(name)).lower() in ("true", "1"):
            case.query[name] = "false"
    if case.operation.path in WAITING and isinstance(case.body, dict) and (is_right or "wait" not in case.body):
        case.body = {**case.body, "wait": "10ms"}
    if is_right:
        # These are given out by the scheduler: no schema can say which it has given.
        for name in ("cursor", "seen"):
            case.query.pop(name, None)
        if "Idempotency-Key" in case.headers:
            case.headers["Idempotency-Key"] = f"one of many: {next(_numbers)}"


@schemathesis.hook
def filter_case(context: schemathesis.HookContext, case: schemathesis.Case[Any]) -> bool:
    """What an answer has as null is no id, though it is offered as one; and to leave out what may be left out is
    nothing wrong. Who leaves out a body that has to be there is asked for in test_malformed.py."""
    if any(value in (None, "null") for value in (case.path_parameters or {}).values()):
        return False
    if case.meta is None or case.meta.generation.mode.is_positive:
        return True
    wrong = {place for place, info in case.meta.components.items() if info.mode.is_negative}
    return bool(wrong - ({ParameterLocation.BODY} if isinstance(case.body, NotSet) else set()))

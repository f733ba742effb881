"""Fields of a job in a workflow file: accepted forms, and conversion to the request."""

from __future__ import annotations

from rota.duration import parse_duration
from rota.errors import InvalidInput
from rota.workflows.scalars import DocumentPath, Fault, as_boolean, as_integer, as_json, as_text, is_empty

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

LOCK_MODES = ("exclusive", "shared")


def read_text(value: Any, path: DocumentPath) -> str:
    text = as_text(value)
    if text is None:
        raise Fault(path, f"expected text, not {describe_kind(value)}")
    return text


def read_integer(value: Any, path: DocumentPath) -> int:
    number = as_integer(value)
    if number is None:
        raise Fault(path, f"expected a whole number, not {quote_value(value)}")
    return number


def read_boolean(value: Any, path: DocumentPath) -> bool:
    flag = as_boolean(value)
    if flag is None:
        raise Fault(path, f"expected true or false, not {quote_value(value)}")
    return flag


def read_duration(value: Any, path: DocumentPath) -> str:
    text = read_text(value, path)
    try:
        parse_duration(text)
    except InvalidInput as error:
        raise Fault(path, error.message) from None
    return text


def read_list(value: Any, path: DocumentPath) -> list[Any]:
    """Read a list. A single value counts as a list of one item."""
    if isinstance(value, list):
        return value
    if isinstance(value, dict) or is_empty(value):
        raise Fault(path, f"expected a list, not {describe_kind(value)}")
    return [value]


def read_texts(value: Any, path: DocumentPath) -> list[str]:
    return [read_text(item, (*path, n)) for n, item in enumerate(read_list(value, path))]


def read_map(value: Any, path: DocumentPath) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Fault(path, f"expected a map of names to values, not {describe_kind(value)}")
    return value


def read_variables(value: Any, path: DocumentPath) -> dict[str, str]:
    return {name: read_text(item, (*path, name)) for name, item in read_map(value, path).items()}


def read_params(value: Any, path: DocumentPath) -> dict[str, Any]:
    params = {}
    for name, param in read_map(value, path).items():
        try:
            params[name] = as_json(param)
        except ValueError as error:
            raise Fault((*path, name), str(error)) from None
    return params


def read_command(value: Any, path: DocumentPath) -> list[str]:
    if isinstance(value, list):
        if not value:
            raise Fault(path, "the command is empty; write the program and its arguments, as in [make, test]")
        return [read_text(word, (*path, n)) for n, word in enumerate(value)]
    text = as_text(value)
    if text is None:
        raise Fault(path, f"expected a list of words such as [make, test], not {describe_kind(value)}")
    quoted = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    if not text.strip() or len(quoted) > 200 or not quoted.isprintable():
        raise Fault(path, 'expected a list of words such as [make, test]; for a shell, write [sh, -c, "…"]')
    words = ", ".join(f'"{word}"' if not word.isalnum() else word for word in quoted.split())
    plain = "" if set("\\\"'|&;<>$`*?(){}#~") & set(text) else f"[{words}], or "
    raise Fault(path, f'expected a list of words, not text: write {plain}[sh, -c, "{quoted}"] for a shell')


def read_locks(value: Any, path: DocumentPath) -> list[dict[str, str]]:
    return [_read_lock(lock, (*path, n)) for n, lock in enumerate(read_list(value, path))]


def _read_lock(value: Any, path: DocumentPath) -> dict[str, str]:
    if isinstance(value, dict):
        refuse_unknown_keys(value, ("key", "mode"), path)
        if "key" not in value:
            raise Fault(path, "the lock has no key; write {key: repo, mode: shared}, or repo:shared")
        mode = read_text(value.get("mode", "exclusive"), (*path, "mode"))
        if mode not in LOCK_MODES:
            raise Fault((*path, "mode"), f"expected {' or '.join(LOCK_MODES)}, not {mode!r}")
        return {"key": read_text(value["key"], (*path, "key")), "mode": mode}
    text = read_text(value, path)
    key, _, mode = text.rpartition(":")
    # A key can contain colons; only a known mode at the end is a mode.
    return {"key": key, "mode": mode} if key and mode in LOCK_MODES else {"key": text, "mode": "exclusive"}


def read_pools(value: Any, path: DocumentPath) -> dict[str, int]:
    if isinstance(value, dict):
        return {name: read_integer(weight, (*path, name)) for name, weight in value.items()}
    return dict(
        _parse_pool_weight(read_text(item, (*path, n)), (*path, n)) for n, item in enumerate(read_list(value, path))
    )


def _parse_pool_weight(text: str, path: DocumentPath) -> tuple[str, int]:
    name, equals, weight = text.rpartition("=")
    if not equals:
        return text, 1
    if not name or not weight.isdecimal() or len(weight) > 9:
        raise Fault(path, f"expected NAME or NAME=WEIGHT with a whole number as weight, not {text!r}")
    return name, int(weight)


def refuse_unknown_keys(value: dict[str, Any], known_keys: Any, path: DocumentPath) -> None:
    for name in value:
        if name not in known_keys:
            raise unknown_key_fault(name, known_keys, path)


def unknown_key_fault(name: str, known_keys: Any, path: DocumentPath) -> Fault:
    from difflib import get_close_matches

    near = get_close_matches(name, list(known_keys), n=1, cutoff=0.5)
    advice = f"did you mean {near[0]}?" if near else f"known keys: {', '.join(known_keys)}"
    return Fault((*path, name), f"unknown key {name!r}; {advice}")


def describe_kind(value: Any) -> str:
    if isinstance(value, dict):
        return "a map"
    if isinstance(value, list):
        return "a list"
    return "nothing" if is_empty(value) else quote_value(value)


def quote_value(value: Any) -> str:
    if isinstance(value, dict | list) or is_empty(value):
        return describe_kind(value)
    text = as_text(value)
    text = str(value) if text is None else text
    return repr(text if len(text) <= 60 else f"{text[:60]}…")


FIELDS: dict[str, Callable[[Any, DocumentPath], Any]] = {
    "command": read_command,
    "template": read_text,
    "params": read_params,
    "name": read_text,
    "type": read_text,
    "priority": read_integer,
    "after": read_list,
    "needs": read_texts,
    "produces": read_texts,
    "missing_producer": read_text,
    "locks": read_locks,
    "pools": read_pools,
    "pin": read_text,
    "flow": read_text,
    "phase": read_text,
    "parallelizable": read_boolean,
    "unique": read_text,
    "target": read_text,
    "timeout": read_duration,
    "idle_timeout": read_duration,
    "delay": read_duration,
    "retries": read_integer,
    "retry": read_text,
    "skip_if": read_text,
    "worktree": read_boolean,
    "base": read_text,
    "patch": read_boolean,
    "with_diff": read_boolean,
    "env": read_variables,
    "cwd": read_text,
    "webhook": read_text,
    "webhooks": read_texts,
    "webhook_events": read_texts,
}
"""Reader by field of a job. The items of `after` are read once all jobs are known."""

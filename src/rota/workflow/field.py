"""The fields of a job in a workflow file: what each may look like, and what becomes of it in the request."""

from __future__ import annotations

from rota.duration import parse_duration
from rota.errors import InvalidInput
from rota.workflow.fault import Fault, Path
from rota.workflow.scalar import flag_of, is_nothing, text_of, value_of, whole_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

MODES = ("exclusive", "shared")


def text(value: Any, path: Path) -> str:
    found = text_of(value)
    if found is None:
        raise Fault(path, f"text is wanted here, not {kind(value)}")
    return found


def whole(value: Any, path: Path) -> int:
    found = whole_of(value)
    if found is None:
        raise Fault(path, f"a whole number is wanted here, not {shown(value)}")
    return found


def flag(value: Any, path: Path) -> bool:
    found = flag_of(value)
    if found is None:
        raise Fault(path, f"true or false is wanted here, not {shown(value)}")
    return found


def duration(value: Any, path: Path) -> str:
    found = text(value, path)
    try:
        parse_duration(found)
    except InvalidInput as error:
        raise Fault(path, error.message) from None
    return found


def entries(value: Any, path: Path) -> list[Any]:
    """A list, or one entry by itself."""
    if isinstance(value, list):
        return value
    if isinstance(value, dict) or is_nothing(value):
        raise Fault(path, f"a list is wanted here, not {kind(value)}")
    return [value]


def texts(value: Any, path: Path) -> list[str]:
    return [text(each, (*path, n)) for n, each in enumerate(entries(value, path))]


def table(value: Any, path: Path) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Fault(path, f"names with values are wanted here, not {kind(value)}")
    return value


def variables(value: Any, path: Path) -> dict[str, str]:
    return {name: text(each, (*path, name)) for name, each in table(value, path).items()}


def params(value: Any, path: Path) -> dict[str, Any]:
    found = {}
    for name, each in table(value, path).items():
        try:
            found[name] = value_of(each)
        except ValueError as error:
            raise Fault((*path, name), str(error)) from None
    return found


def command(value: Any, path: Path) -> list[str]:
    if isinstance(value, list):
        if not value:
            raise Fault(path, "the command is empty; write the program and its arguments, as in [make, test]")
        return [text(each, (*path, n)) for n, each in enumerate(value)]
    written = text_of(value)
    if written is None:
        raise Fault(path, f"a list of words is wanted here, as in [make, test], not {kind(value)}")
    quoted = written.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    if not written.strip() or len(quoted) > 200 or not quoted.isprintable():
        raise Fault(path, 'a list of words is wanted here, as in [make, test]; for a shell [sh, -c, "…"]')
    words = ", ".join(f'"{word}"' if not word.isalnum() else word for word in quoted.split())
    plain = "" if set("\\\"'|&;<>$`*?(){}#~") & set(written) else f"[{words}], or "
    raise Fault(path, f'a list of words is wanted here, not one text: write {plain}[sh, -c, "{quoted}"] for a shell')


def locks(value: Any, path: Path) -> list[dict[str, str]]:
    return [_lock(each, (*path, n)) for n, each in enumerate(entries(value, path))]


def _lock(value: Any, path: Path) -> dict[str, str]:
    if isinstance(value, dict):
        refuse_others(value, ("key", "mode"), path)
        if "key" not in value:
            raise Fault(path, "a lock has a key: write {key: repo, mode: shared}, or repo:shared")
        mode = text(value.get("mode", "exclusive"), (*path, "mode"))
        if mode not in MODES:
            raise Fault((*path, "mode"), f"a lock is {' or '.join(MODES)}, not {mode!r}")
        return {"key": text(value["key"], (*path, "key")), "mode": mode}
    written = text(value, path)
    key, _, mode = written.rpartition(":")
    # A key may hold colons of its own; only a mode at the end is one.
    return {"key": key, "mode": mode} if key and mode in MODES else {"key": written, "mode": "exclusive"}


def pools(value: Any, path: Path) -> dict[str, int]:
    if isinstance(value, dict):
        return {name: whole(each, (*path, name)) for name, each in value.items()}
    return dict(_draw(text(each, (*path, n)), (*path, n)) for n, each in enumerate(entries(value, path)))


def _draw(written: str, path: Path) -> tuple[str, int]:
    name, equals, weight = written.rpartition("=")
    if not equals:
        return written, 1
    if not name or not weight.isdecimal() or len(weight) > 9:
        raise Fault(path, f"write it as NAME or NAME=WEIGHT, the weight a whole number, not {written!r}")
    return name, int(weight)


def refuse_others(value: dict[str, Any], known: Any, path: Path) -> None:
    for name in value:
        if name not in known:
            raise unknown(name, known, path)


def unknown(name: str, known: Any, path: Path) -> Fault:
    from difflib import get_close_matches

    near = get_close_matches(name, list(known), n=1, cutoff=0.5)
    advice = f"did you mean {near[0]}?" if near else f"what is known here: {', '.join(known)}"
    return Fault((*path, name), f"there is no {name!r} here; {advice}")


def kind(value: Any) -> str:
    if isinstance(value, dict):
        return "a map"
    if isinstance(value, list):
        return "a list"
    return "nothing" if is_nothing(value) else shown(value)


def shown(value: Any) -> str:
    if isinstance(value, dict | list) or is_nothing(value):
        return kind(value)
    written = text_of(value)
    written = str(value) if written is None else written
    return repr(written if len(written) <= 60 else f"{written[:60]}…")


FIELDS: dict[str, Callable[[Any, Path], Any]] = {
    "command": command,
    "template": text,
    "params": params,
    "name": text,
    "type": text,
    "priority": whole,
    "after": entries,
    "needs": texts,
    "produces": texts,
    "missing_producer": text,
    "locks": locks,
    "pools": pools,
    "pin": text,
    "flow": text,
    "phase": text,
    "parallelizable": flag,
    "unique": text,
    "target": text,
    "timeout": duration,
    "idle_timeout": duration,
    "delay": duration,
    "retries": whole,
    "retry": text,
    "skip_if": text,
    "worktree": flag,
    "base": text,
    "patch": flag,
    "with_diff": flag,
    "env": variables,
    "cwd": text,
    "webhook": text,
    "webhooks": texts,
    "webhook_events": texts,
}
"""What a job may say. `after` is read once all jobs are known."""

"""Keys by name: where each stands, what it takes, and which was meant."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import timedelta
from difflib import get_close_matches
from ipaddress import ip_network
from typing import Any, TypeVar

from msgspec import Meta

from rota.config.policy import check_policy
from rota.config.section import (
    DEFAULT_POOLS,
    ROUTE_FORMS,
    SECTIONS,
    TABLES,
    TYPES,
    Fields,
    Heartbeat,
    Hosts,
    Networks,
    OffOrSpan,
    Policy,
    PoolSize,
    Queue,
    Retry,
    Route,
    Span,
    is_route,
)
from rota.display import check_fields
from rota.duration import parse_duration
from rota.errors import InvalidInput
from rota.names import POOL_KINDS, is_name, is_pool_name

T = TypeVar("T")

POOL_FORMS = "a pool is global, or type/…, flow/…, target/… or resource/… with a name or * for each one"
POLICY_FORMS = "[retry] itself is the policy called default, and [retry.NAME] adds one with the same keys"
FLOW_FORMS = "[queue] itself is for all jobs together, and [queue.FLOW] for those of one flow, with the same keys"
_ROUTES = "routes."
_DURATION = 'a duration such as "300ms", "1.5s" or "2m30s"'


def path_of(key: str) -> tuple[str, ...]:
    """Where a key stands: its section, in `[retry.NAME]`, `[queue.FLOW]` and `[display.list]` that name too, and its
    own name."""
    section, _, name = key.partition(".")
    if section == "direct" and name.startswith(_ROUTES):  # a path may have dots of its own
        return section, "routes", name.removeprefix(_ROUTES)
    policy, _, own = name.rpartition(".")
    return (section, policy, own) if section in ("retry", "queue", "display") and policy else (section, name)


def type_of(key: str) -> Any:
    """What the key takes; none when there is no such key."""
    section, *between, name = path_of(key)
    if section == "pools":
        return PoolSize if is_pool_name(name, wildcard=True) else None
    if section == "display":
        return TYPES.get(key)
    if section == "direct" and between:
        return Route if is_route(name) else None
    if between and not _can_be_named(section, between[0]):
        return None
    return TYPES.get(f"{section}.{name}")


def is_table(key: str) -> bool:
    """Whether keys can stand below this one: `retry.NAME`, `queue.FLOW`, `display.list`."""
    section, _, name = key.partition(".")
    return key in SECTIONS or key == "direct.routes" or _can_be_named(section, name)


def _can_be_named(section: str, name: str) -> bool:
    return (section == "retry" and is_policy_name(name)) or (section == "queue" and is_flow_name(name))


def is_policy_name(name: str) -> bool:
    """`default` is what `[retry]` itself is called."""
    return is_name(name) and name != "default" and name not in Retry.__struct_fields__


def is_flow_name(name: str) -> bool:
    return is_name(name) and name not in Queue.__struct_fields__


DURATIONS = (timedelta, Span, OffOrSpan, Heartbeat)
"""What takes a duration, be it among other things."""
_WORDS = {OffOrSpan: ("off",), Heartbeat: ("off", "manual")}


def duration(text: str, kind: Any) -> timedelta | str:
    if text in _WORDS.get(kind, ()):
        return text
    found = parse_duration(text)
    if kind is not timedelta and not found:
        raise InvalidInput("too short")
    return found


def checked(value: T, kind: Any) -> T:
    """What a type cannot say of itself."""
    if kind is Fields:
        check_fields(value)  # type: ignore[arg-type]
    if kind is Policy:
        check_policy(str(value))
    if kind is Networks:
        check_networks(value)  # type: ignore[arg-type]
    if kind is Hosts:
        check_hosts(value)  # type: ignore[arg-type]
    return value


_HOST = re.compile(r"([a-z0-9_-]+(\.[a-z0-9_-]+)*|\[[0-9a-f:.]+\])(:[0-9]{1,5})?", re.IGNORECASE)


def check_hosts(given: Sequence[str]) -> None:
    """No wildcards: whoever can make a page under one of the names that it stands for would be let in."""
    for text in given:
        if not _HOST.fullmatch(text):
            raise InvalidInput(
                f"{text!r} is no host; write each as it stands in a URL, such as rota.example.org or [fd00::2]:7682"
            )


def check_networks(given: Sequence[str]) -> None:
    for text in given:
        try:
            ip_network(text, strict=False)
        except ValueError:
            raise InvalidInput(f"{text!r} is not a network; write it as 169.254.1.0/24") from None


def objection(kind: Any, trouble: Exception) -> str:
    """What is wrong with a value, as the end of a sentence."""
    if kind in (Fields, Policy, Networks, Hosts) and isinstance(trouble, InvalidInput):
        return f": {trouble.message}"
    return f"; it takes {accepted_by(kind)}"


def accepted_by(kind: Any) -> str:
    if kind is timedelta:
        return _DURATION
    return str(next(meta.description for meta in kind.__metadata__ if isinstance(meta, Meta)))


def hint_for(key: str) -> str:
    """The nearest known key: by its last name, in its own section if there is one."""
    section, *between, name = path_of(key)
    if section == "pools":
        return _pool_hint(name)
    if section == "display":
        return _display_hint(*between, name)
    if section == "direct" and between:
        return ROUTE_FORMS
    if between and _can_be_named(section, between[0]):
        return hint_for(f"{section}.{name}").replace(f"{section}.", f"{section}.{between[0]}.")
    if section == "retry" and name not in TYPES and (between or name == "default"):
        return POLICY_FORMS
    if section == "queue" and between:
        return FLOW_FORMS
    known = [known for known in TYPES if known.startswith(f"{section}.")]
    known = known or [*TABLES, "pools.global", *TYPES]
    by_name = {known.rpartition(".")[2]: known for known in reversed(known)}
    near = get_close_matches(name or section, by_name, n=1)
    return f"did you mean {by_name[near[0]]}?" if near else f"known are {', '.join(known)}"


def _display_hint(*path: str) -> str:
    key, known = ".".join(("display", *path)), [known for known in TYPES if known.startswith("display.")]
    near = get_close_matches(key, [*SECTIONS, *known], n=1, cutoff=0.8)
    return f"did you mean {near[0]}?" if near and near != [key] and all(path) else f"known are {', '.join(known)}"


def _pool_hint(name: str) -> str:
    kind, slash, own = name.partition("/")
    if slash:
        near = [f"{known}/{own}" for known in get_close_matches(kind, POOL_KINDS, n=1)]
    else:
        near = get_close_matches(name, ["global"]) or [known for known in DEFAULT_POOLS if known.endswith(f"/{name}")]
    usable = [pool for pool in near if is_pool_name(pool, wildcard=True) and pool != name]
    return f"did you mean pools.{usable[0]}?" if usable else POOL_FORMS


def shown(raw: object) -> str:
    shown = json.dumps(raw, ensure_ascii=False, default=str)
    return shown if len(shown) <= 60 else shown[:59] + "…"

"""Configuration keys by name: location, type, validation and suggestions."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import timedelta
from difflib import get_close_matches
from ipaddress import ip_network
from typing import Any, TypeVar

from msgspec import Meta

from rota.columns import check_fields
from rota.config.extension import check_policy
from rota.config.section import (
    DEFAULT_POOLS,
    KEY_TYPES,
    NAMED_KEY_TYPES,
    NAMED_SECTIONS,
    ROUTE_RULE,
    SECTIONS,
    TABLES,
    DispatchIntervalSetting,
    FieldNames,
    HostNames,
    NetworkList,
    OffOrDuration,
    PolicyName,
    PoolSize,
    PositiveDuration,
    QueueConfig,
    RetryConfig,
    RouteTemplate,
    StoreUrl,
    is_route,
)
from rota.duration import parse_duration
from rota.errors import InvalidInput, find_nearest
from rota.mask import MASK, has_masked_password, has_numeric_port, has_port_in_range, mask_passwords, mask_store_url
from rota.naming import NAME_RULE, POOL_KINDS, is_name, is_pool_name

T = TypeVar("T")

POOL_RULE = "a pool is global, type/NAME, flow/NAME, target/NAME or resource/NAME; * as NAME stands for every name"
POLICY_RULE = "[retry] is the policy named default; [retry.NAME] adds a policy with the same keys"
NAMED_RULES = {
    "sources": "[sources.NAME] defines a source of work items, with the keys path and kind",
    "targets": "[targets.NAME] defines a target of work items; its only required key is path",
}
FLOW_RULE = "[queue] limits all jobs together; [queue.FLOW] limits the jobs of one flow, with the same keys"
_MIN_SIMILARITY_OUTSIDE_SECTION = 0.8
"""Minimum similarity of a key that is suggested for one in an unknown section."""
_ROUTES_PREFIX = "routes."
_DURATION_RULE = 'a duration such as "300ms", "1.5s" or "2m30s"'


_NESTED_SECTIONS = ("retry", "queue", "display", *NAMED_SECTIONS)


def split_key(key: str) -> tuple[str, ...]:
    """Split a dotted key into its tables and its name.

    `[retry.NAME]`, `[queue.FLOW]`, `[display.list]`, `[direct.routes]` and `[sources.NAME]` are two tables.
    """
    section, _, name = key.partition(".")
    if section == "direct" and name.startswith(_ROUTES_PREFIX):  # a route can contain dots
        return section, "routes", name.removeprefix(_ROUTES_PREFIX)
    subtable, _, last = name.rpartition(".")
    return (section, subtable, last) if section in _NESTED_SECTIONS and subtable else (section, name)


def key_type(key: str) -> Any:
    """Return the type of the key, or None if there is no such key."""
    section, *between, name = split_key(key)
    if section == "pools":
        return PoolSize if is_pool_name(name, wildcard=True) else None
    if section == "display":
        return KEY_TYPES.get(key)
    if section == "direct" and between:
        return RouteTemplate if is_route(name) else None
    if between and not _is_named_table(section, between[0]):
        return None
    if section in NAMED_SECTIONS:
        return NAMED_KEY_TYPES.get(f"{section}.{name}") if between else None
    return KEY_TYPES.get(f"{section}.{name}")


def is_table(key: str) -> bool:
    """Return whether the key is a table: a section, `retry.NAME`, `queue.FLOW`, `sources.NAME` or `direct.routes`."""
    section, _, name = key.partition(".")
    return key in SECTIONS or key == "direct.routes" or _is_named_table(section, name)


def _is_named_table(section: str, name: str) -> bool:
    return (
        (section == "retry" and is_policy_name(name))
        or (section == "queue" and is_flow_name(name))
        or (section in NAMED_SECTIONS and is_name(name))
    )


def is_policy_name(name: str) -> bool:
    """Return whether the name can name a policy. `default` is reserved for `[retry]`."""
    return is_name(name) and name != "default" and name not in RetryConfig.__struct_fields__


def is_flow_name(name: str) -> bool:
    return is_name(name) and name not in QueueConfig.__struct_fields__


DURATION_TYPES = (timedelta, PositiveDuration, OffOrDuration, DispatchIntervalSetting)
"""Types that accept a duration, some of them among other values."""
_KEYWORDS = {OffOrDuration: ("off",), DispatchIntervalSetting: ("off", "manual")}


def parse_duration_value(text: str, kind: Any) -> timedelta | str:
    if text in _KEYWORDS.get(kind, ()):
        return text
    duration = parse_duration(text)
    if kind is not timedelta and not duration:
        raise InvalidInput("too short")
    return duration


def parse_delays(texts: Sequence[str]) -> tuple[timedelta, ...]:
    if not texts:
        raise InvalidInput("empty")
    return tuple(parse_duration(text) for text in texts)


def check_value(value: T, kind: Any) -> T:
    """Check the rules that the type does not express, and return the value."""
    if kind is FieldNames:
        check_fields(value)  # type: ignore[arg-type]
    if kind is PolicyName:
        check_policy(str(value))
    if kind is NetworkList:
        check_networks(value)  # type: ignore[arg-type]
    if kind is HostNames:
        check_hosts(value)  # type: ignore[arg-type]
    if kind is StoreUrl and has_masked_password(str(value)):
        raise InvalidInput(f"{MASK} stands for the password in output; write the password itself")
    if kind is StoreUrl and not str(value).isprintable():
        raise InvalidInput("the address has a line break or another control character; remove it")
    if kind is StoreUrl and value is not None and not has_numeric_port(str(value)):
        raise InvalidInput("the port is not a number; in a password, write : as %3A, / as %2F and @ as %40")
    if kind is StoreUrl and value is not None and not has_port_in_range(str(value)):
        raise InvalidInput("the port is not in 1-65535")
    return value


_HOST = re.compile(r"([a-z0-9_-]+(\.[a-z0-9_-]+)*|\[[0-9a-f:.]+\])(:[0-9]{1,5})?", re.IGNORECASE)


def check_hosts(hosts: Sequence[str]) -> None:
    """Check that each text is a host. Wildcards are refused: they would admit every page under a matching name."""
    for text in hosts:
        if not _HOST.fullmatch(text):
            raise InvalidInput(
                f"{text!r} is not a host; write hosts as in a URL, such as rota.example.org or [fd00::2]:7682"
            )


def check_networks(networks: Sequence[str]) -> None:
    for text in networks:
        try:
            ip_network(text, strict=False)
        except ValueError:
            raise InvalidInput(f"{text!r} is not a network; write it as 169.254.1.0/24") from None


def mask_value(value: object, kind: Any) -> object:
    """Return the value of a key as output shows it."""
    if kind is not StoreUrl or value is None:
        return value
    return mask_store_url(value) if isinstance(value, str) else MASK


def describe_rejection(kind: Any, error: Exception) -> str:
    """Describe the problem of a value as the end of a sentence."""
    if kind in (FieldNames, PolicyName, NetworkList, HostNames, StoreUrl) and isinstance(error, InvalidInput):
        return f": {error.message}"
    return f"; it takes {describe_accepted(kind)}"


def describe_accepted(kind: Any) -> str:
    if kind is timedelta:
        return _DURATION_RULE
    return str(next(meta.description for meta in kind.__metadata__ if isinstance(meta, Meta)))


def suggest_key(key: str) -> str:
    """Return a hint for an unknown key: the nearest known key by its name, in its own section if that exists."""
    section, *between, name = split_key(key)
    if section == "pools":
        return _suggest_pool(name)
    if section == "display":
        return _suggest_display_key(*between, name)
    if section == "direct" and between:
        return ROUTE_RULE
    if section in NAMED_SECTIONS:
        return _suggest_named_key(section, between, name)
    if between and _is_named_table(section, between[0]):
        return suggest_key(f"{section}.{name}").replace(f"{section}.", f"{section}.{between[0]}.")
    if section == "retry" and name not in KEY_TYPES and (between or name == "default"):
        return POLICY_RULE
    if section == "queue" and between:
        return FLOW_RULE
    known = [candidate for candidate in KEY_TYPES if candidate.startswith(f"{section}.")]
    candidates = known or [*TABLES, "pools.global", *KEY_TYPES]
    by_name = {candidate.rpartition(".")[2]: candidate for candidate in reversed(candidates)}
    near = find_nearest(name or section, by_name, cutoff=0.6 if known else _MIN_SIMILARITY_OUTSIDE_SECTION)
    if near is not None:
        return f"did you mean {by_name[near]}?"
    if known:
        return f"known keys: {', '.join(known)}"
    table = find_nearest(section, TABLES)
    return f"known sections: {', '.join(TABLES)}" if table is None else suggest_key(f"{table}.{name}")


def _suggest_named_key(section: str, tables: Sequence[str], name: str) -> str:
    if not tables:
        return NAMED_RULES[section]
    if not is_name(tables[0]):
        return f"{NAMED_RULES[section]}; a name is {NAME_RULE}"
    known = NAMED_SECTIONS[section].__struct_fields__
    near = find_nearest(name, known)
    return f"did you mean {section}.{tables[0]}.{near}?" if near else f"known keys: {', '.join(known)}"


def _suggest_display_key(*path: str) -> str:
    key = ".".join(("display", *path))
    known = [candidate for candidate in KEY_TYPES if candidate.startswith("display.")]
    near = get_close_matches(key, [*SECTIONS, *known], n=1, cutoff=0.8)
    return f"did you mean {near[0]}?" if near and near != [key] and all(path) else f"known keys: {', '.join(known)}"


def _suggest_pool(name: str) -> str:
    kind, slash, rest = name.partition("/")
    if slash:
        near = [f"{match}/{rest}" for match in get_close_matches(kind, POOL_KINDS, n=1)]
    else:
        near = get_close_matches(name, ["global"]) or [pool for pool in DEFAULT_POOLS if pool.endswith(f"/{name}")]
    usable = [pool for pool in near if is_pool_name(pool, wildcard=True) and pool != name]
    return f"did you mean pools.{usable[0]}?" if usable else POOL_RULE


def quote_value(raw: object, kind: Any) -> str:
    """Return the value as error messages quote it, without a password."""
    shown = mask_passwords(json.dumps(mask_value(raw, kind), ensure_ascii=False, default=str))
    return shown if len(shown) <= 60 else shown[:59] + "…"

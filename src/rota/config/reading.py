"""The file, read whole or refused whole."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from datetime import timedelta
from operator import attrgetter
from pathlib import Path
from typing import Any

import msgspec

from rota.config.key import DURATIONS, checked, duration, hint_for, is_table, objection, path_of, shown, type_of
from rota.config.section import DEFAULT_POOLS, SECTIONS, TABLES, Config, Display, Queue, policies_of
from rota.duration import show_duration
from rota.errors import ConfigError, InvalidInput
from rota.names import POOL_KINDS


def load(path: Path) -> Config:
    """The file's configuration; a file that is not there sets nothing."""
    return understand(source_of(path), path.name)


def listing(config: Config) -> dict[str, object]:
    """Dotted key to plain value, in a stable order: JSON and `edit` take these values."""
    listed: dict[str, object] = {f"pools.{name}": config.pools[name] for name in sorted(config.pools, key=_pool_order)}
    for section in SECTIONS:
        listed |= _listing(section, attrgetter(section)(config))
        if section == "retry":
            for name, policy in config.policies.items():
                listed |= _listing(f"{section}.{name}", policy)
        if section == "direct":
            listed |= {f"direct.routes.{path}": name for path, name in sorted(config.routes.items())}
        if section == "queue":
            for name, queue in config.flows.items():
                listed |= _listing(f"{section}.{name}", queue)
    return listed


def _listing(prefix: str, section: msgspec.Struct) -> dict[str, object]:
    values = ((f"{prefix}.{name}", getattr(section, name)) for name in section.__struct_fields__)
    return {key: _plain(value) for key, value in values}


def _plain(value: object) -> object:
    if isinstance(value, timedelta):
        return show_duration(value)
    return list(value) if isinstance(value, tuple) else value


def get(config: Config, key: str) -> object:
    """One value of the listing; none for a pool without a line of its own."""
    if type_of(key) is None:
        raise InvalidInput(f"unknown key {key}; {hint_for(key)}")
    return listing(config).get(key)


def source_of(path: Path) -> str:
    try:
        return path.read_bytes().decode()
    except FileNotFoundError:
        return ""
    except OSError as trouble:
        raise ConfigError(f"{path} cannot be read: {trouble.strerror}") from trouble
    except UnicodeDecodeError as trouble:
        line = trouble.object.count(b"\n", 0, trouble.start) + 1
        raise ConfigError(f"{path.name} is not valid TOML: not UTF-8 (at line {line})") from trouble


def document_of(source: str, file: str) -> dict[str, Any]:
    try:
        return tomllib.loads(source)
    except (ValueError, RecursionError) as trouble:
        raise ConfigError(f"{file} is not valid TOML: {trouble}") from trouble


def understand(source: str, file: str) -> Config:
    document = document_of(source, file)
    values = dict(_values(document, file))
    pools = {key.removeprefix("pools."): value for key, value in values.items() if key.startswith("pools.")}
    sections: dict[str, Any] = {
        name: struct(**_under(tuple(name.split(".")), values)) for name, struct in SECTIONS.items()
    }
    named = [name for name, raw in document.get("retry", {}).items() if isinstance(raw, dict)]
    policies = policies_of(sections["retry"], {name: _under(("retry", name), values) for name in named})
    flows = {
        name: Queue(**_under(("queue", name), values))
        for name, raw in sorted(document.get("queue", {}).items())
        if isinstance(raw, dict)
    }
    _refuse_crossed({"queue": sections["queue"]} | {f"queue.{name}": each for name, each in flows.items()}, file)
    display = Display(list=sections.pop("display.list"), show=sections.pop("display.show"))
    routes = _under(("direct", "routes"), values)
    return Config(
        pools={**DEFAULT_POOLS, **pools}, policies=policies, flows=flows, routes=routes, display=display, **sections
    )


def _refuse_crossed(queues: Mapping[str, Queue], file: str) -> None:
    for table, queue in queues.items():
        soft, hard = queue.soft_limit, queue.hard_limit
        if isinstance(soft, int) and isinstance(hard, int) and soft > hard:
            raise ConfigError(
                f"{table}.soft_limit = {soft} in {file} is above {table}.hard_limit = {hard}; "
                "a queue is full before it could warn: lower the soft limit, or raise the hard one first"
            )


def _under(table: tuple[str, ...], values: Mapping[str, Any]) -> dict[str, Any]:
    """The values that stand right in this table, by their last name."""
    return {path[-1]: value for key, value in values.items() if (path := path_of(key))[:-1] == table}


def _values(document: Mapping[str, Any], file: str) -> Iterator[tuple[str, Any]]:
    for section, table in document.items():
        if section not in TABLES:
            raise ConfigError(f"unknown key {section} in {file}; {hint_for(section)}")
        for key, raw in _lines(table_of(table, section, file), section):
            if (kind := type_of(key)) is None:
                raise ConfigError(f"unknown key {key} in {file}; {hint_for(key)}")
            try:
                yield key, _value(raw, kind)
            except (msgspec.ValidationError, InvalidInput) as trouble:
                message = f"{key} = {shown(raw)} in {file} cannot be used{objection(kind, trouble)}"
                raise ConfigError(message) from None


def _lines(table: Mapping[str, Any], section: str) -> Iterator[tuple[str, Any]]:
    for name, raw in table.items():
        key = f"{section}.{name}"
        if isinstance(raw, dict) and is_table(key):
            yield from ((f"{key}.{own}", each) for own, each in raw.items())
        else:
            yield key, raw


def table_of(raw: object, section: str, file: str) -> dict[str, Any]:
    if not isinstance(raw, dict):
        raise ConfigError(f"{section} = {shown(raw)} in {file} cannot be used; write it as a table, [{section}]")
    return raw


def _value(raw: object, kind: Any) -> object:
    """The value that a TOML value stands for. A bare number is no duration: of what?"""
    if kind not in DURATIONS:
        return checked(msgspec.convert(raw, kind), kind)
    if not isinstance(raw, str):
        raise InvalidInput("not a duration")
    return duration(raw, kind)


def _pool_order(name: str) -> tuple[int, str]:
    return (0 if name == "global" else 1 + POOL_KINDS.index(name.partition("/")[0]), name)

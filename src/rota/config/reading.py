"""Read the configuration file, which is accepted or refused as a whole."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from datetime import timedelta
from operator import attrgetter
from pathlib import Path
from typing import Any

import msgspec

from rota.config.key import (
    DURATION_TYPES,
    check_value,
    describe_rejection,
    is_table,
    key_type,
    mask_value,
    parse_delays,
    parse_duration_value,
    quote_value,
    split_key,
    suggest_key,
)
from rota.config.section import (
    DEFAULT_POOLS,
    NAMED_SECTIONS,
    SECTIONS,
    TABLES,
    Config,
    DelayList,
    DisplayConfig,
    QueueConfig,
    StoreUrl,
    build_policies,
)
from rota.duration import format_duration
from rota.errors import ConfigError, InvalidInput, escape_unprintable
from rota.mask import mask_passwords
from rota.naming import POOL_KINDS


def load(path: Path) -> Config:
    """Return the configuration in the file. A missing file sets nothing."""
    return parse_config(read_source(path), path.name)


def list_values(config: Config) -> dict[str, object]:
    """Return plain values by dotted key, in a stable order. Passwords are masked.

    JSON and `edit` accept these values.
    """
    listed: dict[str, object] = {
        f"pools.{name}": config.pools[name] for name in sorted(config.pools, key=_pool_sort_key)
    }
    for section in SECTIONS:
        listed |= _list_section(section, attrgetter(section)(config))
        if section == "retry":
            for name, policy in config.policies.items():
                listed |= _list_section(f"{section}.{name}", policy)
        if section == "direct":
            listed |= {f"direct.routes.{path}": name for path, name in sorted(config.routes.items())}
        if section == "queue":
            for name, queue in config.flows.items():
                listed |= _list_section(f"{section}.{name}", queue)
    for section in NAMED_SECTIONS:
        for name, table in getattr(config, section).items():
            listed |= _list_section(f"{section}.{name}", table)
    return listed


def _list_section(prefix: str, section: msgspec.Struct) -> dict[str, object]:
    values = ((f"{prefix}.{name}", getattr(section, name)) for name in section.__struct_fields__)
    return {key: mask_value(_to_plain(value), key_type(key)) for key, value in values}


def _to_plain(value: object) -> object:
    if isinstance(value, timedelta):
        return format_duration(value)
    return [_to_plain(item) for item in value] if isinstance(value, tuple) else value


def pool_sizes(config: Config) -> dict[str, int]:
    """Return the sizes of pools with the limits of targets. A key in `[pools]` precedes `max` of its target."""
    limits = {f"target/{name}": target.max for name, target in config.targets.items() if target.max is not None}
    return {**limits, **config.pools}


def get(config: Config, key: str) -> object:
    """Return one value of `list_values`, or None for a pool that has no key of its own."""
    if key_type(key) is None:
        raise InvalidInput(f"unknown key {escape_unprintable(key)}; {suggest_key(key)}")
    return list_values(config).get(key)


def read_source(path: Path) -> str:
    try:
        return path.read_bytes().decode()
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path.name} is not valid TOML: not UTF-8 (at line {line})") from error


def parse_document(source: str, file: str) -> dict[str, Any]:
    try:
        return tomllib.loads(source)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{file} is not valid TOML: {error}") from error


def parse_config(source: str, file: str) -> Config:
    document = parse_document(source, file)
    values = dict(_parse_values(document, file))
    pools = {key.removeprefix("pools."): value for key, value in values.items() if key.startswith("pools.")}
    sections: dict[str, Any] = {
        name: struct(**_table_values(tuple(name.split(".")), values)) for name, struct in SECTIONS.items()
    }
    named = [name for name, raw in document.get("retry", {}).items() if isinstance(raw, dict)]
    policies = build_policies(sections["retry"], {name: _table_values(("retry", name), values) for name in named})
    flows = {
        name: QueueConfig(**_table_values(("queue", name), values))
        for name, raw in sorted(document.get("queue", {}).items())
        if isinstance(raw, dict)
    }
    _check_queue_limits({"queue": sections["queue"]} | {f"queue.{name}": flow for name, flow in flows.items()}, file)
    display = DisplayConfig(list=sections.pop("display.list"), show=sections.pop("display.show"))
    routes = _table_values(("direct", "routes"), values)
    sections |= {name: _read_named_tables(name, document, values, file) for name in NAMED_SECTIONS}
    return Config(
        pools={**DEFAULT_POOLS, **pools}, policies=policies, flows=flows, routes=routes, display=display, **sections
    )


def _read_named_tables(
    section: str, document: Mapping[str, Any], values: Mapping[str, Any], file: str
) -> dict[str, msgspec.Struct]:
    """Return the tables that have a key. An empty one remains when `config set` removes the last key."""
    tables: dict[str, msgspec.Struct] = {}
    for name, raw in document.get(section, {}).items():
        if not isinstance(raw, dict) or not raw:
            continue
        if "path" not in raw:
            key = escape_unprintable(f"{section}.{name}")
            raise ConfigError(f"{key} in {file} has no path; set it first: rota config set {key}.path PATH")
        tables[name] = NAMED_SECTIONS[section](**_table_values((section, name), values))
    return tables


def _check_queue_limits(queues: Mapping[str, QueueConfig], file: str) -> None:
    for table, queue in queues.items():
        soft, hard = queue.soft_limit, queue.hard_limit
        if isinstance(soft, int) and isinstance(hard, int) and soft > hard:
            raise ConfigError(
                f"{table}.soft_limit = {soft} in {file} is above {table}.hard_limit = {hard}; "
                "the queue would be full before the warning: lower the soft limit, or raise the hard limit first"
            )


def _table_values(table: tuple[str, ...], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values directly in this table, by name."""
    return {path[-1]: value for key, value in values.items() if (path := split_key(key))[:-1] == table}


def _parse_values(document: Mapping[str, Any], file: str) -> Iterator[tuple[str, Any]]:
    for section, table in document.items():
        if section not in TABLES:
            raise ConfigError(
                mask_passwords(f"unknown key {escape_unprintable(section)} in {file}; {suggest_key(section)}")
            )
        for key, raw in _flatten_table(check_table(table, section, file), section):
            if (kind := key_type(key)) is None:
                raise ConfigError(
                    mask_passwords(f"unknown key {escape_unprintable(key)} in {file}; {suggest_key(key)}")
                )
            try:
                yield key, _parse_value(raw, kind)
            except (msgspec.ValidationError, InvalidInput) as error:
                message = f"{key} = {quote_value(raw, kind)} in {file} cannot be used{describe_rejection(kind, error)}"
                raise ConfigError(message) from None


def _flatten_table(table: Mapping[str, Any], section: str) -> Iterator[tuple[str, Any]]:
    for name, raw in table.items():
        key = f"{section}.{name}"
        if isinstance(raw, dict) and is_table(key):
            yield from ((f"{key}.{subkey}", value) for subkey, value in raw.items())
        else:
            yield key, raw


def check_table(raw: object, section: str, file: str) -> dict[str, Any]:
    if not isinstance(raw, dict):
        quoted = quote_value(raw, StoreUrl if section == "store" else None)
        raise ConfigError(f"{section} = {quoted} in {file} cannot be used; write it as a table, [{section}]")
    return raw


def _parse_value(raw: object, kind: Any) -> object:
    """Convert a TOML value to the value of the key. A bare number is not a duration, because it has no unit."""
    if kind is DelayList:
        return parse_delays(msgspec.convert(raw, tuple[str, ...]))
    if kind not in DURATION_TYPES:
        return check_value(msgspec.convert(raw, kind), kind)
    if not isinstance(raw, str):
        raise InvalidInput("not a duration")
    return parse_duration_value(raw, kind)


def _pool_sort_key(name: str) -> tuple[int, str]:
    return (0 if name == "global" else 1 + POOL_KINDS.index(name.partition("/")[0]), name)

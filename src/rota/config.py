"""`rota.toml`: what a home has set, read whole or refused whole, and changed one key at a time.

A section is one frozen Struct and one field of `Config`: its fields are its keys, their annotations say what
they take, their defaults what holds when the line is absent. An option is here only once something obeys it.
`[pools]` is the exception: its keys are pool names (DEC-011 and CON-002 are its defaults), and the user's
lines are laid over them. `[retry.NAME]` is the other: a policy of that name, which has what `[retry]` has unless it
says otherwise.

    load     the file as it is; an unknown key is an error that names the nearest known one
    listing  every key with its value, as plain data
    edit     one key set in the file; comments and layout stay

`edit` holds `flock` on the directory from reading to renaming, so that two edits at once both last, and the
file at its place is always a whole one that loads.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import msgspec
from msgspec import Meta

from rota.duration import parse_duration, show_duration
from rota.errors import ConfigError, InvalidInput, RotaError, StorageFull
from rota.names import POOL_KINDS, is_name, is_pool_name

UNSET = "default"
"""As the text of an edit: take the line out, so that the default holds again."""

POOL_FORMS = "a pool is global, or type/…, flow/…, target/… or resource/… with a name or * for each one"
POLICY_FORMS = "[retry] itself is the policy called default, and [retry.NAME] adds one with the same keys"

_MOST = 2**31 - 1
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_DURATION = 'a duration such as "300ms", "1.5s" or "2m30s"'

PoolSize = Annotated[
    int, Meta(ge=-1, le=_MOST, description=f"a whole number up to {_MOST}; -1 is no limit, 0 lets nothing new start")
]
Count = Annotated[int, Meta(ge=1, le=_MOST, description=f"a whole number from 1 to {_MOST}")]

ByteCount = Annotated[int, Meta(ge=1, le=2**62, description="a whole number of bytes, from 1")]
OffOrCount = Annotated[Count | Literal["off"], Meta(description=f'a whole number from 1 to {_MOST}, or "off"')]

Url = Annotated[str, Meta(pattern=r"^postgres(ql)?://", description="the address of a database, postgresql://…")]

Retries = Annotated[int, Meta(ge=0, le=1000, description="a whole number from 0 to 1000")]
Multiplier = Annotated[float, Meta(ge=1, le=100, description="a number from 1 to 100")]
Jitter = Annotated[float, Meta(ge=0, le=1, description="a number from 0 to 1, as a part of the delay")]
ExitCodes = Annotated[
    tuple[Annotated[int, Meta(ge=1, le=255)], ...],
    Meta(description="exit codes from 1 to 255, as [1, 75]; [] is every failure"),
]

DEFAULT_POOLS: Mapping[str, int] = {"global": 1, "flow/*": 1, "resource/ollama": 1}


class Scheduler(msgspec.Struct, frozen=True, kw_only=True):
    """`[scheduler]`: the pace of the tick, and how long the scheduler waits for processes."""

    batch_size: Count | None = None
    """The most jobs one tick starts; absent, as many as there is room for."""
    grace: timedelta = timedelta(seconds=30)
    """How long running jobs may go on after a shutdown was asked for, before they are left to the supervisor."""
    kill_after: timedelta = timedelta(seconds=5)
    """From TERM to KILL when a job is ended."""
    start_timeout: timedelta = timedelta(minutes=5)
    """A start that is not confirmed for so long has failed."""


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    """`[retry]`: how a job that failed is tried again, if it is."""

    max_retries: Retries = 3
    """Automatic retries after the first run, for jobs that do not say how many."""
    base: timedelta = timedelta(seconds=10)
    """How long after the first failure; each further delay is `multiplier` times the one before."""
    multiplier: Multiplier = 2.0
    jitter: Jitter = 0.1
    cap: timedelta = timedelta(minutes=5)
    """No delay is longer."""
    exit_codes: ExitCodes = ()
    """Failures with other codes are final; empty, none is."""


DEFAULT_POLICIES: Mapping[str, Mapping[str, Any]] = {"fleet": {"max_retries": 5, "base": timedelta(seconds=30)}}
"""`fleet` is what a job with a flow gets unless it says otherwise."""


def _policies(retry: Retry, lines: Mapping[str, Mapping[str, Any]]) -> dict[str, Retry]:
    return {
        name: msgspec.structs.replace(retry, **{**DEFAULT_POLICIES.get(name, {}), **lines.get(name, {})})
        for name in sorted({*DEFAULT_POLICIES, *lines})
    }


class Breaker(msgspec.Struct, frozen=True, kw_only=True):
    """`[breaker]`: when starts that fail are given up, and when a type or target whose runs fail is held."""

    dispatch_failures: Count = 3
    """A job is given up when it could not be started so often in a row."""
    window: timedelta = timedelta(minutes=10)
    """Failures older than this do not count."""
    failures: OffOrCount = 20
    """Failed runs of one type or target within the window that open its breaker."""
    cool_down: timedelta = timedelta(minutes=10)
    """How long an open breaker holds its jobs before it lets one try."""


class Store(msgspec.Struct, frozen=True, kw_only=True):
    """`[store]`: where the records are kept."""

    url: Url | None = None
    """`postgresql://…`; absent, the file in the home."""


class Log(msgspec.Struct, frozen=True, kw_only=True):
    """`[log]`: what the jobs write."""

    max_bytes: ByteCount | None = None
    """A stream with more than this is warned of; nothing is cut off, and nobody is ended. Absent, never."""


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """The whole of `rota.toml`, with defaults where it is silent."""

    pools: Mapping[str, int] = msgspec.field(default_factory=lambda: dict(DEFAULT_POOLS))
    """Size by pool name; `flow/*` holds for each flow without a line of its own."""
    scheduler: Scheduler = Scheduler()
    retry: Retry = Retry()
    policies: Mapping[str, Retry] = msgspec.field(default_factory=lambda: _policies(Retry(), {}))
    """`[retry.NAME]` by name, whole."""
    breaker: Breaker = Breaker()
    store: Store = Store()
    log: Log = Log()


def _required(kind: Any) -> Any:
    """An optional key takes its type: TOML has no null, and a key is left unset by leaving it out."""
    parts = get_args(kind)
    return parts[0] if type(None) in parts else kind


SECTIONS: Mapping[str, type[msgspec.Struct]] = {
    field.name: field.type for field in msgspec.structs.fields(Config) if field.name not in ("pools", "policies")
}
_TYPES: Mapping[str, Any] = {
    f"{section}.{field.name}": _required(field.type)
    for section, struct in SECTIONS.items()
    for field in msgspec.structs.fields(struct)
}


def load(path: Path) -> Config:
    """The file's configuration; a file that is not there sets nothing."""
    return _understand(_source(path), path.name)


def listing(config: Config) -> dict[str, object]:
    """Dotted key to plain value, in a stable order: JSON and `edit` take these values."""
    listed: dict[str, object] = {f"pools.{name}": config.pools[name] for name in sorted(config.pools, key=_pool_order)}
    for section in SECTIONS:
        listed |= _listing(section, getattr(config, section))
        if section == "retry":
            for name, policy in config.policies.items():
                listed |= _listing(f"{section}.{name}", policy)
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
    if _type_of(key) is None:
        raise InvalidInput(f"unknown key {key}; {_hint(key)}")
    return listing(config).get(key)


def edit(path: Path, key: str, text: str) -> Config:
    """Set one key from its text (or `UNSET` it) and return what the file now says.

    The result is understood as a whole before anything is written: a refused edit leaves the file as it was.
    """
    if (kind := _type_of(key)) is None:
        raise InvalidInput(f"unknown key {key}; {_hint(key)}")
    try:
        value = None if text == UNSET else _raw(text, kind)
    except (msgspec.DecodeError, InvalidInput):
        raise InvalidInput(f"{key} cannot be {_shown(text)}; it takes {_accepts(kind)}") from None
    path = path.resolve()  # a linked file is changed where it is, not replaced by a copy beside the link
    with _failures_named(path), _alone(path.parent):
        before = _source(path)
        after = _rewritten(before, path.name, key, value)
        config = _understand(after, path.name)
        if after != before:
            _replace(path, after.encode())
    return config


def _source(path: Path) -> str:
    try:
        return path.read_bytes().decode()
    except FileNotFoundError:
        return ""
    except OSError as trouble:
        raise ConfigError(f"{path} cannot be read: {trouble.strerror}") from trouble
    except UnicodeDecodeError as trouble:
        line = trouble.object.count(b"\n", 0, trouble.start) + 1
        raise ConfigError(f"{path.name} is not valid TOML: not UTF-8 (at line {line})") from trouble


def _document(source: str, file: str) -> dict[str, Any]:
    try:
        return tomllib.loads(source)
    except (ValueError, RecursionError) as trouble:
        raise ConfigError(f"{file} is not valid TOML: {trouble}") from trouble


def _understand(source: str, file: str) -> Config:
    document = _document(source, file)
    values = dict(_values(document, file))
    pools = {key.removeprefix("pools."): value for key, value in values.items() if key.startswith("pools.")}
    sections: dict[str, Any] = {name: struct(**_under((name,), values)) for name, struct in SECTIONS.items()}
    named = [name for name, raw in document.get("retry", {}).items() if isinstance(raw, dict)]
    policies = _policies(sections["retry"], {name: _under(("retry", name), values) for name in named})
    return Config(pools={**DEFAULT_POOLS, **pools}, policies=policies, **sections)


def _under(table: tuple[str, ...], values: Mapping[str, Any]) -> dict[str, Any]:
    """The values that stand right in this table, by their last name."""
    return {path[-1]: value for key, value in values.items() if (path := _path(key))[:-1] == table}


def _values(document: Mapping[str, Any], file: str) -> Iterator[tuple[str, Any]]:
    for section, table in document.items():
        if section != "pools" and section not in SECTIONS:
            raise ConfigError(f"unknown key {section} in {file}; {_hint(section)}")
        for key, raw in _lines(_table(table, section, file), section):
            if (kind := _type_of(key)) is None:
                raise ConfigError(f"unknown key {key} in {file}; {_hint(key)}")
            try:
                yield key, _value(raw, kind)
            except (msgspec.ValidationError, InvalidInput):
                message = f"{key} = {_shown(raw)} in {file} cannot be used; it takes {_accepts(kind)}"
                raise ConfigError(message) from None


def _lines(table: Mapping[str, Any], section: str) -> Iterator[tuple[str, Any]]:
    for name, raw in table.items():
        key = f"{section}.{name}"
        if section == "retry" and isinstance(raw, dict) and _type_of(f"{key}.base") is not None:
            yield from ((f"{key}.{own}", each) for own, each in raw.items())
        else:
            yield key, raw


def _path(key: str) -> tuple[str, ...]:
    """Where a key stands: its section, in `[retry.NAME]` that name too, and its own name."""
    section, _, name = key.partition(".")
    policy, _, own = name.rpartition(".")
    return (section, policy, own) if section == "retry" and policy else (section, name)


def _table(raw: object, section: str, file: str) -> dict[str, Any]:
    if not isinstance(raw, dict):
        raise ConfigError(f"{section} = {_shown(raw)} in {file} cannot be used; write it as a table, [{section}]")
    return raw


def _value(raw: object, kind: Any) -> object:
    """The value that a TOML value stands for. A bare number is no duration: of what?"""
    if kind is not timedelta:
        return msgspec.convert(raw, kind)
    if not isinstance(raw, str):
        raise InvalidInput("not a duration")
    return parse_duration(raw)


def _raw(text: str, kind: Any) -> object:
    """The TOML value that a text typed on the command line stands for."""
    if kind is timedelta:
        parse_duration(text)
        return text
    if kind is ExitCodes:
        return list(msgspec.json.decode(text if text.startswith("[") else f"[{text}]", type=kind))
    return msgspec.convert(text, kind, strict=False)


def _type_of(key: str) -> Any:
    """What the key takes; none when there is no such key."""
    section, *between, name = _path(key)
    if section == "pools":
        return PoolSize if is_pool_name(name, wildcard=True) else None
    if between and not _is_policy_name(between[0]):
        return None
    return _TYPES.get(f"{section}.{name}")


def _is_policy_name(name: str) -> bool:
    """`default` is what `[retry]` itself is called."""
    return is_name(name) and name != "default" and name not in Retry.__struct_fields__


def _accepts(kind: Any) -> str:
    if kind is timedelta:
        return _DURATION
    return str(next(meta.description for meta in kind.__metadata__ if isinstance(meta, Meta)))


def _pool_order(name: str) -> tuple[int, str]:
    return (0 if name == "global" else 1 + POOL_KINDS.index(name.partition("/")[0]), name)


def _hint(key: str) -> str:
    """The nearest known key: by its last name, in its own section if there is one."""
    section, *between, name = _path(key)
    if section == "pools":
        return _pool_hint(name)
    if between and _is_policy_name(between[0]):
        return _hint(f"{section}.{name}").replace(f"{section}.", f"{section}.{between[0]}.")
    if section == "retry" and name not in _TYPES and (between or name == "default"):
        return POLICY_FORMS
    known = [known for known in _TYPES if known.startswith(f"{section}.")]
    known = known or ["pools", *SECTIONS, "pools.global", *_TYPES]
    by_name = {known.rpartition(".")[2]: known for known in reversed(known)}
    near = get_close_matches(name or section, by_name, n=1)
    return f"did you mean {by_name[near[0]]}?" if near else f"known are {', '.join(known)}"


def _pool_hint(name: str) -> str:
    kind, slash, own = name.partition("/")
    if slash:
        near = [f"{known}/{own}" for known in get_close_matches(kind, POOL_KINDS, n=1)]
    else:
        near = get_close_matches(name, ["global"]) or [known for known in DEFAULT_POOLS if known.endswith(f"/{name}")]
    usable = [pool for pool in near if is_pool_name(pool, wildcard=True) and pool != name]
    return f"did you mean pools.{usable[0]}?" if usable else POOL_FORMS


def _shown(raw: object) -> str:
    shown = json.dumps(raw, ensure_ascii=False, default=str)
    return shown if len(shown) <= 60 else shown[:59] + "…"


def _rewritten(source: str, file: str, key: str, value: object) -> str:
    """The source with one key set, or taken out where the value is none."""
    from tomlkit.exceptions import TOMLKitError  # only an edit needs it, and it takes longer to load than all the rest

    *tables, name = _path(key)
    document = _document(source, file)
    table: dict[str, Any] = document
    for depth, each in enumerate(tables):
        table = _table(table.get(each, {}), ".".join(tables[: depth + 1]), file)
    wanted = {known: raw for known, raw in table.items() if known != name}
    if value is not None:
        wanted[name] = value
    if wanted == table and type(table.get(name)) is type(value):  # true equals 1, and is no number in TOML
        return source
    try:
        after = _laid_out(_with_table(source, tables, document), tables, name, value)
    except TOMLKitError:
        after = ""
    if not _says(after, _with(document, tables, wanted)):
        raise ConfigError(f"{key} cannot be set in {file} as it is laid out; set it by hand")
    return after


def _laid_out(source: str, tables: Sequence[str], name: str, value: object) -> str:
    import tomlkit

    layout: Any = tomlkit.parse(source)
    place = layout
    for each in tables:
        place = place[each]
    if value is None:
        del place[name]
    else:
        _set(place, name, value)
    return tomlkit.dumps(layout)


def _says(source: str, wanted: Mapping[str, Any]) -> bool:
    try:
        return _without_empty(tomllib.loads(source)) == _without_empty(wanted)
    except ValueError:
        return False


def _with(document: Mapping[str, Any], tables: Sequence[str], table: Mapping[str, Any]) -> dict[str, Any]:
    """The document with one of its tables, however deep, replaced."""
    first, *rest = tables
    return {**document, first: _with(document.get(first, {}), rest, table) if rest else table}


def _without_empty(document: Mapping[str, Any]) -> dict[str, Any]:
    return {section: table for section, table in document.items() if table != {}}


def _with_table(source: str, tables: Sequence[str], document: Mapping[str, Any]) -> str:
    if source and not source.endswith("\n"):
        source += "\n"
    for each in tables:
        if each not in document:
            head = ".".join(part if _BARE.fullmatch(part) else json.dumps(part, ensure_ascii=False) for part in tables)
            return f"{source}\n[{head}]\n" if source.strip() else f"[{head}]\n"
        document = document[each]
    return source


def _set(table: Any, name: str, value: object) -> None:
    from tomlkit.items import Table

    is_new = name not in table
    table[name] = value
    if is_new and isinstance(table, Table):
        _below_last_key(table.value.body)


def _below_last_key(body: list[tuple[Any, Any]]) -> None:
    """Move the line just added above the blanks and comments at the table's end: those belong to the next table."""
    place = len(body) - 1
    while place > 0 and body[place - 1][0] is None:
        place -= 1
    body.insert(place, body.pop())


@contextmanager
def _alone(directory: Path) -> Iterator[None]:
    """One editor at a time; a killed one lets go by dying."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _replace(path: Path, content: bytes) -> None:
    """The old file or the new one, never a part. The name of the copy is fixed: what a killed editor left is reused."""
    copy = path.with_name(f".{path.name}.new")
    copy.unlink(missing_ok=True)
    try:
        with os.fdopen(os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        copy.rename(path)
    finally:
        copy.unlink(missing_ok=True)


@contextmanager
def _failures_named(path: Path) -> Iterator[None]:
    try:
        yield
    except RotaError:
        raise
    except OSError as trouble:
        if trouble.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StorageFull(f"the disk is full; {path} is as it was") from trouble
        raise ConfigError(f"{path} cannot be changed: {trouble.strerror}") from trouble

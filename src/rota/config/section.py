"""Sections of the configuration: keys, their types and their defaults."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any, Literal, get_args

import msgspec
from msgspec import Meta

from rota.naming import LINE_BREAKS, MAX_SCRIPT_LENGTH

_MAX_INTEGER = 2**31 - 1

PoolSize = Annotated[
    int,
    Meta(
        ge=-1,
        le=_MAX_INTEGER,
        description=f"a whole number up to {_MAX_INTEGER}; -1 means no limit, 0 starts no new jobs",
    ),
]
Count = Annotated[int, Meta(ge=1, le=_MAX_INTEGER, description=f"a whole number from 1 to {_MAX_INTEGER}")]

ByteCount = Annotated[int, Meta(ge=1, le=2**62, description="a whole number of bytes, from 1")]
OffOrCount = Annotated[Count | Literal["off"], Meta(description=f'a whole number from 1 to {_MAX_INTEGER}, or "off"')]

QueueLimitSetting = Annotated[
    Count | Literal["off", "auto"], Meta(description=f'a whole number from 1 to {_MAX_INTEGER}, "auto", or "off"')
]

StoreUrl = Annotated[str, Meta(pattern=r"^postgres(ql)?://", description="the URL of a database, postgresql://…")]

FilePath = Annotated[
    str,
    Meta(
        pattern=rf"^[^\x00{LINE_BREAKS}]+\Z", description="a path, relative to the home directory if it is not absolute"
    ),
]

PlanDoc = Annotated[
    str,
    Meta(
        pattern=rf"^(?!/)[^\x00{LINE_BREAKS}]*\{{slug\}}[^\x00{LINE_BREAKS}]*\Z",
        description="a path in the repository that contains {slug}",
    ),
]


PositiveDuration = Annotated[timedelta, Meta(description='a duration above zero, such as "300ms" or "2m30s"')]
"""Duration above zero."""
DelayList = Annotated[
    tuple[timedelta, ...], Meta(min_length=1, description='durations, such as 30s,5m or in the file ["30s", "5m"]')
]
OffOrDuration = Annotated[timedelta | Literal["off"], Meta(description='a duration such as "24h", or "off"')]

DispatchIntervalSetting = Annotated[
    timedelta | Literal["off", "manual"], Meta(description='a duration such as "3m", or "manual", or "off"')
]
PolicyName = Annotated[str, Meta(description="the name of a concurrency policy")]

Days = Annotated[int, Meta(ge=0, le=36_500, description="a whole number of days from 0 to 36500")]

Retries = Annotated[int, Meta(ge=0, le=1000, description="a whole number from 0 to 1000")]
Multiplier = Annotated[float, Meta(ge=1, le=100, description="a number from 1 to 100")]
Jitter = Annotated[float, Meta(ge=0, le=1, description="a number from 0 to 1, as a fraction of the delay")]
ExitCodeList = Annotated[
    tuple[Annotated[int, Meta(ge=1, le=255)], ...],
    Meta(description="exit codes from 1 to 255, such as [1, 75]; [] means every failure"),
]
CgroupMode = Annotated[Literal["auto", "off"], Meta(description='"auto" or "off"')]
UnknownExit = Annotated[Literal["retry", "hold"], Meta(description='"retry" or "hold"')]

NetworkList = Annotated[
    tuple[str, ...],
    Meta(description='networks, such as 169.254.1.0/24 or in the file ["169.254.1.0/24"]; [] means none'),
]

ServerHost = Annotated[
    str,
    Meta(
        pattern=r"^[0-9A-Za-z_.:%-]+\Z",
        description="an address of this machine, or its name: 127.0.0.1, ::1, 0.0.0.0 or localhost, without a port",
    ),
]
ServerPort = Annotated[
    Annotated[int, Meta(ge=0, le=65_535)] | Literal["off"],
    Meta(description='a port from 1 to 65535, 0 for any free port, or "off"'),
]
HostNames = Annotated[
    tuple[str, ...],
    Meta(description='hosts as in a URL, such as rota.example.org or in the file ["rota.example.org"]; [] means none'),
]

DEFAULT_POOLS: Mapping[str, int] = {"global": 1, "flow/*": 1, "resource/ollama": 1}


class SchedulerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """`[scheduler]`: the dispatch of jobs, and how long the scheduler waits for processes."""

    batch_size: Count | None = None
    """Maximum number of jobs that one tick starts; no limit if absent."""
    spawn_delay: timedelta = timedelta()
    """Minimum delay between two starts."""
    dispatch_interval: DispatchIntervalSetting = "off"
    """Interval between ticks. "off": tick on every change. "manual": tick only on `rota tick`."""
    policy: PolicyName = "pools"
    """Concurrency policy, which decides the pool demand of a job: "pools", or a policy that a package provides."""
    grace: timedelta = timedelta(seconds=30)
    """How long a shutdown waits for running jobs before it leaves them to the supervisor."""
    kill_after: timedelta = timedelta(seconds=5)
    """Delay between TERM and KILL when a job is ended."""
    start_timeout: PositiveDuration = timedelta(minutes=5)
    """Timeout for responses of the supervisor and confirmations of starts. After it, no jobs start."""
    cgroups: CgroupMode = "auto"
    """Whether runs get a cgroup: "auto" if the supervisor can create one, "off" never. A running supervisor keeps the
    setting it was started with."""
    hold_file: FilePath | None = None
    """Path of the hold file: while the file exists, no new jobs start."""


class RetryConfig(msgspec.Struct, frozen=True, kw_only=True):
    """`[retry]`: automatic retries of failed jobs."""

    max_retries: Retries = 3
    """Automatic retries after the first run, for jobs that do not set a number."""
    base: timedelta = timedelta(seconds=10)
    """Delay after the first failure. Each further delay is `multiplier` times the previous one."""
    multiplier: Multiplier = 2.0
    jitter: Jitter = 0.1
    cap: timedelta = timedelta(minutes=5)
    """Maximum delay."""
    exit_codes: ExitCodeList = ()
    """Exit codes that are retried; all if empty."""
    unknown_exit: UnknownExit = "retry"
    """Whether a run with an unknown exit status is retried like any failure ("retry") or not ("hold")."""


DEFAULT_POLICIES: Mapping[str, Mapping[str, Any]] = {"fleet": {"max_retries": 5, "base": timedelta(seconds=30)}}
"""Built-in policies. `fleet` is the default of jobs with a flow."""


def build_policies(retry: RetryConfig, overrides: Mapping[str, Mapping[str, Any]]) -> dict[str, RetryConfig]:
    return {
        name: msgspec.structs.replace(retry, **{**DEFAULT_POLICIES.get(name, {}), **overrides.get(name, {})})
        for name in sorted({*DEFAULT_POLICIES, *overrides})
    }


class BreakerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """`[breaker]`: limits of failed starts, and circuit breakers of types and targets."""

    dispatch_failures: Count = 3
    """Number of consecutive failed starts after which a job is abandoned."""
    start_delays: DelayList = (timedelta(seconds=30), timedelta(minutes=5))
    """Delays after the first failed start, the second and so on; the last delay repeats."""
    window: PositiveDuration = timedelta(minutes=10)
    """Age after which a failure does not count."""
    failures: OffOrCount = 20
    """Number of failed runs of a type or target within the window that opens its breaker."""
    cool_down: PositiveDuration = timedelta(minutes=10)
    """How long an open breaker holds its jobs before it lets one job probe."""


RouteTemplate = Annotated[str, Meta(description="the name of a template")]
RESERVED_PATHS = ("api", "health", "ready", "metrics", "openapi.json", "docs", "problems", "jobs", "scheduler", "web")
"""Reserved first parts of a route, which Rota uses itself."""
ROUTE_RULE = (
    "a route is a path such as /story/generate, of letters, digits and _ - . /, that does not end in / or start with a"
    f" reserved path: {', '.join(f'/{path}' for path in RESERVED_PATHS)}"
)


def is_route(path: str) -> bool:
    """Return whether the path is valid as a route and hides no reserved path."""
    is_path = re.fullmatch(r"(/[A-Za-z0-9_.-]+)+", path) is not None and not {".", ".."} & set(path.split("/"))
    return is_path and path.split("/")[1] not in RESERVED_PATHS


class DirectConfig(msgspec.Struct, frozen=True, kw_only=True):
    """`[direct]`: timeouts of direct executions and their clients."""

    wait: PositiveDuration = timedelta(minutes=5)
    """Default time to wait for capacity before a direct execution is cancelled."""
    lease: PositiveDuration = timedelta(minutes=10)
    """Maximum time between two requests of a client that has no open connection."""


class WebhooksConfig(msgspec.Struct, frozen=True, kw_only=True):
    """`[webhooks]`: retries of deliveries, and permitted addresses."""

    retries: Retries = 3
    """Retries after the first attempt."""
    base: PositiveDuration = timedelta(seconds=5)
    """Delay after the first attempt. Each further delay is twice the previous one."""
    timeout: PositiveDuration = timedelta(seconds=30)
    """Timeout of a whole exchange, from the connection to the end of the response."""
    allow: NetworkList = ()
    """Networks that messages may be sent to although they contain link-local or metadata addresses."""


class GcConfig(msgspec.Struct, frozen=True, kw_only=True):
    """`[gc]`: retention of ended jobs."""

    days: Days = 7
    """Age after which an ended job is removed, unless a kept object refers to it."""
    interval: OffOrDuration = timedelta(days=1)
    """Interval of automatic collections, or "off"."""


class QueueConfig(msgspec.Struct, frozen=True, kw_only=True):
    """`[queue]`: limits of ready jobs, of all jobs or with `[queue.FLOW]` of one flow."""

    soft_limit: QueueLimitSetting = "off"
    """Number of ready jobs from which a submit gets a warning."""
    hard_limit: QueueLimitSetting = "off"
    """Number of ready jobs from which a submit is deferred."""


class ServerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """`[server]`: the TCP address of the scheduler."""

    host: ServerHost = "127.0.0.1"
    """Address to listen on. An address other than loopback requires TLS."""
    port: ServerPort = 7682
    tls_cert: FilePath | None = None
    """Path of the certificate and its intermediate certificates, in PEM."""
    tls_key: FilePath | None = None
    """Path of the private key of the certificate, without a passphrase."""
    allowed_hosts: HostNames = ()
    """Host names that requests may use, in addition to those of the machine."""


class StoreConfig(msgspec.Struct, frozen=True, kw_only=True):
    """`[store]`: the database."""

    url: StoreUrl | None = None
    """URL `postgresql://…`; if absent, the SQLite file in the home."""


class ArtifactsConfig(msgspec.Struct, frozen=True, kw_only=True):
    """`[artifacts]`: locations of artifacts."""

    plan_doc: PlanDoc = "plans/{slug}.md"
    """Path of a plan in the tree of its branch."""


class LogConfig(msgspec.Struct, frozen=True, kw_only=True):
    """`[log]`: warnings about the output of jobs, and the log of the queue depth."""

    max_bytes: ByteCount | None = None
    """Size of an output stream that causes a warning. The job and the stream continue. No warnings if absent."""
    depth_interval: OffOrDuration = timedelta(seconds=30)
    """Interval at which the scheduler logs the queue depth while jobs wait, or "off"."""


SourceKind = Annotated[
    str,
    Meta(pattern=r"^[A-Za-z0-9_.-]{1,100}\Z", description="beads, list, or a kind of source that a package provides"),
]
OneLine = Annotated[
    str, Meta(pattern=rf"^[^\x00{LINE_BREAKS}]{{1,200}}\Z", description="a text of 1 to 200 characters")
]
ItemPrefix = Annotated[
    str, Meta(pattern=r"^[^\s\x00-\x1f\x7f]{1,200}\Z", description='the start of the ids of its items, such as "gt-"')
]
ShellCommand = Annotated[str, Meta(pattern=rf"^[^\x00]{{1,{MAX_SCRIPT_LENGTH}}}\Z", description="a shell command")]


class SourceConfig(msgspec.Struct, frozen=True, kw_only=True):
    """`[sources.NAME]`: a source of work items. Its path is looked up when it is read."""

    path: FilePath
    """Path of the file or repository with the items."""
    kind: SourceKind = "beads"
    """Format of the items: "beads", "list", or a kind that a package provides."""


class TargetConfig(msgspec.Struct, frozen=True, kw_only=True):
    """`[targets.NAME]`: a repository that work items are dispatched to. Path and template are looked up when used."""

    path: FilePath
    """Path of the repository."""
    prefix: ItemPrefix | None = None
    """Start of the ids of its items; if absent, it takes any item."""
    template: OneLine | None = None
    """Template of its jobs."""
    base: OneLine | None = None
    """Branch that the worktrees of its jobs start from; if absent, jobs run in `path` itself."""
    max: Count | None = None
    """Maximum number of jobs that run at once, the size of the pool `target/NAME`; no limit if absent."""
    on_dispatch: ShellCommand | None = None
    """Shell command that runs after each dispatch to the target."""


DisplayFormat = Annotated[Literal["table", "block", "json"], Meta(description="table, block or json")]
FieldNames = Annotated[
    tuple[str, ...],
    Meta(min_length=1, description='fields of a job, such as id,status,wait or in the file ["id", "status", "wait"]'),
]


class ListDisplayConfig(msgspec.Struct, frozen=True, kw_only=True):
    """`[display.list]`: the output of `rota list`."""

    format: DisplayFormat = "table"
    fields: FieldNames | None = None
    """Fields to print. By default a table has six columns, and a block has all non-empty fields."""


class ShowDisplayConfig(msgspec.Struct, frozen=True, kw_only=True):
    """`[display.show]`: the output of `rota show`."""

    format: DisplayFormat = "block"
    fields: FieldNames | None = None


class DisplayConfig(msgspec.Struct, frozen=True, kw_only=True):
    """`[display]`: the output of commands on a terminal."""

    list: ListDisplayConfig = ListDisplayConfig()
    """Output of `rota list`."""
    show: ShowDisplayConfig = ShowDisplayConfig()
    """Output of `rota show`."""


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """Configuration in `rota.toml`, with defaults for absent keys."""

    pools: Mapping[str, int] = msgspec.field(default_factory=lambda: dict(DEFAULT_POOLS))
    """Size by pool name; `flow/*` applies to every flow without its own key."""
    scheduler: SchedulerConfig = SchedulerConfig()
    retry: RetryConfig = RetryConfig()
    policies: Mapping[str, RetryConfig] = msgspec.field(default_factory=lambda: build_policies(RetryConfig(), {}))
    """`[retry.NAME]` by name, with inherited values."""
    queue: QueueConfig = QueueConfig()
    flows: Mapping[str, QueueConfig] = {}
    """`[queue.FLOW]` by flow."""
    breaker: BreakerConfig = BreakerConfig()
    direct: DirectConfig = DirectConfig()
    routes: Mapping[str, str] = {}
    """`[direct.routes]`: template names by the path that runs the template directly."""
    webhooks: WebhooksConfig = WebhooksConfig()
    gc: GcConfig = GcConfig()
    server: ServerConfig = ServerConfig()
    store: StoreConfig = StoreConfig()
    artifacts: ArtifactsConfig = ArtifactsConfig()
    log: LogConfig = LogConfig()
    display: DisplayConfig = DisplayConfig()
    sources: Mapping[str, SourceConfig] = {}
    """`[sources.NAME]` by name, in the order of the file."""
    targets: Mapping[str, TargetConfig] = {}
    """`[targets.NAME]` by name, in the order of the file."""


def _strip_optional(kind: Any) -> Any:
    """Return the type without None: TOML has no null, so an optional key is left out instead."""
    parts = get_args(kind)
    return parts[0] if type(None) in parts else kind


SECTIONS: Mapping[str, type[msgspec.Struct]] = {
    field.name: field.type
    for field in msgspec.structs.fields(Config)
    if field.name not in ("pools", "policies", "flows", "routes", "display", "sources", "targets")
} | {f"display.{field.name}": field.type for field in msgspec.structs.fields(DisplayConfig)}
NAMED_SECTIONS: Mapping[str, type[msgspec.Struct]] = {"sources": SourceConfig, "targets": TargetConfig}
"""Sections of tables that the user names, `[sources.NAME]`. They have no keys of their own."""
TABLES = tuple(dict.fromkeys(("pools", *(name.partition(".")[0] for name in SECTIONS), *NAMED_SECTIONS)))
KEY_TYPES: Mapping[str, Any] = {
    f"{section}.{field.name}": _strip_optional(field.type)
    for section, struct in SECTIONS.items()
    for field in msgspec.structs.fields(struct)
}
NAMED_KEY_TYPES: Mapping[str, Any] = {
    f"{section}.{field.name}": _strip_optional(field.type)
    for section, struct in NAMED_SECTIONS.items()
    for field in msgspec.structs.fields(struct)
}
"""Types by section and key, without the name of the table between them."""

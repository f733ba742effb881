"""The sections: what each key takes, and what holds when its line is absent."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any, Literal, get_args

import msgspec
from msgspec import Meta

_MOST = 2**31 - 1

PoolSize = Annotated[
    int, Meta(ge=-1, le=_MOST, description=f"a whole number up to {_MOST}; -1 is no limit, 0 lets nothing new start")
]
Count = Annotated[int, Meta(ge=1, le=_MOST, description=f"a whole number from 1 to {_MOST}")]

ByteCount = Annotated[int, Meta(ge=1, le=2**62, description="a whole number of bytes, from 1")]
OffOrCount = Annotated[Count | Literal["off"], Meta(description=f'a whole number from 1 to {_MOST}, or "off"')]

QueueLimit = Annotated[
    Count | Literal["off", "auto"], Meta(description=f'a whole number from 1 to {_MOST}, "auto", or "off"')
]

Url = Annotated[str, Meta(pattern=r"^postgres(ql)?://", description="the address of a database, postgresql://…")]

FilePath = Annotated[str, Meta(pattern=r"^[^\x00]+$", description="a path, from the home if it is not absolute")]

PlanDoc = Annotated[
    str, Meta(pattern=r"^[^/\x00][^\x00]*\{slug\}[^\x00]*$", description="a path in the repository, with {slug} in it")
]

MissingProducer = Annotated[Literal["block", "wait"], Meta(description='"block" or "wait"')]

Span = Annotated[timedelta, Meta(description='a duration longer than nothing, such as "300ms" or "2m30s"')]
"""One that would make no sense as nought."""
OffOrSpan = Annotated[timedelta | Literal["off"], Meta(description='a duration such as "24h", or "off"')]

Heartbeat = Annotated[
    timedelta | Literal["off", "manual"], Meta(description='a duration such as "3m", or "manual", or "off"')
]
Policy = Annotated[str, Meta(description="the name of a concurrency policy")]

Days = Annotated[int, Meta(ge=0, le=36_500, description="a whole number of days from 0 to 36500")]

Retries = Annotated[int, Meta(ge=0, le=1000, description="a whole number from 0 to 1000")]
Multiplier = Annotated[float, Meta(ge=1, le=100, description="a number from 1 to 100")]
Jitter = Annotated[float, Meta(ge=0, le=1, description="a number from 0 to 1, as a part of the delay")]
ExitCodes = Annotated[
    tuple[Annotated[int, Meta(ge=1, le=255)], ...],
    Meta(description="exit codes from 1 to 255, as [1, 75]; [] is every failure"),
]

Networks = Annotated[
    tuple[str, ...], Meta(description='networks, as 169.254.1.0/24 or in the file ["169.254.1.0/24"]; [] is none')
]

Address = Annotated[
    str,
    Meta(
        pattern=r"^[0-9A-Za-z_.:%-]+$",
        description="an address of this machine, or its name: 127.0.0.1, ::1, 0.0.0.0 or localhost, without a port",
    ),
]
Port = Annotated[
    Annotated[int, Meta(ge=0, le=65_535)] | Literal["off"],
    Meta(description='a port from 1 to 65535, 0 for any that is free, or "off"'),
]
Hosts = Annotated[
    tuple[str, ...],
    Meta(
        description='names as they stand in a URL, as rota.example.org or in the file ["rota.example.org"]; [] is none'
    ),
]

DEFAULT_POOLS: Mapping[str, int] = {"global": 1, "flow/*": 1, "resource/ollama": 1}


class Scheduler(msgspec.Struct, frozen=True, kw_only=True):
    """`[scheduler]`: the pace of the tick, and how long the scheduler waits for processes."""

    batch_size: Count | None = None
    """The most jobs one tick starts; absent, as many as there is room for."""
    spawn_delay: timedelta = timedelta()
    """From one start to the next, at least."""
    heartbeat: Heartbeat = "off"
    """How often jobs start, or "manual": only with `rota tick`. Off, whenever something happens."""
    policy: Policy = "pools"
    """What decides which pools a job draws from: the pools as configured, or one that a package brings."""
    grace: timedelta = timedelta(seconds=30)
    """How long running jobs may go on after a shutdown was asked for, before they are left to the supervisor."""
    kill_after: timedelta = timedelta(seconds=5)
    """From TERM to KILL when a job is ended."""
    start_timeout: Span = timedelta(minutes=5)
    """A start that is not confirmed for so long has failed."""
    hold_file: FilePath | None = None
    """While there is a file at this path, nothing new starts; absent, none is looked for."""


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


def policies_of(retry: Retry, lines: Mapping[str, Mapping[str, Any]]) -> dict[str, Retry]:
    return {
        name: msgspec.structs.replace(retry, **{**DEFAULT_POLICIES.get(name, {}), **lines.get(name, {})})
        for name in sorted({*DEFAULT_POLICIES, *lines})
    }


class Breaker(msgspec.Struct, frozen=True, kw_only=True):
    """`[breaker]`: when starts that fail are given up, and when a type or target whose runs fail is held."""

    dispatch_failures: Count = 3
    """A job is given up when it could not be started so often in a row."""
    window: Span = timedelta(minutes=10)
    """Failures older than this do not count."""
    failures: OffOrCount = 20
    """Failed runs of one type or target within the window that open its breaker."""
    cool_down: Span = timedelta(minutes=10)
    """How long an open breaker holds its jobs before it lets one try."""


Route = Annotated[str, Meta(description="the name of a template")]
OWN_PATHS = ("api", "health", "ready", "metrics", "openapi.json", "docs", "problems", "jobs", "scheduler", "web")
"""What the first part of a route cannot be: these are Rota's own."""
ROUTE_FORMS = (
    "a route is a path such as /story/generate, of letters, digits and _ - . / that does not end in /, and none of"
    f" Rota's own: {', '.join(f'/{each}' for each in OWN_PATHS)}"
)


def is_route(path: str) -> bool:
    """Whether it can run a template: it hides none of Rota's own paths."""
    is_path = re.fullmatch(r"(/[A-Za-z0-9_.-]+)+", path) is not None and not {".", ".."} & set(path.split("/"))
    return is_path and path.split("/")[1] not in OWN_PATHS


class Direct(msgspec.Struct, frozen=True, kw_only=True):
    """`[direct]`: how long a direct execution waits, and how long its client may be silent."""

    wait: Span = timedelta(minutes=5)
    """For its turn; then it is given up. For those that do not say it themselves."""
    lease: Span = timedelta(minutes=10)
    """From one word of a client without a connection to the next."""


class Webhooks(msgspec.Struct, frozen=True, kw_only=True):
    """`[webhooks]`: how often a message is tried that its receiver does not take, and where none is sent."""

    retries: Retries = 3
    """After the first try."""
    base: Span = timedelta(seconds=5)
    """How long after the first try; each further delay is twice the one before."""
    timeout: Span = timedelta(seconds=30)
    """For a whole exchange, from the connection to the end of the answer."""
    allow: Networks = ()
    """Networks that messages are sent to though link-local and metadata addresses are refused."""


class Gc(msgspec.Struct, frozen=True, kw_only=True):
    """`[gc]`: how long what has ended is kept."""

    days: Days = 7
    """What ended longer ago is removed, unless something that stays refers to it."""
    interval: OffOrSpan = timedelta(days=1)
    """How often that is done unasked, or never."""


class Queue(msgspec.Struct, frozen=True, kw_only=True):
    """`[queue]`: how many jobs may stand ready, in all or in `[queue.FLOW]` of one flow."""

    soft_limit: QueueLimit = "off"
    """From so many on a submit is warned."""
    hard_limit: QueueLimit = "off"
    """From so many on it is put off."""


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """`[server]`: where the scheduler is reached beside its socket."""

    host: Address = "127.0.0.1"
    """Any but a loopback address only with both of the files below."""
    port: Port = 7682
    tls_cert: FilePath | None = None
    """The certificate, with those between it and its root, in PEM."""
    tls_key: FilePath | None = None
    """Its key, without a passphrase."""
    allowed_hosts: Hosts = ()
    """Names by which it is asked for, beside those of the machine itself."""


class Store(msgspec.Struct, frozen=True, kw_only=True):
    """`[store]`: where the records are kept."""

    url: Url | None = None
    """`postgresql://…`; absent, the file in the home."""


class Artifacts(msgspec.Struct, frozen=True, kw_only=True):
    """`[artifacts]`: where they are looked for, and what becomes of a job when nobody is to produce what it needs."""

    plan_doc: PlanDoc = "plans/{slug}.md"
    """The path of a plan in the tree of its branch."""
    missing_producer: MissingProducer = "block"
    """For jobs that do not say it themselves."""


class Log(msgspec.Struct, frozen=True, kw_only=True):
    """`[log]`: what the jobs write, and what the scheduler says of its queue."""

    max_bytes: ByteCount | None = None
    """A stream with more than this is warned of; nothing is cut off, and nobody is ended. Absent, never."""
    depth_interval: OffOrSpan = timedelta(seconds=30)
    """How often the scheduler logs what waits, while anything does, or never."""


Format = Annotated[Literal["table", "block", "json"], Meta(description="table, block or json")]
Fields = Annotated[
    tuple[str, ...],
    Meta(min_length=1, description='fields of a job, as id,status,wait or in the file ["id", "status", "wait"]'),
]


class ListDisplay(msgspec.Struct, frozen=True, kw_only=True):
    """`[display.list]`: what `rota list` prints."""

    format: Format = "table"
    fields: Fields | None = None
    """Absent, what suits the format: six columns, or in a block all that is not empty."""


class ShowDisplay(msgspec.Struct, frozen=True, kw_only=True):
    """`[display.show]`: what `rota show` prints."""

    format: Format = "block"
    fields: Fields | None = None


class Display(msgspec.Struct, frozen=True, kw_only=True):
    """`[display]`: how commands show jobs to people."""

    list: ListDisplay = ListDisplay()
    """What `rota list` prints."""
    show: ShowDisplay = ShowDisplay()
    """What `rota show` prints."""


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """The whole of `rota.toml`, with defaults where it is silent."""

    pools: Mapping[str, int] = msgspec.field(default_factory=lambda: dict(DEFAULT_POOLS))
    """Size by pool name; `flow/*` holds for each flow without a line of its own."""
    scheduler: Scheduler = Scheduler()
    retry: Retry = Retry()
    policies: Mapping[str, Retry] = msgspec.field(default_factory=lambda: policies_of(Retry(), {}))
    """`[retry.NAME]` by name, whole."""
    queue: Queue = Queue()
    flows: Mapping[str, Queue] = {}
    """`[queue.FLOW]` by flow."""
    breaker: Breaker = Breaker()
    direct: Direct = Direct()
    routes: Mapping[str, str] = {}
    """`[direct.routes]`: paths by which a template is run directly, with its name."""
    webhooks: Webhooks = Webhooks()
    gc: Gc = Gc()
    server: Server = Server()
    store: Store = Store()
    artifacts: Artifacts = Artifacts()
    log: Log = Log()
    display: Display = Display()


def _required(kind: Any) -> Any:
    """An optional key takes its type: TOML has no null, and a key is left unset by leaving it out."""
    parts = get_args(kind)
    return parts[0] if type(None) in parts else kind


SECTIONS: Mapping[str, type[msgspec.Struct]] = {
    field.name: field.type
    for field in msgspec.structs.fields(Config)
    if field.name not in ("pools", "policies", "flows", "routes", "display")
} | {f"display.{field.name}": field.type for field in msgspec.structs.fields(Display)}
TABLES = tuple(dict.fromkeys(("pools", *(name.partition(".")[0] for name in SECTIONS))))
TYPES: Mapping[str, Any] = {
    f"{section}.{field.name}": _required(field.type)
    for section, struct in SECTIONS.items()
    for field in msgspec.structs.fields(struct)
}

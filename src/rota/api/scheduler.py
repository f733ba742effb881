"""The scheduler itself over HTTP: status, pools, reload, stop."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Annotated

import msgspec

from rota.api.context import Context
from rota.api.endpoint import Call, Endpoint, Nothing, Reply
from rota.api.health import disk
from rota.api.page import parsed
from rota.duration import parse_duration
from rota.errors import ConfigError, StorageFull, StoreError, within
from rota.names import is_pool_name
from rota.view.log import oversize
from rota.view.status import pools, status
from rota.view.template import lost_routes
from rota.wire.scheduler import AboutForm, NothingForm, PoolsForm, SchedulerForm
from rota.wire.text import Span


async def get_scheduler(call: Call[Nothing, None]) -> Reply[SchedulerForm] | Reply[AboutForm]:
    """Say what the scheduler is doing, and if nothing, why. While the store cannot be read the answer has only what
    concerns the process itself, with the trouble there is."""
    context = call.context
    about = context.control.about()
    trouble = list(dict.fromkeys([*about.trouble, *await disk(context)]))
    try:
        said = await context.look(partial(status, sight=context.sight()))
        trouble += await _oversize(context)
        if routes := context.control.config.routes:
            trouble += await context.look(partial(lost_routes, routes=routes.items()))
    except (StorageFull, StoreError) as error:
        # Whoever asks what is wrong is to be told, also when the counts cannot be.
        return Reply(msgspec.structs.replace(about, trouble=trouble or [error.message]))
    asdict = msgspec.structs.asdict
    return Reply(SchedulerForm(**{**asdict(said), **asdict(about), "trouble": trouble}))


async def _oversize(context: Context) -> list[str]:
    """Of what runs: what has ended says so itself."""
    most = context.control.config.log.max_bytes
    if most is None:
        return []
    return await context.look(lambda reader: oversize(context.home.jobs, reader.running_jobs(), most))


async def list_pools(call: Call[Nothing, None]) -> Reply[PoolsForm]:
    """List the pools. Every one that is configured or in use, with its size and what of it is used."""
    return Reply(await _pools(call.context))


async def _pools(context: Context) -> PoolsForm:
    limits = context.sight().limits
    each = {name.removesuffix("/*"): size for name, size in limits.sizes.items() if name.endswith("/*")}
    return PoolsForm(pools=await context.look(partial(pools, limits=limits)), each=each)


class PoolSize(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The size of a pool."""

    size: Annotated[int, msgspec.Meta(extra_json_schema={"minimum": -1, "maximum": 2**31 - 1})]
    """-1 is no limit, 0 lets nothing start."""


async def set_pool(call: Call[Nothing, PoolSize]) -> Reply[PoolsForm]:
    """Set the size of a pool, in `rota.toml`. A pool that is made smaller drains: nothing that runs is ended."""
    name = call.path["name"]
    with within(".size" if is_pool_name(name, wildcard=True) else ".name"):
        await asyncio.to_thread(call.context.control.set_pool, name, call.body.size)
    return Reply(await _pools(call.context))


async def reload_config(call: Call[Nothing, None]) -> Reply[NothingForm]:
    """Take up the configuration as it is on disk, at once. One that cannot be used is refused, and the one before stays
    in force."""
    await asyncio.to_thread(call.context.control.reload)
    return Reply(NothingForm())


class ShutdownWanted(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How to stop."""

    grace: Span | None = None
    """How long what runs may go on before the scheduler leaves, as `30s`; null or left out, `[scheduler] grace`."""
    kill: bool = False
    """End what still runs after that; else the supervisor looks after it until the next scheduler."""


async def stop(call: Call[Nothing, ShutdownWanted | None]) -> Reply[NothingForm]:
    """Begin to stop the scheduler. Nothing new starts from here on."""
    wanted = call.body or ShutdownWanted()
    grace = parsed("grace", wanted.grace, parse_duration)
    call.context.control.stop(grace, kills=wanted.kill)
    return Reply(NothingForm(), 202)


_POOLS = {"global": {"size": 1, "used": 1}, "resource/ollama": {"size": 1, "used": 0}}
_STATUS = {
    "mode": "deferred",
    "paused": False,
    "paused_by": None,
    "paused_at": None,
    "pauses": [],
    "held": None,
    "depth": {"total": 2, "soft": None, "hard": None, "by_flow": {"review": 1}},
    "queued": 3,
    "ready": 2,
    "waiting": {"delay": 1, "locks": 1},
    "breakers": [],
    "running": 1,
    "slots": {"waiting": 0, "running": 0},
    "webhooks": {"held": [], "disabled": [], "pending": 0},
    "finished": 23,
    "pools": _POOLS,
    "last_dispatch_at": "2026-11-16T08:21:33Z",
    "last_gc": None,
    "schedules": {
        "total": 1, "enabled": 1, "missed": 0, "failed": 0,
        "next": {"id": "schedule-1", "name": "nightly", "at": "2026-11-17T02:00:00Z"},
    },
    "idle_because": None,
    "home": "/srv/web/.rota",
    "socket": "/srv/web/.rota/rota.sock",
    "tcp": {"url": "http://127.0.0.1:7682", "off": None},
    "pid": 4242,
    "version": "0.1.0",
    "store": "sqlite",
    "started_at": "2026-11-16T08:00:00Z",
    "supervisor_pid": 4243,
    "stopping": False,
    "trouble": [],
    "recovery": {
        "running_jobs_adopted": 0, "running_jobs_recovered": 0, "finished_while_away": 0, "requeued": 0,
        "slots_expired": 0, "retries_created": 0, "groups_recovered": 0, "errors": 0,
    },
}  # fmt: skip

ENDPOINTS = [
    Endpoint("GET", "/api/scheduler", get_scheduler, or_gives={200: AboutForm}, shows=_STATUS),
    Endpoint("POST", "/api/scheduler/reload", reload_config, shows={}, refuses=(ConfigError,)),
    Endpoint("POST", "/api/scheduler/stop", stop, statuses=(202,), sends={"grace": "30s", "kill": False}, shows={}),
    Endpoint("GET", "/api/pools", list_pools, shows={"pools": _POOLS, "each": {"flow": 1}}),
    Endpoint(
        "PUT", "/api/pools/{name:path}", set_pool, sends={"size": 2}, shows={"pools": _POOLS, "each": {"flow": 1}},
        refuses=(ConfigError,),
    ),
]  # fmt: skip

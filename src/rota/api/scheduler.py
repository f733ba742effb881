"""Scheduler over HTTP: status, pools, reload and stop."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Annotated

import msgspec

from rota.api.context import Context
from rota.api.endpoint import Endpoint, Invocation, JsonReply, NoQuery
from rota.api.health import check_disk
from rota.api.page import parse_field
from rota.duration import format_duration, parse_duration
from rota.errors import ConfigError, StorageFull, StoreError, error_path
from rota.naming import is_pool_name
from rota.view.log import oversize_warnings
from rota.view.status import list_unreadable, list_unstartable, read_pools, show_status
from rota.view.template import find_broken_routes
from rota.wire.scheduler import EmptyResult, PoolList, SchedulerProcess, SchedulerStatus, ShutdownResult
from rota.wire.schema_types import DurationText


async def get_scheduler(call: Invocation[NoQuery, None]) -> JsonReply[SchedulerStatus] | JsonReply[SchedulerProcess]:
    """Show the status of the scheduler, and why it is idle. While the store cannot be read, the response only has the
    part about the process, with the errors."""
    context = call.context
    process = context.control.process_status()
    errors = list(dict.fromkeys([*process.errors, *await check_disk(context)]))
    try:
        status = await context.read(partial(show_status, context=context.view_context()))
        errors += await _find_oversized_logs(context)
        errors += await context.read(list_unreadable)
        errors += await context.read(partial(list_unstartable, limits=context.view_context().limits))
        if routes := context.control.config.routes:
            errors += await context.read(partial(find_broken_routes, routes=routes.items()))
    except (StorageFull, StoreError) as error:
        # The status shows the errors even if the counts cannot be read.
        return JsonReply(msgspec.structs.replace(process, errors=errors or [error.message]))
    asdict = msgspec.structs.asdict
    return JsonReply(SchedulerStatus(**{**asdict(status), **asdict(process), "errors": errors}))


async def _find_oversized_logs(context: Context) -> list[str]:
    """Return warnings about the logs of running jobs. Logs of ended jobs have their own warning."""
    limit = context.control.config.log.max_bytes
    if limit is None:
        return []
    return await context.read(lambda reader: oversize_warnings(context.home.jobs, reader.jobs.running(), limit))


async def list_pools(call: Invocation[NoQuery, None]) -> JsonReply[PoolList]:
    """List pools. The list has every pool that is configured or in use, with its size and usage."""
    return JsonReply(await _read_pools(call.context))


async def _read_pools(context: Context) -> PoolList:
    limits = context.view_context().limits
    defaults = {name.removesuffix("/*"): size for name, size in limits.sizes.items() if name.endswith("/*")}
    return PoolList(pools=await context.read(partial(read_pools, limits=limits)), defaults=defaults)


class PoolSizeRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """New size of a pool."""

    size: Annotated[int, msgspec.Meta(extra_json_schema={"minimum": -1, "maximum": 2**31 - 1})]
    """Size of the pool: -1 for no limit, 0 to start nothing."""


async def set_pool(call: Invocation[NoQuery, PoolSizeRequest]) -> JsonReply[PoolList]:
    """Set the size of a pool in `rota.toml`. Running jobs continue, even if the pool is now too small for them."""
    name = call.path_values["name"]
    with error_path(".size" if is_pool_name(name, wildcard=True) else ".name"):
        await asyncio.to_thread(call.context.control.set_pool, name, call.body.size)
    return JsonReply(await _read_pools(call.context))


async def reload_config(call: Invocation[NoQuery, None]) -> JsonReply[EmptyResult]:
    """Reload the configuration from disk. An invalid configuration is refused, and the current one stays in effect."""
    await asyncio.to_thread(call.context.control.reload)
    return JsonReply(EmptyResult())


class ShutdownRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of a shutdown."""

    grace: DurationText | None = None
    """Time for which running jobs may continue before the scheduler exits, such as `30s`; `[scheduler] grace` by
    default."""
    kill: bool = False
    """Kill the jobs that still run after the grace period. Otherwise the supervisor keeps them until the next scheduler
    starts."""


async def stop(call: Invocation[NoQuery, ShutdownRequest | None]) -> JsonReply[ShutdownResult]:
    """Begin to stop the scheduler. No new jobs start."""
    request = call.body or ShutdownRequest()
    grace = parse_field("grace", request.grace, parse_duration)
    in_force = call.context.control.stop(grace, kills=request.kill)
    return JsonReply(ShutdownResult(grace=format_duration(in_force)), 202)


_POOLS_EXAMPLE = {"global": {"size": 1, "used": 1}, "resource/ollama": {"size": 1, "used": 0}}
_STATUS_EXAMPLE = {
    "mode": "deferred",
    "paused": False,
    "paused_by": None,
    "paused_at": None,
    "pauses": [],
    "hold_reason": None,
    "depth": {"total": 2, "soft": None, "hard": None, "by_flow": {"review": 1}},
    "queued": 3,
    "ready": 2,
    "waiting": {"delay": 1, "locks": 1},
    "breakers": [],
    "running": 1,
    "reservations": {"waiting": 0, "running": 0},
    "webhooks": {"held": [], "disabled": [], "pending": 0},
    "finished": 23,
    "pools": _POOLS_EXAMPLE,
    "last_dispatch_at": "2026-11-16T08:21:33Z",
    "last_gc": None,
    "schedules": {
        "total": 1,
        "enabled": 1,
        "missed": 0,
        "failed": 0,
        "next": {"id": "schedule-1", "name": "nightly", "at": "2026-11-17T02:00:00Z"},
    },
    "idle_reason": None,
    "home": "/srv/web/.rota",
    "socket": "/srv/web/.rota/rota.sock",
    "tcp": {"url": "http://127.0.0.1:7682", "disabled_reason": None},
    "pid": 4242,
    "version": "0.1.0",
    "store": "sqlite",
    "started_at": "2026-11-16T08:00:00Z",
    "supervisor_pid": 4243,
    "has_cgroups": True,
    "supervisor_silent_since": None,
    "stopping": False,
    "errors": [],
    "recovery": {
        "running_jobs_adopted": 0,
        "running_jobs_recovered": 0,
        "finished_while_down": 0,
        "requeued": 0,
        "reservations_expired": 0,
        "retries_created": 0,
        "groups_recovered": 0,
        "unknown_runs_ended": 0,
        "errors": 0,
    },
}

ENDPOINTS = [
    Endpoint(
        "GET",
        "/api/scheduler",
        get_scheduler,
        other_response_types={200: SchedulerProcess},
        response_example=_STATUS_EXAMPLE,
    ),
    Endpoint("POST", "/api/scheduler/reload", reload_config, response_example={}, errors=(ConfigError,)),
    Endpoint(
        "POST",
        "/api/scheduler/stop",
        stop,
        statuses=(202,),
        request_example={"grace": "30s", "kill": False},
        response_example={"grace": "30s"},
    ),
    Endpoint("GET", "/api/pools", list_pools, response_example={"pools": _POOLS_EXAMPLE, "defaults": {"flow": 1}}),
    Endpoint(
        "PUT",
        "/api/pools/{name:path}",
        set_pool,
        request_example={"size": 2},
        response_example={"pools": _POOLS_EXAMPLE, "defaults": {"flow": 1}},
        errors=(ConfigError,),
    ),
]

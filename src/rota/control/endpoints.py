"""Scheduler over HTTP: status, pools, pauses, ticks, breakers, locks, display settings, reload and stop."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any

import msgspec

from rota.config.section import DisplayConfig
from rota.control import commands, queries
from rota.control.health import check_disk
from rota.control.schemas import (
    BreakerPage,
    BreakerResetResult,
    ClearResult,
    EmptyResult,
    LockOwner,
    LockPage,
    LockStatus,
    PauseResult,
    PoolList,
    ResumeResult,
    SchedulerProcess,
    SchedulerStatus,
    ShutdownResult,
    StartFailureResetResult,
    TickResult,
)
from rota.duration import format_duration, parse_duration
from rota.engine.facts import find_watched_facts, probe_facts
from rota.engine.transaction import Transaction
from rota.errors import ConfigError, ServiceUnavailable, StorageFull, StoreError, error_path
from rota.http.context import Context, DaemonControl
from rota.http.endpoint import Endpoint, Invocation, JsonReply, NoQuery, PageSize, parse_field
from rota.ids import parse_job_id
from rota.jobs.cancel import plan_clear
from rota.jobs.logs import oversize_warnings
from rota.jobs.result_schemas import ClearPlan
from rota.naming import SCOPE_PATTERN, is_pool_name
from rota.schema_types import DurationText, JobIdText
from rota.templates.queries import find_broken_routes

_PROBE_TIMEOUT = 20.0
"""Maximum seconds to probe the facts."""


async def get_scheduler(call: Invocation[NoQuery, None]) -> JsonReply[SchedulerStatus] | JsonReply[SchedulerProcess]:
    """Show the status of the scheduler, and why it is idle. While the store cannot be read, the response only has the
    part about the process, with the errors."""
    context = call.context
    process = context.control.process_status()
    errors = list(dict.fromkeys([*process.errors, *await check_disk(context)]))
    try:
        status = await context.read(partial(queries.show_status, context=context.view_context()))
        errors += await _find_oversized_logs(context)
        errors += await context.read(queries.list_unreadable)
        errors += await context.read(partial(queries.list_unstartable, limits=context.view_context().limits))
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
    return PoolList(pools=await context.read(partial(queries.read_pools, limits=limits)), defaults=defaults)


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


class ScopeRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Scope of an operation."""

    scope: Annotated[str, msgspec.Meta(extra_json_schema={"pattern": SCOPE_PATTERN})] | None = None
    """`global`, or the name of a pool such as `flow/review`; everything by default."""


def _parse_scope(request: ScopeRequest | None) -> str:
    return commands.check_scope(None if request is None else request.scope)


async def pause(call: Invocation[NoQuery, ScopeRequest | None]) -> JsonReply[PauseResult]:
    """Pause everything, or everything in a scope. Running jobs continue; no new jobs start."""
    operation = partial(commands.pause, scope=_parse_scope(call.body), actor=call.context.actor)
    return JsonReply(await call.context.run_in_turn(operation))


async def resume(call: Invocation[NoQuery, ScopeRequest | None]) -> JsonReply[ResumeResult]:
    """Resume a paused scope. Other pauses and breakers stay in effect."""
    operation = partial(commands.resume, scope=_parse_scope(call.body), actor=call.context.actor)
    return JsonReply(await call.context.run_in_turn(operation))


class ClearRequest(ScopeRequest, frozen=True, forbid_unknown_fields=True):
    """Jobs to cancel."""

    up_to: JobIdText | None = None
    """Id of a job: jobs that were submitted after it are not cancelled. A dry run returns the `up_to` of its jobs."""
    dry_run: bool = False
    """Return the jobs that would be cancelled, without cancelling them."""
    limit: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """With `dry_run`, maximum number of jobs to return; null returns all."""


async def clear(call: Invocation[NoQuery, ClearRequest | None]) -> JsonReply[ClearResult | ClearPlan]:
    """Cancel the waiting jobs of a scope. The response is sent when all are cancelled. A client that disconnects does
    not stop the operation."""
    context, scope, request = call.context, _parse_scope(call.body), call.body or ClearRequest()
    up_to = parse_field("up_to", request.up_to, parse_job_id)
    if request.dry_run:
        limits = context.view_context().limits
        await context.read(partial(commands.refuse_unknown_scope, pool_sizes=limits, scope=scope))
        return JsonReply(await context.read(partial(plan_clear, scope=scope, limit=request.limit)))
    operation = await context.run_in_turn(partial(commands.clear, scope=scope, actor=context.actor, max_job=up_to))
    cleared = await asyncio.shield(asyncio.wrap_future(operation.completion))
    return JsonReply(ClearResult(scope=scope, cleared=cleared))


class TickRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of a tick."""

    dry_run: bool = False
    """Return the jobs that would start, without starting them."""
    batch: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)] | None = None
    """Maximum number of jobs to start; `[scheduler] batch_size` by default."""


async def run_tick(call: Invocation[NoQuery, TickRequest | None]) -> JsonReply[TickResult]:
    """Run a tick now. It probes all facts that waiting jobs depend on, and starts the jobs that can start."""
    context, request = call.context, call.body or TickRequest()
    context.control.check_config()
    facts = await context.read(partial(find_watched_facts, paths=context.control.settings.artifact_paths))
    try:
        observation = await context.blocking_calls.run(
            ["tick"], _PROBE_TIMEOUT, partial(probe_facts, facts, context.probe, context.fact_cache)
        )
    except TimeoutError:
        message = "the file system does not answer; jobs that depend on it are evaluated again automatically"
        raise ServiceUnavailable(message) from None
    await context.control.check_hold_file(wakes_engine=False)  # the tick itself is the next turn
    operation = partial(commands.request_tick, observation=observation, batch_size=request.batch)
    run = context.dry_run if request.dry_run else context.run_and_render
    return JsonReply(await run(operation, partial(_render_ticks, context.control)))


def _render_ticks(control: DaemonControl, tx: Transaction, results: Sequence[None]) -> list[TickResult]:
    return [queries.render_tick(tx, control.first_blocker)] * len(results)


class BreakersQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    limit: PageSize = 100
    cursor: str | None = None
    """Cursor of the page: the `next` of the previous page."""


async def list_breakers(call: Invocation[BreakersQuery, None]) -> JsonReply[BreakerPage]:
    """List breakers, by key. The list has all breakers that are not closed, and closed breakers with counted
    failures."""
    context, after, limit = call.context, call.query.cursor or "", call.query.limit
    breakers = await context.read(partial(queries.read_breakers, context=context.view_context()))
    rest = [breaker for breaker in breakers if breaker.key > after]
    return JsonReply(BreakerPage(breakers=rest[:limit], next=rest[limit - 1].key if len(rest) > limit else None))


async def reset_breaker(
    call: Invocation[NoQuery, None],
) -> JsonReply[BreakerResetResult] | JsonReply[StartFailureResetResult]:
    """Reset a breaker, or the start failures of a job. The key is that of the breaker, or the id of the job."""
    context = call.context
    return JsonReply[Any](
        await context.run_in_turn(partial(commands.reset_breaker, name=call.path_values["key"], actor=context.actor))
    )


class LocksQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    key: str | None = None
    """Only the lock with this key, even if no job holds or requests it."""
    limit: PageSize = 100
    cursor: str | None = None
    """Cursor of the page: the `next` of the previous page."""


async def list_locks(call: Invocation[LocksQuery, None]) -> JsonReply[LockPage]:
    """List the locks that are held or requested, by key. Each has its holders, and its waiters in order."""
    context, query = call.context, call.query
    if query.key is not None:
        return JsonReply(LockPage(locks=[await context.read(partial(queries.show_lock, key=query.key))], next=None))
    locks, next_cursor = await context.read(partial(queries.list_locks, after=query.cursor or "", limit=query.limit))
    return JsonReply(LockPage(locks=locks, next=next_cursor))


async def get_display(call: Invocation[NoQuery, None]) -> JsonReply[DisplayConfig]:
    """Show how commands display jobs: `[display]` of the configuration."""
    # A request is faster for a command than reading the configuration itself.
    control = call.context.control
    control.check_config()  # a change of the file applies to the next command
    return JsonReply(control.config.display)


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
_SCOPE_EXAMPLE = {"scope": "flow/review"}
_PAUSE_EXAMPLE = {"has_changed": True, "scope": "flow/review", "paused_by": "rota", "paused_at": "2026-11-16T08:20:00Z"}
_BREAKER_EXAMPLE = {
    "key": "type/story",
    "state": "open",
    "failures": 20,
    "opened_at": "2026-11-16T08:20:00Z",
    "probe_at": "2026-11-16T08:30:00Z",
    "probe_job": None,
}
_LOCK_EXAMPLE = LockStatus(
    key="branch/main",
    mode="exclusive",
    holders=[LockOwner(id="job-24", mode="exclusive")],
    waiters=[LockOwner(id="job-25", mode="exclusive")],
    waiting=1,
)

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
    Endpoint(
        "POST",
        "/api/scheduler/pause",
        pause,
        request_example=_SCOPE_EXAMPLE,
        response_example={**_PAUSE_EXAMPLE, "warning": None},
    ),
    Endpoint(
        "POST",
        "/api/scheduler/resume",
        resume,
        errors=(404,),
        request_example=_SCOPE_EXAMPLE,
        response_example=_PAUSE_EXAMPLE,
    ),
    Endpoint(
        "POST",
        "/api/scheduler/clear",
        clear,
        errors=(404,),
        request_example=_SCOPE_EXAMPLE,
        response_example={"scope": "flow/review", "cleared": 12},
    ),
    Endpoint(
        "POST",
        "/api/scheduler/tick",
        run_tick,
        request_example={"dry_run": False, "batch": 2},
        response_example={
            "dispatched": ["job-24", "job-25"],
            "would_dispatch": [],
            "skipped": 3,
            "reason": "batch",
            "blocker": None,
        },
    ),
    Endpoint("GET", "/api/breakers", list_breakers, response_example={"breakers": [_BREAKER_EXAMPLE], "next": None}),
    Endpoint(
        "POST",
        "/api/breakers/{key:path}/reset",
        reset_breaker,
        other_response_types={200: StartFailureResetResult},
        errors=(409,),
        response_example={"key": "type/story", "state": "closed", "failures_cleared": 20},
    ),
    Endpoint("GET", "/api/locks", list_locks, response_example=LockPage(locks=[_LOCK_EXAMPLE], next=None)),
    Endpoint("GET", "/api/display", get_display, response_example=DisplayConfig()),
]

"""`status`: what the scheduler is doing, and if nothing, why."""

from __future__ import annotations

from typing import Any

from rota.core.pool import Limits
from rota.core.status import STARTED, TERMINAL, WAITING, Status
from rota.core.wait import WaitKind
from rota.ids import show_job
from rota.names import GLOBAL
from rota.store.moment import from_stored
from rota.store.session import Reader
from rota.view.breaker import tripped
from rota.view.gc import last_gc
from rota.view.job import Sight, waits
from rota.wire import depth_form


def pools(reader: Reader, limits: Limits) -> dict[str, dict[str, int]]:
    """Every pool that is configured or in use; size -1 where there is no limit."""
    used, _ = reader.used()
    waiting = {name for draws, _ in reader.lanes() for name in draws}
    names = [name for name in limits.sizes if not name.endswith("/*")]
    names += sorted((used.keys() | waiting) - set(names))
    sizes = {name: limits.size(name) for name in names}
    return {name: {"size": -1 if size is None else size, "used": used.get(name, 0)} for name, size in sizes.items()}


def status(reader: Reader, sight: Sight) -> dict[str, Any]:
    counts = reader.counts()
    lanes = reader.lanes()
    ready = sum(count for _, count in lanes)
    running = sum(counts.get(status, 0) for status in STARTED)
    waiting = {kind.value: count for kind, count in reader.waiting_counts().items()}
    pauses = reader.pauses()
    pause = pauses.scopes.get(GLOBAL)
    in_lanes, parked = reader.count_paused(pauses)
    if in_lanes + parked:
        waiting[WaitKind.PAUSED.value] = in_lanes + parked
    last = reader.last_dispatch()
    return {
        "mode": "direct" if sight.limits.size(GLOBAL) is None else "deferred",
        "paused": pause is not None,
        "paused_by": None if pause is None else pause.by,
        "paused_at": None if pause is None else pause.at,
        "depth": depth_form(reader.depth(), sight.queue.of_all(sight.limits)),
        "queued": counts.get(Status.QUEUED, 0),
        "ready": ready - in_lanes,
        "waiting": waiting,
        "breakers": tripped(reader, sight),
        "running": running,
        "finished": sum(counts.get(status, 0) for status in TERMINAL),
        "pools": pools(reader, sight.limits),
        "last_dispatch_at": None if last is None else from_stored(last),
        "last_gc": last_gc(reader),
        "idle_because": _idle_because(reader, sight) if not running and any(counts.get(s) for s in WAITING) else None,
    }


def _idle_because(reader: Reader, sight: Sight) -> str | None:
    """Nothing runs while something waits: what the first job in the queue says."""
    first = reader.list_jobs(WAITING, limit=1)
    if not first:
        return None
    job = reader.jobs(first)[0]
    wait = waits(reader, [job], sight).get(job.id)
    if wait is not None:
        is_paced = sight.outlook.needs_tick and wait == sight.outlook.wait(sight.now)
        return f"{show_job(job.id)}: {wait.detail}{'; it starts with the next tick' if is_paced else ''}"
    if sight.held_by is None and sight.outlook.needs_tick:
        return f"{show_job(job.id)}: it starts with the next `rota tick`"
    return sight.held_by

"""`status`: what the scheduler is doing, and if nothing, why."""

from __future__ import annotations

from collections import Counter

from rota.core.control import Pauses
from rota.core.pool import Limits
from rota.core.status import STARTED, TERMINAL, WAITING, Status
from rota.core.wait import WaitKind
from rota.names import GLOBAL
from rota.store.moment import from_stored
from rota.store.session import Reader
from rota.view import schedule, webhook
from rota.view.breaker import tripped
from rota.view.gc import last_gc
from rota.view.idle import idle_because
from rota.view.job import Sight
from rota.wire.depth import depth_form
from rota.wire.scheduler import PausedForm, PoolForm, SlotCountsForm, StatusForm


def pools(reader: Reader, limits: Limits) -> dict[str, PoolForm]:
    """Every pool that is configured or in use; size -1 where there is no limit."""
    used, _ = reader.used()
    waiting = {name for draws, _ in reader.lanes() for name in draws}
    names = [name for name in limits.sizes if not name.endswith("/*")]
    names += sorted((used.keys() | waiting) - set(names))
    sizes = {name: limits.size(name) for name in names}
    return {
        name: PoolForm(size=-1 if size is None else size, used=used.get(name, 0)) for name, size in sizes.items()
    }  # fmt: skip


def status(reader: Reader, sight: Sight) -> StatusForm:
    active, reasons = reader.active_counts()
    counts = reader.ended_counts() | active
    depth = reader.depth()
    running = sum(counts.get(status, 0) for status in STARTED)
    waiting = {kind.value: count for kind, count in reasons.items()}
    pauses = reader.pauses(holds=sight.holds)
    pause = pauses.scopes.get(GLOBAL)
    in_lanes, parked = reader.count_paused(pauses)
    if in_lanes + parked:
        waiting[WaitKind.PAUSED.value] = in_lanes + parked
    last = reader.last_dispatch()
    slots = Counter(slot.shown.lower() for slot in reader.open_slots())
    is_idle = not running and not slots["running"] and any(counts.get(status) for status in WAITING)
    return StatusForm(
        mode="direct" if sight.limits.size(GLOBAL) is None else "deferred",
        paused=pause is not None,
        paused_by=None if pause is None else pause.by,
        paused_at=None if pause is None else pause.at,
        pauses=_pauses(pauses),
        held=pauses.held,
        depth=depth_form(depth, sight.queue.of_all(sight.limits)),
        queued=counts.get(Status.QUEUED, 0),
        ready=depth.total - in_lanes,
        waiting=waiting,
        breakers=tripped(reader, sight),
        running=running,
        slots=SlotCountsForm(waiting=slots["waiting"], running=slots["running"]),
        webhooks=webhook.summary(reader),
        finished=sum(counts.get(status, 0) for status in TERMINAL),
        pools=pools(reader, sight.limits),
        last_dispatch_at=None if last is None else from_stored(last),
        last_gc=last_gc(reader),
        schedules=schedule.summary(reader, sight.now),
        idle_because=idle_because(reader, sight) if is_idle else None,
    )


def _pauses(pauses: Pauses) -> list[PausedForm]:
    """Everything first."""
    scopes = sorted(pauses.scopes, key=lambda scope: (scope != GLOBAL, scope))
    return [PausedForm(scope=scope, by=pauses.scopes[scope].by, at=pauses.scopes[scope].at) for scope in scopes]

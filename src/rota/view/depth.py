"""Queue depth as one line for the log."""

from __future__ import annotations

from collections import Counter

from rota.core.status import STARTED
from rota.core.wait import WaitKind
from rota.store.session import Reader
from rota.view.job import ViewContext

_MAX_FLOWS = 10
_WAIT_TEXTS = {
    WaitKind.DEPENDENCIES: "waiting on dependencies",
    WaitKind.PINNED_HEAD: "waiting on a pinned head",
    WaitKind.LOCKS: "waiting on locks",
    WaitKind.DELAY: "delayed",
}


def depth_line(reader: Reader, context: ViewContext) -> str | None:
    """Return the line, or `None` if no jobs are waiting."""
    pauses = reader.pauses.state(holds=context.holds)
    ready: Counter[str] = Counter()
    paused: Counter[str] = Counter({"": reader.lanes.count_paused(pauses)[1]})
    for lane in reader.lanes.scopes():
        (paused if pauses.is_paused(lane.scopes, lane.breaker_keys) else ready)[lane.flow] += lane.ready_count
    counts, waiting = reader.jobs.count_active()
    if not ready.total() and not paused.total() and not waiting:
        return None
    parts = [f"{ready.total()} ready{_format_flows(ready)}"]
    parts += [f"{paused.total()} paused{_format_flows(paused)}"] if paused.total() else []
    parts += [f"{waiting[kind]} {text}" for kind, text in _WAIT_TEXTS.items() if waiting.get(kind)]
    return f"depth: {', '.join(parts)}, {sum(counts.get(status, 0) for status in STARTED)} running"


def _format_flows(depths: Counter[str]) -> str:
    """Format the depths of the flows, deepest first."""
    flows = sorted(
        ((flow, count) for flow, count in depths.items() if flow and count), key=lambda depth: (-depth[1], depth[0])
    )
    shown = [f"flow {flow} {count}" for flow, count in flows[:_MAX_FLOWS]]
    shown += [f"{len(flows) - _MAX_FLOWS} more flows"] if len(flows) > _MAX_FLOWS else []
    return f" ({', '.join(shown)})" if shown else ""

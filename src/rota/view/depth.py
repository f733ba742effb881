"""How deep the queue is, in one line for the log."""

from __future__ import annotations

from collections import Counter

from rota.core.status import STARTED
from rota.core.wait import WaitKind
from rota.store.session import Reader
from rota.view.job import Sight

_MOST_FLOWS = 10
_WAITING = {
    WaitKind.DEPENDENCIES: "waiting on dependencies",
    WaitKind.PINNED_HEAD: "waiting on a pinned head",
    WaitKind.LOCKS: "waiting on locks",
    WaitKind.DELAY: "delayed",
}


def depth_line(reader: Reader, sight: Sight) -> str | None:
    """None while nothing waits."""
    pauses = reader.pauses(holds=sight.holds)
    ready: Counter[str] = Counter()
    paused: Counter[str] = Counter({"": reader.count_paused(pauses)[1]})
    for place in reader.places():
        (paused if pauses.are_over(place.scopes, place.keys) else ready)[place.flow] += place.ready
    counts, waiting = reader.active_counts()
    if not ready.total() and not paused.total() and not waiting:
        return None
    parts = [f"{ready.total()} ready{_flows(ready)}"]
    parts += [f"{paused.total()} paused{_flows(paused)}"] if paused.total() else []
    parts += [f"{waiting[kind]} {text}" for kind, text in _WAITING.items() if waiting.get(kind)]
    return f"depth: {', '.join(parts)}, {sum(counts.get(status, 0) for status in STARTED)} running"


def _flows(depths: Counter[str]) -> str:
    """The deepest first."""
    flows = sorted(
        ((flow, count) for flow, count in depths.items() if flow and count), key=lambda depth: (-depth[1], depth[0])
    )
    shown = [f"flow {flow} {count}" for flow, count in flows[:_MOST_FLOWS]]
    shown += [f"{len(flows) - _MOST_FLOWS} flows more"] if len(flows) > _MOST_FLOWS else []
    return f" ({', '.join(shown)})" if shown else ""

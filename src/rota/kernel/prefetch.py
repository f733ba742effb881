"""Prefetching: which jobs the executor may start without waiting for the engine.

Between the end of a command and the next start there is a turn of the engine with its commit. For many short commands
in a row, that is most of the time. But the next job is known in advance as long as running jobs succeed: if all running
and all ready jobs are in one lane, and each end only frees room, the next job of the lane takes the place of each job
that ends.

So the engine offers the first jobs of the lane to the executor in advance. They stay in the queue. When a job succeeds,
the executor starts the next offered job and reports it. Any other event (a request, a failure, a timer, a file) ends
prefetching first: the engine withdraws the offer, collects what has started, and only then decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from rota.ids import JobId, LaneId

MAX_SHORT_RUN = timedelta(milliseconds=100)
"""Duration above which runs do not benefit from prefetching."""
PREFETCH_DEPTH = 32
"""Maximum number of offered jobs."""


def find_common_lane(running: Sequence[LaneId], ready: Sequence[LaneId]) -> LaneId | None:
    """Return the lane of all running and all ready jobs; `None` if there are several lanes, or no running or ready
    jobs."""
    lanes = {*running, *ready}
    return lanes.pop() if running and ready and len(lanes) == 1 else None


def next_to_offer(heads: Sequence[JobId], offered: Sequence[JobId], prefetchable: frozenset[JobId]) -> Sequence[JobId]:
    """Return the jobs to offer after the offered jobs, in queue order, up to the first job whose end affects more than
    its lane. Empty if the offered jobs are not the first in the queue."""
    if list(heads[: len(offered)]) != list(offered):
        return ()
    following = heads[len(offered) :]
    end = next((n for n, job in enumerate(following) if job not in prefetchable), len(following))
    return following[:end]

"""What may be started without asking again.

Between the end of one command and the start of the next there is a turn of the engine and its commit. Where many short
commands follow each other, that is most of the time. But who is next is known before, for as long as nothing happens
but that what runs succeeds: where all that runs, and all that is ready, stands in one lane, there is room for as many
as run, and the end of none of it changes anything but that there is room, the next in the lane takes the place of each
that ends.

So the first of them are given to the executor ahead, as they stand in the queue, which they do not leave. It starts the
next by itself when one has succeeded, and says so. Whatever else happens (a request, a failure, a timer, a file) first
ends that: it is asked for what it has taken, and only then is anything decided.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from rota.ids import JobId, LaneId

BRIEF = timedelta(milliseconds=100)
"""Who runs longer than this gains nothing by it."""
DEPTH = 32
"""How many are given at a time."""


def common_lane(running: Sequence[LaneId], ready: Sequence[LaneId]) -> LaneId | None:
    """The one in which all that runs and all that is ready stands; none where there is another, or none of either."""
    lanes = {*running, *ready}
    return lanes.pop() if running and ready and len(lanes) == 1 else None


def next_up(heads: Sequence[JobId], given: Sequence[JobId], plain: frozenset[JobId]) -> Sequence[JobId]:
    """Who is to be given behind those that are: as they stand in the queue, up to the first whose end would matter to
    somebody. None where those that are given are not the first any more."""
    if list(heads[: len(given)]) != list(given):
        return ()
    behind = heads[len(given) :]
    end = next((n for n, job in enumerate(behind) if job not in plain), len(behind))
    return behind[:end]

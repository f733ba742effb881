"""Why nothing runs while something waits: said by the job that is nearest to its start."""

from __future__ import annotations

from rota.core.job import Job
from rota.core.verdict import Wait
from rota.core.wait import WaitKind
from rota.ids import show_job
from rota.store.session import Reader
from rota.view.job import Sight, find, waits
from rota.view.why import held_up_by

_DEEPEST = 100


def idle_because(reader: Reader, sight: Sight) -> str | None:
    """What holds everything, whatever the gates say; else what the nearest job says, and if that waits for another,
    what holds up that one. With everything delayed it is the job whose time comes first."""
    if sight.held_by is not None:
        return sight.held_by
    nearest = reader.nearest()
    if nearest is None:
        return None
    job = find(reader, nearest)
    wait = waits(reader, [job], sight).get(job.id)
    seen = {job.id}
    while wait is not None and wait.kind is WaitKind.DEPENDENCIES and len(seen) < _DEEPEST:
        following = held_up_by(reader, job, wait)
        if following is None or following in seen:
            break
        job = find(reader, following)
        seen.add(job.id)
        wait = waits(reader, [job], sight).get(job.id) or wait
    if wait is None:
        return f"{show_job(job.id)}: it starts with the next `rota tick`" if sight.outlook.needs_tick else None
    is_paced = sight.outlook.needs_tick and wait == sight.outlook.wait(sight.now)
    by_tick = "; it starts with the next tick" if is_paced else ""
    return f"{show_job(job.id)}: {wait.detail}{by_tick}{_too_heavy(job, wait, sight)}"


def _too_heavy(job: Job, wait: Wait, sight: Sight) -> str:
    """What no end of another job will change."""
    for pool in (topic.removeprefix("pool:") for topic in wait.on if wait.kind is WaitKind.CAPACITY):
        size, weight = sight.limits.size(pool), job.draws.get(pool, 0)
        if size and weight > size:
            return f"; it draws {weight}, and cannot start until the pool grows"
    return ""

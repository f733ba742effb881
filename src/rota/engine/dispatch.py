"""The tick, inside a transaction: look at what is marked, then claim what fits."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from rota import report
from rota.core.control import Holds
from rota.core.gate import Facts
from rota.core.lock import LockBoard
from rota.core.pool import Limits, PoolBoard
from rota.core.slot import Slot
from rota.core.status import TERMINAL, Status
from rota.core.tick import Plan, look, plan
from rota.engine import workspace
from rota.engine.control import has_cleared_enough, without_cleared
from rota.engine.finish import end_chain
from rota.engine.outside import ask_for, confirmed
from rota.engine.slot import start_of
from rota.engine.work import Work
from rota.executor.port import Environment, Start
from rota.ids import show_job, show_run
from rota.store.claim import Dispatch
from rota.store.snapshot import LANES, Snapshots, Unreadable

_decode_argv = msgspec.json.Decoder(tuple[str, ...]).decode

LOOK = 500
"""Jobs looked at in one go."""
MOST_AT_ONCE = 1000
"""Jobs of one lane that a tick without a batch takes in one transaction; the rest follows in the next."""
LOOKS = 4
"""Goes in one transaction: what is left has its turn in the next, and nothing behind it starts meanwhile."""


def look_at_marked(work: Work, cause: str) -> bool:
    """Until nothing is marked or the transaction has grown long enough; whether some may be left. A blocked job
    marks its own successors, so a whole chain of them falls in one pass."""
    for _ in range(LOOKS):
        jobs, unreadable = work.session.stirred(LOOK)
        for each in unreadable:
            fail_unreadable(work, each)
        if unreadable:
            continue  # what ended with them may be among the others: they are read anew
        if not jobs:
            return False
        if work.clearings:
            jobs = without_cleared(work, jobs)
        facts = Facts(
            now=work.now,
            pauses=work.session.pauses(holds=work.holds),
            locks=LockBoard(work.session.fronts(lock.key for job in jobs for lock in job.locks)),
            pools=PoolBoard(work.settings.limits, {}),
            outside=work.outside,
        )
        placements = confirmed(work, jobs, look(jobs, facts), facts)
        work.session.place(placements, work.now, cause)
        ask_for(work, jobs, placements)
        for placement in placements:
            if placement.to in TERMINAL:
                end_chain(work, placement.chain, placement.to)
        if has_cleared_enough(work):
            break
    return True


def fail_unreadable(work: Work, job: Unreadable) -> None:
    """A job whose own record cannot be used ends alone."""
    reason = f"scheduler data error: {job.error}"
    work.session.end_waiting(job.job, Status.FAILED, exit_code=1, reason=reason, now=work.now, cause="tick", actor=None)
    end_chain(work, job.chain, Status.FAILED)


def choose(
    store: Snapshots, limits: Limits, batch_size: int | None, *, holds: Holds, is_left: bool = True
) -> Plan:  # fmt: skip
    """The plan of this moment. It sees the first lanes, and more of them only when those are all held up.
    `is_left`: marked jobs may be left that have not had their look."""
    most_lanes = LANES
    while True:
        chosen = plan(store.snapshot(limits, batch_size, most_lanes, holds=holds, is_left=is_left))
        if chosen.claims or not chosen.wants_more_lanes:
            return chosen
        most_lanes *= 8


def choose_all(store: Snapshots, limits: Limits, batch: int | None, *, holds: Holds, is_left: bool) -> Plan:
    """The plan of a tick: of all lanes, and of each as many jobs as the batch could take."""
    most_lanes, most_heads = LANES, (MOST_AT_ONCE if batch is None else batch) + 1
    while True:
        chosen = plan(store.snapshot(limits, batch, most_lanes, holds=holds, is_left=is_left, most_heads=most_heads))
        if not chosen.wants_more_lanes:
            return chosen
        most_lanes *= 8


class Starter:
    """Turns claims into start orders, and tells the executor each environment once for each connection."""

    def __init__(self, home: Path, jobs: Path) -> None:
        self._home = str(home)
        self._jobs = str(jobs)
        self._told: set[int] = set()

    def forget(self) -> None:
        """A new connection knows nothing."""
        self._told.clear()

    def order(self, work: Work, dispatch: Dispatch) -> None:
        """May raise when the job's own record cannot be used; then no order is left behind."""
        work.starts.append(self.start_of(work, dispatch))

    def start_of(self, work: Work, dispatch: Dispatch) -> Start:
        """May raise when the job's own record cannot be used."""
        if dispatch.command is None or dispatch.cwd is None or dispatch.surroundings is None:
            raise LookupError("its record is gone from the store")
        argv = _decode_argv(dispatch.command)
        self._tell(work, dispatch.surroundings)
        directory = f"{self._jobs}/{dispatch.job}"
        return Start(
            run=dispatch.run,
            job=dispatch.job,
            argv=argv,
            cwd=dispatch.cwd,
            surroundings=dispatch.surroundings,
            overlay=self._overlay(dispatch, directory),
            directory=directory,
            timeout=None if dispatch.timeout is None else dispatch.timeout.total_seconds(),
            idle_timeout=None if dispatch.idle_timeout is None else dispatch.idle_timeout.total_seconds(),
            kill_after=work.settings.kill_after.total_seconds(),
            skip_if=dispatch.skip_if,
            workspace=workspace.order(dispatch, self._home, directory, work.settings.start_timeout),
            aside=msgspec.UNSET if dispatch.rewound_run is None else dispatch.rewound_run,
        )

    def order_slot(self, work: Work, slot: Slot) -> None:
        """The same for a direct execution."""
        start = start_of(slot, self._home, work.settings.kill_after.total_seconds())
        self._tell(work, start.surroundings)
        work.starts.append(start)

    def _tell(self, work: Work, surroundings: int) -> None:
        if surroundings not in self._told:
            variables = work.session.variables(surroundings)
            work.starts.append(Environment(surroundings=surroundings, variables=variables))
            self._told.add(surroundings)

    def _overlay(self, dispatch: Dispatch, directory: str) -> Mapping[str, str]:
        return {
            **dispatch.variables,
            **workspace.variables(dispatch, directory),
            "ROTA_HOME": self._home,
            "ROTA_JOB": show_job(dispatch.job),
            "ROTA_RUN": show_run(dispatch.run),
            "ROTA_PARAMS": dispatch.params or "{}",
            "ROTA_SESSION_FILE": f"{directory}/{report.FILE}",
        }

"""Steps of a tick, inside a transaction: evaluate dirty jobs, plan starts, make start orders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec

from rota import job_files
from rota.db.queue import Dispatch
from rota.db.queue_reads import MAX_LANES, UnreadableJob
from rota.db.session import AnyReader
from rota.engine.control import clear_matching, is_clear_limit_reached
from rota.engine.direct import make_start
from rota.engine.facts import confirm_blocks, request_undecided_facts
from rota.engine.finish import end_chain
from rota.engine.transaction import Transaction
from rota.executor.port import EnvironmentUpload, StartOrder
from rota.ids import format_job_id, format_run_id
from rota.kernel.gates import GateContext
from rota.kernel.holds import Holds
from rota.kernel.job import WorkspaceSpec
from rota.kernel.locks import LockBoard
from rota.kernel.pools import PoolBoard, PoolSizes
from rota.kernel.reservations import Reservation
from rota.kernel.status import TERMINAL, Status
from rota.kernel.tick import StartPlan, evaluate, plan
from rota.worktrees.patches import INPUT_PATCH, patch_path

EVALUATE_BATCH_SIZE = 500
"""Jobs that one batch evaluates."""
MAX_TICK_JOBS_PER_LANE = 1000
"""Jobs of one lane that a tick without a batch size starts in one transaction; the rest follows in the next."""
MAX_EVALUATE_BATCHES = 4
"""Batches in one transaction. The next one evaluates the rest; no job behind the rest starts before that."""
_START_TIMEOUT_SHARE = 0.8
"""Share of `start_timeout` for the workspace: a slow one must be reported with its reason before the start is late."""
_NO_VARIABLES: Mapping[str, str] = {}

_decode_workspace = msgspec.json.Decoder(WorkspaceSpec).decode
_decode_params = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_argv = msgspec.json.Decoder(tuple[str, ...]).decode


def evaluate_dirty_jobs(tx: Transaction, cause: str) -> bool:
    """Evaluate dirty jobs until none is left or the transaction is long enough. Return whether some may be left.

    A blocked job marks its dependents dirty, so one call blocks a whole line of dependents."""
    for _ in range(MAX_EVALUATE_BATCHES):
        jobs, unreadable = tx.queue.dirty_jobs(EVALUATE_BATCH_SIZE)
        if unreadable:
            tx.queue.remove([job.job for job in unreadable if job.has_unknown_status])
            for job in unreadable:
                if not job.has_unknown_status:
                    _fail_unreadable(tx, job)
            continue  # read the others again: a job that has just ended may be among them
        if not jobs:
            return False
        if tx.effects.clear_operations:
            jobs = clear_matching(tx, jobs)
        context = GateContext(
            now=tx.now,
            pauses=tx.pauses.state(holds=tx.holds),
            locks=LockBoard(tx.locks.fronts(lock.key for job in jobs for lock in job.locks)),
            pools=PoolBoard(tx.settings.pool_sizes, {}),
            observations=tx.observations,
        )
        placements = confirm_blocks(tx, jobs, evaluate(jobs, context), context)
        tx.queue.place(placements, tx.now, cause)
        request_undecided_facts(tx, jobs, placements)
        for placement in placements:
            if placement.new_status in TERMINAL:
                end_chain(tx, placement.chain, placement.new_status)
        if is_clear_limit_reached(tx):
            break
    return True


def _fail_unreadable(tx: Transaction, job: UnreadableJob) -> None:
    """Fail a job with an unusable record, without affecting other jobs."""
    reason = f"scheduler data error: {job.error}"
    tx.jobs.end_waiting(job.job, Status.FAILED, exit_code=1, reason=reason, now=tx.now, cause="tick", actor=None)
    end_chain(tx, job.chain, Status.FAILED)


def plan_starts(
    reader: AnyReader, pool_sizes: PoolSizes, batch_size: int | None, *, holds: Holds, has_dirty_jobs: bool = True
) -> StartPlan:
    """Plan the starts of a turn. Read the first lanes, and more of them only if all of those are held.

    `has_dirty_jobs`: jobs may be left that have not been evaluated."""
    max_lanes = MAX_LANES
    while True:
        chosen = plan(reader.queue.snapshot(pool_sizes, batch_size, max_lanes, holds=holds, has_dirty=has_dirty_jobs))
        if chosen.claims or not chosen.needs_more_lanes:
            return chosen
        max_lanes *= 8


def plan_tick(
    reader: AnyReader, pool_sizes: PoolSizes, batch_size: int | None, *, holds: Holds, has_dirty_jobs: bool
) -> StartPlan:
    """Plan a tick: over all lanes, with as many jobs of each as the batch size allows."""
    max_lanes, max_heads = MAX_LANES, (MAX_TICK_JOBS_PER_LANE if batch_size is None else batch_size) + 1
    while True:
        chosen = plan(
            reader.queue.snapshot(
                pool_sizes, batch_size, max_lanes, holds=holds, has_dirty=has_dirty_jobs, max_heads=max_heads
            )
        )
        if not chosen.needs_more_lanes:
            return chosen
        max_lanes *= 8


class StartOrders:
    """Factory of start orders. It sends each environment to the executor once per connection."""

    def __init__(self, home: Path, jobs: Path) -> None:
        self._home = str(home)
        self._jobs = str(jobs)
        self._sent_environments: set[int] = set()

    def forget_environments(self) -> None:
        """Send every environment again: a new connection has none."""
        self._sent_environments.clear()

    def add_job(self, tx: Transaction, dispatch: Dispatch) -> None:
        """Add a start order. Raises without adding one if the record of the job is unusable."""
        tx.effects.starts.append(self.make_start(tx, dispatch))

    def make_start(self, tx: Transaction, dispatch: Dispatch) -> StartOrder:
        """Make a start order. Raises if the record of the job is unusable."""
        if dispatch.command is None or dispatch.cwd is None or dispatch.environment is None:
            raise LookupError("its record is missing from the store")
        argv = _decode_argv(dispatch.command)
        _check_argv(argv)
        _check_params(dispatch.params)
        self._send_environment(tx, dispatch.environment)
        directory = f"{self._jobs}/{dispatch.job}"
        return StartOrder(
            run=dispatch.run,
            job=dispatch.job,
            argv=argv,
            cwd=dispatch.cwd,
            environment_id=dispatch.environment,
            overlay=self._make_overlay(dispatch, directory),
            directory=directory,
            timeout=None if dispatch.timeout is None else dispatch.timeout.total_seconds(),
            idle_timeout=None if dispatch.idle_timeout is None else dispatch.idle_timeout.total_seconds(),
            kill_after=tx.settings.kill_after.total_seconds(),
            skip_if=dispatch.skip_if,
            workspace=_make_workspace_order(dispatch, self._home, directory, tx.settings.start_timeout),
            superseded_run=msgspec.UNSET if dispatch.rewound_run is None else dispatch.rewound_run,
        )

    def add_reservation(self, tx: Transaction, reservation: Reservation) -> None:
        """Add a start order for a reservation."""
        start = make_start(reservation, self._home, tx.settings.kill_after.total_seconds())
        self._send_environment(tx, start.environment_id)
        tx.effects.starts.append(start)

    def _send_environment(self, tx: Transaction, environment: int) -> None:
        if environment not in self._sent_environments:
            variables = tx.jobs.environment_variables(environment)
            tx.effects.starts.append(EnvironmentUpload(environment_id=environment, variables=variables))
            self._sent_environments.add(environment)

    def _make_overlay(self, dispatch: Dispatch, directory: str) -> Mapping[str, str]:
        return {
            **dispatch.trace_variables,
            **_workspace_variables(dispatch, directory),
            "ROTA_HOME": self._home,
            "ROTA_JOB": format_job_id(dispatch.job),
            "ROTA_RUN": format_run_id(dispatch.run),
            "ROTA_PARAMS": dispatch.params or "{}",
            "ROTA_SESSION_FILE": f"{directory}/{job_files.SESSION_FILE}",
        }


def _check_argv(argv: Sequence[str]) -> None:
    """Raise for a stored command that no submit accepts: the record is damaged."""
    if not argv or not argv[0].strip():
        raise ValueError("its stored command is empty")
    if "\x00" in "".join(argv):
        raise ValueError("its stored command has a NUL character")


def _check_params(text: str | None) -> None:
    """Raise for stored params that are not a JSON object: a job must not run with other params than submitted."""
    try:
        _decode_params("{}" if text is None else text)
    except msgspec.DecodeError as error:
        raise ValueError(f"its params cannot be read: {error}") from None


def _make_workspace_order(
    dispatch: Dispatch, home: str, directory: str, start_timeout: timedelta
) -> Mapping[str, Any] | msgspec.UnsetType:
    """Make the workspace order; unset for a job without a workspace. Raises if the record is unusable."""
    if dispatch.workspace is None:
        return msgspec.UNSET
    spec = _decode_workspace(dispatch.workspace)
    return {
        **msgspec.to_builtins(spec),
        "input_patch": None if spec.input_patch is None else patch_path(home, spec.input_patch),
        "home": home,
        "job": format_job_id(dispatch.job),
        "directory": directory,
        "cwd": dispatch.cwd,
        "limit": start_timeout.total_seconds() * _START_TIMEOUT_SHARE,
    }


def _workspace_variables(dispatch: Dispatch, directory: str) -> Mapping[str, str]:
    if dispatch.workspace is None or _decode_workspace(dispatch.workspace).input_patch is None:
        return _NO_VARIABLES
    return {"ROTA_INPUT_PATCH": f"{directory}/{INPUT_PATCH}"}

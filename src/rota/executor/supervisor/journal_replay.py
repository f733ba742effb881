"""Reconstruction of the unacknowledged runs from the lines of the journal. Pure."""

from __future__ import annotations

from rota.executor.supervisor import protocol, validation
from rota.executor.supervisor.log import write_log
from rota.executor.supervisor.run import RunPhase, SupervisedRun
from rota.executor.supervisor.spawn import RunLaunch
from rota.executor.supervisor.step import RunStep

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class JournalReplay:
    def __init__(self) -> None:
        self.runs: dict[int, SupervisedRun] = {}
        self.generation = 0

    def replay(self, journal: bytes) -> None:
        for line in journal.splitlines(keepends=True):
            try:
                self._apply(protocol.parse_message(line), line)
            except validation.PARSE_ERRORS as error:
                # One invalid line must not hide the others. Its content is unknown, and nothing is invented.
                write_log(f"invalid journal line ({error!r}): {line[:200]!r}")

    def _apply(self, record: dict[str, Any], line: bytes) -> None:
        kind = record["type"]
        if kind == "generation":
            self.generation = max(self.generation, validation.read_integer(record, "generation"))
        elif kind == "starting":
            run = _run_from_record(record)
            self.runs[run.number] = run
        elif kind == "acknowledged":
            self.runs.pop(validation.read_integer(record, "run"), None)
        elif kind in ("started", "step", "ending", "exited", "failed_to_start", "finished"):
            # If `starting` could not be written, the failure was reported without it and is not repeated.
            known = self.runs.get(validation.read_integer(record, "run"))
            if known is not None:
                _apply_record(known, record, line)


def _run_from_record(record: dict[str, Any]) -> SupervisedRun:
    run = SupervisedRun(
        validation.read_integer(record, "run"),
        directory=validation.read_path(record, "directory"),
        kill_after=validation.read_seconds(record, "kill_after"),
        deadline=validation.read_optional_seconds(record, "deadline"),
        idle_timeout=validation.read_optional_seconds(record, "idle_timeout"),
    )
    run.boot = validation.read_string(record, "boot")
    if "cgroup" in record:
        run.cgroup = validation.read_path(record, "cgroup")
    run.is_inherited = True
    run.step = RunStep[record.get("step", RunStep.MAIN.name)]
    if record.get("workspace") is not None:
        validation.read_seconds(record["workspace"], "limit")
        run.launch = RunLaunch.for_finish(run.directory, record["workspace"])
        run.workspace = run.launch.workspace
    return run


def _apply_record(run: SupervisedRun, record: dict[str, Any], line: bytes) -> None:
    match record["type"]:
        case "started":
            run.pid, run.start_time = validation.read_pid(record), validation.read_integer(record, "start_time")
            if "has_cgroup" in record:
                run.cgroup = ""
            if run.workspace is not None and run.step is RunStep.MAIN:
                run.workspace.has_run = True
        case "step":
            _apply_step(run, record)
        case "finished":
            run.launch = None
        case "ending":
            ended_by, kill_at = record["ended_by"], validation.read_optional_seconds(record, "kill_at")
            if ended_by not in validation.END_REASONS:
                raise ValueError(f"unknown ended_by {ended_by!r:.100}")
            run.ended_by, run.kill_at = ended_by, kill_at
        case _:
            validation.check_end(record)
            run.end_line = line
            run.is_end_recorded = True
            run.phase = RunPhase.ENDED


def _apply_step(run: SupervisedRun, record: dict[str, Any]) -> None:
    """Advance the run to a step: the processes of its earlier steps are gone, and the next one may exist."""
    step, state = RunStep[record["step"]], record.get("state")
    if state is not None and not isinstance(state, dict):
        raise ValueError("state must be an object")
    run.step, run.pid, run.start_time = step, None, None
    if run.workspace is not None:
        run.workspace.state, run.workspace.has_run = state, record.get("has_run") is True

"""From the journal's lines back to the runs that are not acknowledged. Pure."""

from __future__ import annotations

from rota.executor.supervisor import field, protocol
from rota.executor.supervisor.log import say
from rota.executor.supervisor.run import Phase, Run
from rota.executor.supervisor.spawn import Launch
from rota.executor.supervisor.step import Step

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class History:
    def __init__(self) -> None:
        self.runs: dict[int, Run] = {}
        self.generation = 0

    def replay(self, journal: bytes) -> None:
        for line in journal.splitlines(keepends=True):
            try:
                self._apply(protocol.parse(line), line)
            except field.NOT_UNDERSTOOD as error:
                # One bad line must not hide the others. What it told of its run is not known, and nothing is made up.
                say(f"journal line not understood ({error!r}): {line[:200]!r}")

    def _apply(self, record: dict[str, Any], line: bytes) -> None:
        kind = record["type"]
        if kind == "generation":
            self.generation = max(self.generation, field.whole(record, "generation"))
        elif kind == "starting":
            run = _starting(record)
            self.runs[run.number] = run
        elif kind == "acknowledged":
            self.runs.pop(field.whole(record, "run"), None)
        elif kind in ("started", "step", "ending", "exited", "failed_to_start", "finished"):
            # A failure to write `starting` was told without it; its end alone is enough to tell it again.
            found = self.runs.get(field.whole(record, "run"))
            if found is not None:
                _advance(found, record, line)


def _starting(record: dict[str, Any]) -> Run:
    run = Run(
        field.whole(record, "run"),
        directory=field.path(record, "directory"),
        kill_after=field.seconds(record, "kill_after"),
        deadline=field.maybe_seconds(record, "deadline"),
        idle_timeout=field.maybe_seconds(record, "idle_timeout"),
    )
    run.boot = field.word(record, "boot")
    run.inherited = True
    run.step = Step[record.get("step", Step.MAIN.name)]
    if record.get("workspace") is not None:
        field.seconds(record["workspace"], "limit")
        run.launch = Launch.to_finish(run.directory, record["workspace"])
        run.workspace = run.launch.workspace
    return run


def _advance(run: Run, record: dict[str, Any], line: bytes) -> None:
    match record["type"]:
        case "started":
            run.pid, run.start_time = field.pid(record), field.whole(record, "start_time")
            if run.workspace is not None and run.step is Step.MAIN:
                run.workspace.has_run = True
        case "step":
            _go_on(run, record)
        case "finished":
            run.launch = None
        case "ending":
            by, kill_at = record["by"], field.maybe_seconds(record, "kill_at")
            if by not in field.REASONS:
                raise ValueError(f"nobody ends a run by {by!r}")
            run.ended_by, run.kill_at = by, kill_at
        case _:
            field.check_end(record)
            run.end = line
            run.is_written = True
            run.phase = Phase.ENDED


def _go_on(run: Run, record: dict[str, Any]) -> None:
    """What its processes so far have left is gone, and the next may have been made."""
    step, place = Step[record["step"]], record.get("place")
    if place is not None and not isinstance(place, dict):
        raise ValueError("place is no place")
    run.step, run.pid, run.start_time = step, None, None
    if run.workspace is not None:
        run.workspace.place, run.workspace.has_run = place, record.get("has_run") is True

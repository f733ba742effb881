"""From the journal's lines back to the runs that are not acknowledged. Pure."""

from __future__ import annotations

from rota.executor.supervisor import protocol
from rota.executor.supervisor.log import say
from rota.executor.supervisor.run import Phase, Run

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
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                # One bad line must not hide the others.
                say(f"journal line not understood ({error!r}): {line[:200]!r}")

    def _apply(self, record: dict[str, Any], line: bytes) -> None:
        kind = record["type"]
        if kind == "generation":
            self.generation = max(self.generation, int(record["generation"]))
        elif kind == "starting":
            self.runs[record["run"]] = _starting(record)
        elif kind == "acknowledged":
            self.runs.pop(record["run"], None)
        elif kind in ("started", "ending", "exited", "failed_to_start"):
            # A failure to write `starting` was told without it; its end alone is enough to tell it again.
            run = self.runs.get(record["run"])
            if run is not None:
                _advance(run, record, line)


def _starting(record: dict[str, Any]) -> Run:
    run = Run(
        record["run"],
        directory=record["directory"],
        kill_after=record["kill_after"],
        deadline=record["deadline"],
        idle_timeout=record["idle_timeout"],
    )
    run.boot = record["boot"]
    run.inherited = True
    return run


def _advance(run: Run, record: dict[str, Any], line: bytes) -> None:
    match record["type"]:
        case "started":
            run.pid, run.start_time = record["pid"], record["start_time"]
        case "ending":
            run.ended_by, run.kill_at = record["by"], record["kill_at"]
        case _:
            run.end = line
            run.is_written = True
            run.phase = Phase.ENDED

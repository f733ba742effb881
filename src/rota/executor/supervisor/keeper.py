"""Every run's way from its start to its acknowledged end: the supervisor's one state machine.

Each step is first written, then done, then told:

    start        starting ─► journal ─► spawner
    spawned      started ─► journal ─► scheduler
    SIGCHLD      waitid WNOWAIT ─► exited ─► journal ─► reap ─► end what is left ─► scheduler
    acknowledge  forgotten

The kernel keeps an exit code until it is reaped, the journal keeps it until it is acknowledged, and there is
no moment between the two in which a kill could lose it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import time

from rota.executor.supervisor import logs, process, protocol
from rota.executor.supervisor.ending import Ending
from rota.executor.supervisor.journal import Journal
from rota.executor.supervisor.limits import Limits
from rota.executor.supervisor.log import say
from rota.executor.supervisor.loop import Loop
from rota.executor.supervisor.run import Phase, Run
from rota.executor.supervisor.spawn import Launch, Spawned, Spawner
from rota.executor.supervisor.tree import Tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Protocol

    class Tell(Protocol):
        def __call__(self, line: bytes, /, *, can_wait: bool) -> None: ...


RETRY = 1.0
_NAMED = 5
_PEEK = os.WEXITED | os.WNOHANG | os.WNOWAIT
_REAP = os.WEXITED | os.WNOHANG


class Keeper:
    def __init__(
        self,
        loop: Loop,
        journal: Journal,
        spawner: Spawner,
        runs: dict[int, Run],
        tree: Tree,
        generation: int,
        boot: str,
    ) -> None:
        self._loop = loop
        self._journal = journal
        self._spawner = spawner
        self._boot = boot
        self.runs = runs
        self.generation = generation
        self._children: dict[int, Run] = {}
        self._unwritten: list[Run] = []
        self.live: set[int] = set()
        """Runs that are not over: while there is one, the supervisor stays."""
        self.ending = Ending(loop, tree, self._cleared)
        self.limits = Limits(loop, self.end)
        self.tell: Tell = _tell_nobody
        self.trouble: str | None = None
        """Why ends that are known are not told: nobody else could know that they are waited for."""

    # --- what the scheduler asks for ---

    def start(self, order: dict[str, Any], surroundings: dict[str, str] | None) -> bool:
        """False when the run is known already: it must not get a second process, nor a second answer."""
        number = order["run"]
        if number in self.runs:
            return False
        timeout = order.get("timeout")
        run = Run(
            number,
            directory=order["directory"],
            kill_after=order["kill_after"],
            deadline=None if timeout is None else time.monotonic() + timeout,
            idle_timeout=order.get("idle_timeout"),
        )
        run.boot = self._boot
        launch = Launch(order, surroundings or {})
        self.runs[number] = run
        self.live.add(number)
        try:
            self._journal.must_record(run.starting())
        except OSError as error:
            self._refuse(run, _explain_journal(error), is_machine=True)
            return True
        if surroundings is None:
            self._failed(run, f"surroundings {order['surroundings']} were not sent on this connection")
        else:
            self._launch(run, launch, is_check=launch.skip_if is not None)
        return True

    def stop(self, number: int, kill_after: float | None = None) -> bool:
        """False when no such run is known. A run that has ended already keeps its result."""
        run = self.runs.get(number)
        if run is None:
            return False
        if kill_after is not None and run.ended_by is None:
            run.kill_after = kill_after
        self.end(run, "stop")
        return True

    def acknowledge(self, number: int) -> bool:
        run = self.runs.get(number)
        if run is None:
            return True  # twice is fine
        if run.phase is not Phase.ENDED or not run.is_written:
            return False
        del self.runs[number]
        self._journal.record_later(protocol.line(type="acknowledged", run=number))
        return True

    def take_over(self, generation: int) -> bool:
        """Whether a scheduler of this generation may speak; from then on no older one may."""
        if generation < self.generation:
            return False
        if generation > self.generation:
            self.generation = generation
            self._record(protocol.line(type="generation", generation=generation))
        return True

    def accounts(self) -> list[dict[str, int | bool | None]]:
        return [
            {
                "run": run.number,
                "pid": run.pid if run.phase is Phase.RUNNING else None,
                "start_time": run.start_time if run.phase is Phase.RUNNING else None,
                "has_ended": run.phase is Phase.ENDED,
                "is_lost": run.end is not None and not protocol.parse(run.end).get("watched", True),
            }
            for run in self.runs.values()
        ]

    def ends(self) -> list[bytes]:
        """Every end that can be told and is not acknowledged."""
        return [run.end for run in self.runs.values() if run.end and run.phase is Phase.ENDED and run.is_written]

    # --- what happens ---

    def collect(self) -> None:
        """Take up what the spawner has done."""
        for spawned in self._spawner.collect():
            run = self.runs[spawned.run]
            if spawned.error:
                self._failed(run, spawned.error, is_machine=spawned.is_machine)
            else:
                self._started(run, spawned)
        self.reap()  # a fast one may be over already

    def reap(self) -> None:
        """Take up every end of a child. Strays first: they are nobody's news, but must not stay zombies."""
        process.has_strays()
        while (status := _peek()) is not None:
            run = self._children.pop(status.si_pid, None)
            if run is not None:
                self._main_ended(run, status)
            elif self._spawner.in_flight:
                return  # the spawner has not told of it yet; its bell brings us back
            with contextlib.suppress(ChildProcessError):
                os.waitid(os.P_PID, status.si_pid, _REAP)
            if run is not None:
                self.ending.clear(run)

    def end(self, run: Run, by: str) -> None:
        """Stop or timeout. Whoever comes first gives the reason; a result that is already there stands."""
        self.reap()
        is_open = run.phase in (Phase.STARTING, Phase.RUNNING) or run.launch is not None
        if run.ended_by is not None or run.phase is Phase.ENDED or not is_open:
            return
        run.ended_by = by
        run.kill_at = time.monotonic() + run.kill_after
        self._record(run.ending())
        if run.phase is Phase.RUNNING:
            self.ending.terminate(run)

    def main_lost(self, run: Run, *, watched: bool) -> None:
        """A main process that is not our child is gone, and nobody can know how it ended."""
        run.phase = Phase.CLEARING
        self._end(run, code=None, signal_number=None, watched=watched)

    def inherit(self, run: Run) -> None:
        """Watch over a living main process that a predecessor started."""
        run.phase = Phase.RUNNING
        self.live.add(run.number)
        self.limits.arm(run)
        if run.ended_by is not None:
            self.ending.terminate(run)

    def leave(self) -> None:
        """Before the process ends: what is still to be written is written now, if it can be."""
        self._journal.retry()

    def rewrite(self) -> None:
        lines = [protocol.line(type="generation", generation=self.generation)]
        for run in self.runs.values():
            lines.extend(run.records())
        self._journal.rewrite(lines)

    # --- steps ---

    def _launch(self, run: Run, launch: Launch, *, is_check: bool) -> None:
        run.phase = Phase.STARTING
        run.is_check = is_check
        run.launch = launch if is_check else None
        self._spawner.ask(run.number, launch, is_check=is_check)

    def _started(self, run: Run, spawned: Spawned) -> None:
        is_first = not run.timers  # the limits are the run's: the main process has what `skip_if` left of them
        run.phase = Phase.RUNNING
        run.pid, run.start_time = spawned.pid, spawned.start_time
        self._children[spawned.pid] = run
        line = run.started()
        self._record(line)
        self.tell(line, can_wait=True)
        if is_first:
            self.limits.arm(run)
        if run.ended_by is not None:  # stopped while it was being started
            self.ending.terminate(run)

    def _main_ended(self, run: Run, status: os.waitid_result) -> None:
        run.phase = Phase.CLEARING
        has_exited = status.si_code == os.CLD_EXITED
        if run.is_check and run.ended_by is None and not (has_exited and status.si_status == 0):
            return  # not skipped: the main process comes next
        run.launch = None
        self._end(
            run,
            code=status.si_status if has_exited else None,
            signal_number=None if has_exited else status.si_status,
            skipped=logs.reason(run.directory) if run.is_check and run.ended_by is None else None,
        )

    def _end(
        self, run: Run, *, code: int | None, signal_number: int | None, skipped: str | None = None, watched: bool = True
    ) -> None:
        """Write the end down. It is told once that is done and nothing of the run is left."""
        self.limits.disarm(run)
        run.end = protocol.line(
            type="exited",
            run=run.number,
            at=time.time(),
            code=code,
            signal=signal_number,
            ended_by=run.ended_by,
            skipped=skipped,
            tail="" if code == 0 else logs.tail(run.directory),
            watched=watched,
        )
        run.is_written = self._record(run.end)
        if not run.is_written:
            self._unwritten.append(run)
            self._tell_trouble()

    def _cleared(self, run: Run) -> None:
        if run.launch is not None and run.ended_by is None:
            run.pid = run.start_time = run.kill_at = None
            self._launch(run, run.launch, is_check=False)
            return
        if run.end is None:  # stopped between `skip_if` and the main process
            run.launch = None
            self._end(run, code=None, signal_number=int(signal.SIGTERM))
        run.phase = Phase.ENDED
        self._tell_end(run)

    def _failed(self, run: Run, error: str, *, is_machine: bool = False) -> None:
        self._refuse(run, error, is_machine=is_machine)
        if run.end is not None:
            self._record(run.end)

    def _refuse(self, run: Run, error: str, *, is_machine: bool) -> None:
        """Tell a failure whether or not it could be written: there is no process that could be lost."""
        self.limits.disarm(run)
        run.launch = None
        run.phase = Phase.ENDED
        run.end = protocol.line(type="failed_to_start", run=run.number, error=error, is_machine=is_machine)
        run.is_written = True
        self._tell_end(run)

    def _tell_end(self, run: Run) -> None:
        if run.is_written and run.end is not None:
            self.live.discard(run.number)
            self.tell(run.end, can_wait=False)

    def _tell_trouble(self) -> None:
        held = [protocol.tag(run.number) for run in self._unwritten]
        error = self._journal.trouble
        self.trouble = f"{_explain_journal(error)}; ended, and not told until it can: {_few(held)}" if error else None
        self.tell(protocol.line(type="trouble", trouble=self.trouble), can_wait=False)

    def _record(self, line: bytes) -> bool:
        is_written = self._journal.record(line)
        if not is_written:
            self._loop.at(time.monotonic() + RETRY, self._retry)
        elif self._journal.is_overgrown:
            self.rewrite()
        return is_written

    def _retry(self) -> None:
        if not self._journal.is_behind and not self._unwritten:
            return
        if not self._journal.retry():
            self._loop.at(time.monotonic() + RETRY, self._retry)
            return
        say("the journal can be written again")
        waiting, self._unwritten = self._unwritten, []
        self._tell_trouble()
        for run in waiting:
            run.is_written = True
            if run.phase is Phase.ENDED:
                self._tell_end(run)


def _tell_nobody(_line: bytes, *, can_wait: bool) -> None:  # noqa: ARG001 - as whoever comes will have it
    return


def _peek() -> os.waitid_result | None:
    """A child that has ended and is not reaped."""
    try:
        return os.waitid(os.P_ALL, 0, _PEEK)
    except ChildProcessError:
        return None


def _few(names: list[str]) -> str:
    return ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")


def _explain_journal(error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "disk full: the supervisor's journal cannot be written"
    return f"the supervisor's journal cannot be written: {error.strerror or error}"

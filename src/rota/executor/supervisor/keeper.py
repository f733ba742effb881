"""Every run's way from its start to its acknowledged end: the supervisor's one state machine.

Each step is first written, then done, then told:

    start        starting ─► journal ─► spawner        (its workspace and `skip_if` first, where it has them)
    spawned      started ─► journal ─► scheduler
    SIGCHLD      waitid WNOWAIT ─► exited ─► journal ─► reap ─► end what is left ─► finish its workspace ─► scheduler
    acknowledge  forgotten

An end that is told may make room for what was given ahead, which is then started as if it were asked for (`ahead`).

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
from rota.executor.supervisor.ahead import Ahead
from rota.executor.supervisor.ending import Ending
from rota.executor.supervisor.journal import Journal
from rota.executor.supervisor.limits import Limits
from rota.executor.supervisor.log import say
from rota.executor.supervisor.loop import Loop
from rota.executor.supervisor.run import Phase, Run
from rota.executor.supervisor.spawn import Launch, Spawned, Spawner
from rota.executor.supervisor.step import Step
from rota.executor.supervisor.tree import Tree
from rota.executor.supervisor.workspace import MACHINE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Protocol

    class Tell(Protocol):
        def __call__(self, line: bytes, /, *, within: float = 0.0) -> None: ...


RETRY = 1.0
HOLD = 0.02
"""Seconds that the news of a start may wait for company: nobody waits for it, and it costs the scheduler a commit."""
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
        self.ahead = Ahead(self.runs, self.live, self.start, lambda line, within=0.0: self.tell(line, within=within))
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
        run.go_to(launch.step_after(None), launch)
        self.runs[number] = run
        self.live.add(number)
        try:
            self._journal.must_record(run.starting())
        except OSError as error:
            self._refuse(run, _explain_journal(error), is_machine=True, is_known=False)
            return True
        if surroundings is None:
            self._failed(run, f"surroundings {order['surroundings']} were not sent on this connection")
        else:
            self._spawner.ask(run.number, launch, run.step)
        return True

    def stop(self, number: int, kill_after: float | None = None) -> bool:
        """False when no such run is known. A run that has ended already keeps its result."""
        self.ahead.end()
        run = self.runs.get(number)
        if run is None:
            return False
        if kill_after is not None and run.ended_by is None:
            run.kill_after = kill_after
        self.end(run, "stop")
        return True

    def signal(self, number: int, which: int) -> bool:
        """False when no such run is known. It is for the command alone: one that has not begun gets it when it does,
        and of one that is over nothing is left to get it."""
        self.ahead.end()
        run = self.runs.get(number)
        if run is None:
            return False
        which = int(signal.Signals(which))
        self.reap()
        if run.phase is Phase.RUNNING and run.step is Step.MAIN:
            self.ending.pass_on(run, which)
        elif run.end is None:
            run.signals.append(which)
        return True

    def acknowledge(self, number: int) -> bool:
        run = self.runs.get(number)
        if run is None:
            return True  # twice is fine
        if run.phase is not Phase.ENDED or not run.is_written:
            return False
        del self.runs[number]
        self._journal.record_later(protocol.plain("acknowledged", run=number))
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
                "pid": run.pid if _shows_its_process(run) else None,
                "start_time": run.start_time if _shows_its_process(run) else None,
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
        if run.end is not None:
            self._hurry(run)
        if run.end is not None or run.ended_by is not None:
            return
        run.ended_by = by
        run.kill_at = time.monotonic() + run.kill_after
        self._record(run.ending())
        if run.phase is Phase.RUNNING:
            self.ending.terminate(run)

    def _hurry(self, run: Run) -> None:
        """What it came to stands; only the finishing of its workspace can be cut short."""
        if run.step is Step.FINISH and run.phase is not Phase.ENDED:
            run.is_hurried = True
            if run.phase is Phase.RUNNING:
                self.ending.terminate(run)

    def main_lost(self, run: Run, *, watched: bool) -> None:
        """A process that is not our child is gone, and nobody can know how it ended: the command, or what comes before
        it."""
        run.phase = Phase.CLEARING
        if run.step.is_before_main:
            doing = "its workspace was made" if run.step is Step.SET_UP else "its `skip_if` ran"
            run.error, run.is_machine = f"the supervisor was lost while {doing}; its command never began", True
            return
        if run.workspace is not None:
            run.workspace.has_run = True  # its pid may have been lost with who started it
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

    def _started(self, run: Run, spawned: Spawned) -> None:
        run.phase = Phase.RUNNING
        run.pid, run.start_time, run.is_trusted = spawned.pid, spawned.start_time, True
        self._children[spawned.pid] = run
        line = run.started()
        if run.step is not Step.FINISH:
            self._record(line)
        if not run.step.is_ours:
            self.tell(line, within=HOLD)
        self._arm(run)
        if run.is_hurried or (run.ended_by is not None and run.step is not Step.FINISH):
            self.ending.terminate(run)  # stopped while it was being started
        if run.step is Step.MAIN:
            for which in run.signals:
                self.ending.pass_on(run, which)
            run.signals.clear()

    def _arm(self, run: Run) -> None:
        if run.step is not Step.FINISH:
            self.limits.arm(run, has_output=run.step is not Step.SET_UP)
        if run.workspace is None:
            return
        if run.step is Step.MAIN:
            run.workspace.has_run = True
        if run.step.is_ours:
            run.watchdog = self._loop.at(time.monotonic() + run.workspace.limit, lambda: self._overdue(run))

    def _overdue(self, run: Run) -> None:
        """What makes or finishes a workspace has a limit of its own; this is for when it does not keep it."""
        say(f"{protocol.tag(run.number)}: its workspace takes too long; ended")
        self.ending.terminate(run)

    def _main_ended(self, run: Run, status: os.waitid_result) -> None:
        run.phase = Phase.CLEARING
        if run.watchdog is not None:
            run.watchdog.cancel()
        has_exited = status.si_code == os.CLD_EXITED
        is_good = has_exited and status.si_status == 0
        if run.step is Step.FINISH:
            if not is_good:
                self._note(run, logs.tail(run.directory, logs.WORKSPACE).strip() or _explain_silence(status))
            return
        if run.ended_by is None and run.step is Step.SET_UP:
            self._set_up_ended(run, status.si_status if has_exited else -1)
            return
        if run.ended_by is None and run.step is Step.CHECK and not is_good:
            return  # not skipped: the main process comes next
        self._end(
            run,
            code=status.si_status if has_exited else None,
            signal_number=None if has_exited else status.si_status,
            skipped=logs.reason(run.directory) if run.step is Step.CHECK and run.ended_by is None else None,
        )

    def _set_up_ended(self, run: Run, code: int) -> None:
        """The next process is started where it says, or the run has failed to start."""
        launch = run.launch
        if launch is None or launch.workspace is None:
            return
        try:
            launch.cwd = launch.workspace.take_up(run.directory, code)
        except (ValueError, KeyError, TypeError, OSError) as error:
            run.error = f"its workspace could not be made: {protocol.clean(str(error))}"
            run.is_machine = code == MACHINE

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
        run.is_good = code == 0 and run.ended_by is None and skipped is None and watched
        run.is_written = self._record(run.end)
        if not run.is_written:
            self._unwritten.append(run)
            self._tell_trouble()

    def _cleared(self, run: Run) -> None:
        error, run.error = run.error, None
        if error is not None and run.ended_by is None:
            self._failed(run, error, is_machine=run.is_machine)
            return
        if run.end is None and run.ended_by is not None:  # stopped between two of its processes
            self._end(run, code=None, signal_number=int(signal.SIGTERM))
        if run.end is None and run.launch is not None:
            self._go_on(run, run.launch, run.launch.step_after(run.step))
        elif not self._finishes(run):
            self._over(run)

    def _go_on(self, run: Run, launch: Launch, step: Step) -> None:
        run.kill_at = None
        run.go_to(step, launch)
        if step is Step.FINISH:
            self._record(run.at_step())
        else:
            try:
                self._journal.must_record(run.at_step())
            except OSError as error:  # a successor would take it for what came before
                self._failed(run, _explain_journal(error), is_machine=True)
                return
        self._spawner.ask(run.number, launch, step)

    def _finishes(self, run: Run) -> bool:
        """Its end is known; whether its workspace is looked after before anybody hears of it."""
        launch, run.launch = run.launch, None
        if launch is None or launch.workspace is None or not launch.workspace.is_to_finish:
            return False
        self._go_on(run, launch, Step.FINISH)
        return True

    def _note(self, run: Run, trouble: str) -> None:
        """What went wrong after its end; that is told with it and changes nothing of it."""
        say(f"{protocol.tag(run.number)}: its workspace was not finished: {trouble}")
        if run.end is not None:
            end = {**protocol.parse(run.end), "trouble": f"its workspace was not finished: {protocol.clean(trouble)}"}
            run.end, run.is_good = protocol.line(**end), False
            self._record(run.end)

    def _failed(self, run: Run, error: str, *, is_machine: bool = False) -> None:
        if run.step is Step.FINISH:
            self._note(run, error)
            self._over(run)
            return
        self._refuse(run, error, is_machine=is_machine)

    def _refuse(self, run: Run, error: str, *, is_machine: bool, is_known: bool = True) -> None:
        """Tell a failure whether or not it could be written: there is no process that could be lost. Of a run that a
        successor does not know, he need not know the end."""
        self.limits.disarm(run)
        run.end = protocol.line(type="failed_to_start", run=run.number, error=error, is_machine=is_machine)
        run.is_written = True
        if is_known:
            self._record(run.end)
        if not self._finishes(run):
            self._over(run)

    def _over(self, run: Run) -> None:
        run.phase = Phase.ENDED
        if run.step is Step.FINISH:
            self._record(run.finished())
        self._tell_end(run)

    def _tell_end(self, run: Run) -> None:
        if run.is_written and run.end is not None:
            self.live.discard(run.number)
            self.ahead.tell_end(run.end, is_good=run.is_good)

    def _tell_trouble(self) -> None:
        held = [protocol.tag(run.number) for run in self._unwritten]
        error = self._journal.trouble
        self.trouble = f"{_explain_journal(error)}; ended, and not told until it can: {_few(held)}" if error else None
        self.tell(protocol.line(type="trouble", trouble=self.trouble))

    def _record(self, line: bytes) -> bool:
        is_written = self._journal.record(line)
        if not is_written:
            self.ahead.end()
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


def _shows_its_process(run: Run) -> bool:
    """What comes before a command is the supervisor's that started it: with that one it is over."""
    return run.phase is Phase.RUNNING and not run.step.is_ours and not (run.inherited and run.step is Step.CHECK)


def _tell_nobody(_line: bytes, *, within: float = 0.0) -> None:  # noqa: ARG001 - as whoever comes will have it
    return


def _peek() -> os.waitid_result | None:
    """A child that has ended and is not reaped."""
    try:
        return os.waitid(os.P_ALL, 0, _PEEK)
    except ChildProcessError:
        return None


def _explain_silence(status: os.waitid_result) -> str:
    is_machine = status.si_code == os.CLD_EXITED and status.si_status == MACHINE
    return "the disk is full" if is_machine else "it was ended before it was done"


def _few(names: list[str]) -> str:
    return ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")


def _explain_journal(error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "disk full: the supervisor's journal cannot be written"
    return f"the supervisor's journal cannot be written: {error.strerror or error}"

"""State machine that takes every run from its start to its acknowledged exit.

Each step is recorded, then executed, then reported:

    start        starting ─► journal ─► spawner        (first the workspace and `skip_if`, if the run has them)
    spawned      started ─► journal ─► scheduler
    SIGCHLD      waitid WNOWAIT ─► exited ─► journal ─► reap ─► end the rest of the tree ─► finish the workspace
                 ─► scheduler
    acknowledge  forget the run

A reported exit may make room for a prefetched run, which is then started as if it had been ordered (`prefetch`).

The kernel keeps an exit code until the child is reaped, and the journal keeps it until it is acknowledged. There is no
moment in between at which a kill could lose it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import time

from rota.supervisor import cgroup, log_files, process, protocol
from rota.supervisor.event_loop import EventLoop
from rota.supervisor.journal import Journal
from rota.supervisor.log import write_log
from rota.supervisor.prefetch import PrefetchQueue
from rota.supervisor.run import RunPhase, SupervisedRun, TimeLimits
from rota.supervisor.spawn import RunLaunch, RunStep, Spawner, SpawnResult
from rota.supervisor.tree import ProcessTree, TreeTerminator
from rota.supervisor.workspace import MACHINE_FAILURE_EXIT_CODE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Protocol

    class SendLine(Protocol):
        def __call__(self, line: bytes, /, *, within: float = 0.0) -> None: ...


JOURNAL_RETRY_INTERVAL = 1.0
START_REPORT_DELAY = 0.02
"""Seconds that a start report may wait to be sent together with others: it is not urgent, and costs the scheduler a
commit."""
_MAX_NAMED_RUNS = 5
_PEEK_FLAGS = os.WEXITED | os.WNOHANG | os.WNOWAIT
_REAP_FLAGS = os.WEXITED | os.WNOHANG


class ChildManager:
    def __init__(
        self,
        loop: EventLoop,
        journal: Journal,
        spawner: Spawner,
        runs: dict[int, SupervisedRun],
        tree: ProcessTree,
        generation: int,
        boot: str,
    ) -> None:
        self._loop = loop
        self._journal = journal
        self._spawner = spawner
        self._boot = boot
        self.runs = runs
        self.generation = generation
        self._children: dict[int, SupervisedRun] = {}
        self._unrecorded_runs: list[SupervisedRun] = []
        self.live_runs: set[int] = set()
        """Runs that have not ended. The supervisor stays while there is one."""
        self.terminator = TreeTerminator(loop, tree, self._handle_cleared)
        self.time_limits = TimeLimits(loop, self.end_run)
        self.send_line: SendLine = _discard_line
        self.prefetch = PrefetchQueue(
            self.runs, self.live_runs, self.start, lambda line, within=0.0: self.send_line(line, within=within)
        )
        self.error: str | None = None
        """Why known exits are not reported; the scheduler cannot see the cause on its own."""

    @property
    def has_cgroups(self) -> bool:
        """Return whether each new run gets a cgroup."""
        return self._spawner.cgroups.is_enabled

    # --- orders of the scheduler ---

    def start(self, order: dict[str, Any], environment: dict[str, str] | None) -> bool:
        """Start a run. Return False if it is already known: it must not get a second process or a second answer."""
        number = order["run"]
        if number in self.runs:
            return False
        timeout = order.get("timeout")
        run = SupervisedRun(
            number,
            directory=order["directory"],
            kill_after=order["kill_after"],
            deadline=None if timeout is None else time.monotonic() + timeout,
            idle_timeout=order.get("idle_timeout"),
        )
        run.boot = self._boot
        run.cgroup = self._spawner.cgroups.path(number)
        launch = RunLaunch(order, environment or {})
        run.advance(launch.next_step(None), launch)
        self.runs[number] = run
        self.live_runs.add(number)
        try:
            self._journal.record_or_raise(run.starting_line())
        except OSError as error:
            self._record_start_failure(run, _describe_journal_error(error), is_machine_failure=True, is_journaled=False)
            return True
        if environment is None:
            self._handle_spawn_failure(run, f"environment {order['environment_id']} was not sent on this connection")
        else:
            self._spawner.submit(run.number, launch, run.step)
        return True

    def stop(self, number: int, kill_after: float | None = None) -> bool:
        """Stop a run. Return False if it is unknown. A run that has ended keeps its result."""
        self.prefetch.end_series()
        run = self.runs.get(number)
        if run is None:
            return False
        if kill_after is not None and run.ended_by is None:
            run.kill_after = kill_after
        self.end_run(run, "stop")
        return True

    def send_signal(self, number: int, signal_number: int) -> bool:
        """Send a signal to the command of a run. Return False if the run is unknown. A command that has not started
        gets the signal when it starts; an ended run ignores it."""
        self.prefetch.end_series()
        run = self.runs.get(number)
        if run is None:
            return False
        signal_number = int(signal.Signals(signal_number))
        self.reap()
        if run.phase is RunPhase.RUNNING and run.step is RunStep.MAIN:
            self.terminator.forward_signal(run, signal_number)
        elif run.end_line is None:
            run.pending_signals.append(signal_number)
        return True

    def acknowledge(self, number: int) -> bool:
        run = self.runs.get(number)
        if run is None:
            return True  # a repeated acknowledgement is fine
        if run.phase is not RunPhase.ENDED or not run.is_end_recorded:
            return False
        del self.runs[number]
        self._journal.record_lazily(protocol.encode_numeric_message("acknowledged", run=number))
        return True

    def accept_generation(self, generation: int) -> bool:
        """Return whether a scheduler of this generation may connect. If so, older ones are refused from then on."""
        if generation < self.generation:
            return False
        if generation > self.generation:
            self.generation = generation
            self._record(protocol.encode_message(type="generation", generation=generation))
        return True

    def inventory(self) -> list[dict[str, int | bool | None]]:
        return [
            {
                "run": run.number,
                "pid": run.pid if _has_reportable_process(run) else None,
                "start_time": run.start_time if _has_reportable_process(run) else None,
                "has_ended": run.phase is RunPhase.ENDED,
                "is_lost": run.end_line is not None
                and not protocol.parse_message(run.end_line).get("is_observed", True),
            }
            for run in self.runs.values()
        ]

    def reportable_ends(self) -> list[bytes]:
        """Return every exit that can be reported and is not acknowledged."""
        return [
            run.end_line
            for run in self.runs.values()
            if run.end_line and run.phase is RunPhase.ENDED and run.is_end_recorded
        ]

    # --- events ---

    def collect_spawned(self) -> None:
        """Process the results of the spawner."""
        for result in self._spawner.collect_results():
            run = self.runs[result.run]
            if result.error:
                self._handle_spawn_failure(run, result.error, is_machine_failure=result.is_machine_failure)
            else:
                self._handle_started(run, result)
        self.reap()  # a short run may have ended already

    def reap(self) -> None:
        """Process the exit of every child. Strays first: they are not reported, but must not stay zombies."""
        process.has_strays()
        while (status := _peek_exited_child()) is not None:
            run = self._children.pop(status.si_pid, None)
            if run is not None:
                self._handle_exit(run, status)
            elif self._spawner.in_flight:
                return  # the spawner has not reported it yet; its eventfd triggers another call
            with contextlib.suppress(ChildProcessError):
                os.waitid(os.P_PID, status.si_pid, _REAP_FLAGS)
            if run is not None:
                self.terminator.clear_tree(run)

    def end_run(self, run: SupervisedRun, reason: str) -> None:
        """End a run because of a stop or a timeout. The first reason wins, and an existing result stands."""
        self.reap()
        if run.end_line is not None:
            self._interrupt_finish(run)
        if run.end_line is not None or run.ended_by is not None:
            return
        run.ended_by = reason
        run.kill_at = time.monotonic() + run.kill_after
        self._record(run.ending_line())
        if run.phase is RunPhase.RUNNING:
            self.terminator.terminate(run)

    def _interrupt_finish(self, run: SupervisedRun) -> None:
        """Cut the finishing of the workspace short. The result of the run stands."""
        if run.step is RunStep.FINISH and run.phase is not RunPhase.ENDED:
            run.is_finish_interrupted = True
            if run.phase is RunPhase.RUNNING:
                self.terminator.terminate(run)

    def record_lost_process(self, run: SupervisedRun, *, is_observed: bool) -> None:
        """Record that an inherited process is gone. Its exit status cannot be known: it belonged to the command or to a
        step before the command."""
        run.phase = RunPhase.CLEARING
        if run.step.is_before_main:
            activity = "the workspace was being set up" if run.step is RunStep.SET_UP else "`skip_if` was running"
            run.error, run.is_machine_failure = f"the supervisor was lost while {activity}; the command never ran", True
            return
        if run.workspace is not None:
            run.workspace.has_run = True  # its pid may have been lost with the supervisor that started it
        # The kernel removes only an empty cgroup, so all members of one are known, even after its removal. A reboot
        # ends every process.
        is_verified = bool(run.cgroup) or run.boot != self._boot
        self._record_exit(run, code=None, signal_number=None, is_observed=is_observed, is_verified=is_verified)

    def adopt(self, run: SupervisedRun) -> None:
        """Take over a live main process that a predecessor started."""
        run.phase = RunPhase.RUNNING
        self.live_runs.add(run.number)
        self.time_limits.arm(run)
        if run.ended_by is not None:
            self.terminator.terminate(run)

    def close(self) -> None:
        """Write pending journal lines before the process exits, if possible."""
        self._journal.flush_backlog()

    def rewrite(self) -> None:
        lines = [protocol.encode_message(type="generation", generation=self.generation)]
        for run in self.runs.values():
            lines.extend(run.journal_lines())
        self._journal.rewrite(lines)

    # --- steps ---

    def _handle_started(self, run: SupervisedRun, result: SpawnResult) -> None:
        run.phase = RunPhase.RUNNING
        run.pid, run.start_time, run.is_pid_trusted = result.pid, result.start_time, True
        if not result.has_cgroup:
            run.cgroup = ""
        self._children[result.pid] = run
        line = run.started_line(has_cgroup=result.has_cgroup)
        if run.step is not RunStep.FINISH:
            self._record(line)
        if not run.step.is_internal:
            self.send_line(line, within=START_REPORT_DELAY)
        self._arm_limits(run)
        if run.is_finish_interrupted or (run.ended_by is not None and run.step is not RunStep.FINISH):
            self.terminator.terminate(run)  # stopped while it was starting
        if run.step is RunStep.MAIN:
            for signal_number in run.pending_signals:
                self.terminator.forward_signal(run, signal_number)
            run.pending_signals.clear()

    def _arm_limits(self, run: SupervisedRun) -> None:
        if run.step is not RunStep.FINISH:
            self.time_limits.arm(run, has_output=run.step is not RunStep.SET_UP)
        if run.workspace is None:
            return
        if run.step is RunStep.MAIN:
            run.workspace.has_run = True
        if run.step.is_internal:
            run.watchdog = self._loop.call_at(
                time.monotonic() + run.workspace.limit, lambda: self._terminate_overdue(run)
            )

    def _terminate_overdue(self, run: SupervisedRun) -> None:
        """Terminate a workspace step that exceeds its limit. The step enforces its own limit; this one is the
        backstop."""
        write_log(f"{protocol.run_tag(run.number)}: the workspace step takes too long; terminating it")
        self.terminator.terminate(run)

    def _handle_exit(self, run: SupervisedRun, status: os.waitid_result) -> None:
        run.phase = RunPhase.CLEARING
        if run.watchdog is not None:
            run.watchdog.cancel()
        has_exited = status.si_code == os.CLD_EXITED
        has_succeeded = has_exited and status.si_status == 0
        if run.step is RunStep.FINISH:
            if not has_succeeded:
                self._record_workspace_error(
                    run, log_files.read_tail(run.directory, log_files.WORKSPACE).strip() or _describe_exit(status)
                )
            return
        if run.ended_by is None and run.step is RunStep.SET_UP:
            self._handle_set_up_exit(run, status.si_status if has_exited else -1)
            return
        if run.ended_by is None and run.step is RunStep.CHECK and not has_succeeded:
            return  # not skipped: the main process comes next
        self._record_exit(
            run,
            code=status.si_status if has_exited else None,
            signal_number=None if has_exited else status.si_status,
            skip_reason=log_files.read_skip_reason(run.directory)
            if run.step is RunStep.CHECK and run.ended_by is None
            else None,
        )

    def _handle_set_up_exit(self, run: SupervisedRun, code: int) -> None:
        """Continue in the directory that the setup reports, or fail the start of the run."""
        launch = run.launch
        if launch is None or launch.workspace is None:
            return
        try:
            launch.cwd = launch.workspace.load_state(run.directory, code)
        except (ValueError, KeyError, TypeError, OSError) as error:
            run.error = f"the workspace could not be set up: {protocol.replace_invalid_utf8(str(error))}"
            run.is_machine_failure = code == MACHINE_FAILURE_EXIT_CODE

    def _record_exit(
        self,
        run: SupervisedRun,
        *,
        code: int | None,
        signal_number: int | None,
        skip_reason: str | None = None,
        is_observed: bool = True,
        is_verified: bool = True,
    ) -> None:
        """Record the exit. It is reported once it is recorded and no process of the run is left."""
        self.time_limits.disarm(run)
        run.end_line = protocol.encode_message(
            type="exited",
            run=run.number,
            at=time.time(),
            code=code,
            signal=signal_number,
            ended_by=run.ended_by,
            skip_reason=skip_reason,
            tail="" if code == 0 else log_files.read_tail(run.directory),
            is_observed=is_observed,
            is_verified=is_verified,
        )
        run.has_succeeded = code == 0 and run.ended_by is None and skip_reason is None and is_observed
        run.is_end_recorded = self._record(run.end_line)
        if not run.is_end_recorded:
            self._unrecorded_runs.append(run)
            self._report_error()

    def _handle_cleared(self, run: SupervisedRun) -> None:
        error, run.error = run.error, None
        if error is not None and run.ended_by is None:
            self._handle_spawn_failure(run, error, is_machine_failure=run.is_machine_failure)
            return
        if run.end_line is None and run.ended_by is not None:  # stopped between two of its steps
            self._record_exit(run, code=None, signal_number=int(signal.SIGTERM))
        if run.end_line is None and run.launch is not None:
            self._start_step(run, run.launch, run.launch.next_step(run.step))
        elif not self._start_finish(run):
            self._finish_run(run)

    def _start_step(self, run: SupervisedRun, launch: RunLaunch, step: RunStep) -> None:
        run.kill_at = None
        run.advance(step, launch)
        if step is RunStep.FINISH:
            self._record(run.step_line())
        else:
            try:
                self._journal.record_or_raise(run.step_line())
            except OSError as error:  # a successor would attribute the new process to the previous step
                self._handle_spawn_failure(run, _describe_journal_error(error), is_machine_failure=True)
                return
        self._spawner.submit(run.number, launch, step)

    def _start_finish(self, run: SupervisedRun) -> bool:
        """Start the step that finishes the workspace before the exit is reported. Return False if none is needed."""
        launch, run.launch = run.launch, None
        if launch is None or launch.workspace is None or not launch.workspace.needs_finish:
            return False
        self._start_step(run, launch, RunStep.FINISH)
        return True

    def _record_workspace_error(self, run: SupervisedRun, error: str) -> None:
        """Add a workspace failure to the exit report. The result of the run stands."""
        write_log(f"{protocol.run_tag(run.number)}: the workspace was not finished: {error}")
        if run.end_line is not None:
            end = {
                **protocol.parse_message(run.end_line),
                "workspace_error": f"the workspace was not finished: {protocol.replace_invalid_utf8(error)}",
            }
            run.end_line, run.has_succeeded = protocol.encode_message(**end), False
            self._record(run.end_line)

    def _handle_spawn_failure(self, run: SupervisedRun, error: str, *, is_machine_failure: bool = False) -> None:
        if run.step is RunStep.FINISH:
            self._record_workspace_error(run, error)
            self._finish_run(run)
            return
        self._record_start_failure(run, error, is_machine_failure=is_machine_failure)

    def _record_start_failure(
        self, run: SupervisedRun, error: str, *, is_machine_failure: bool, is_journaled: bool = True
    ) -> None:
        """Report a failure to start, even if it cannot be recorded: no process can be lost. A successor that does not
        know the run does not need its exit."""
        self.time_limits.disarm(run)
        run.end_line = protocol.encode_message(
            type="failed_to_start", run=run.number, error=error, is_machine_failure=is_machine_failure
        )
        run.is_end_recorded = True
        if is_journaled:
            self._record(run.end_line)
        if not self._start_finish(run):
            self._finish_run(run)

    def _finish_run(self, run: SupervisedRun) -> None:
        run.phase = RunPhase.ENDED
        if run.is_inherited:
            cgroup.remove_inherited(run.cgroup)
        else:
            cgroup.remove(run.cgroup)
        if run.step is RunStep.FINISH:
            self._record(run.finished_line())
        self._report_end(run)

    def _report_end(self, run: SupervisedRun) -> None:
        if run.is_end_recorded and run.end_line is not None:
            self.live_runs.discard(run.number)
            self.prefetch.report_end(run.end_line, has_succeeded=run.has_succeeded)

    def _report_error(self) -> None:
        names = [protocol.run_tag(run.number) for run in self._unrecorded_runs]
        error = self._journal.error
        self.error = (
            f"{_describe_journal_error(error)}; exits not reported until then: {_join_names(names)}" if error else None
        )
        self.send_line(protocol.encode_message(type="failure", error=self.error))

    def _record(self, line: bytes) -> bool:
        is_written = self._journal.record(line)
        if not is_written:
            self.prefetch.end_series()
            self._loop.call_at(time.monotonic() + JOURNAL_RETRY_INTERVAL, self._retry_journal)
        elif self._journal.needs_rewrite:
            self.rewrite()
        return is_written

    def _retry_journal(self) -> None:
        if not self._journal.has_backlog and not self._unrecorded_runs:
            return
        if not self._journal.flush_backlog():
            self._loop.call_at(time.monotonic() + JOURNAL_RETRY_INTERVAL, self._retry_journal)
            return
        write_log("the journal can be written again")
        recorded, self._unrecorded_runs = self._unrecorded_runs, []
        self._report_error()
        for run in recorded:
            run.is_end_recorded = True
            if run.phase is RunPhase.ENDED:
                self._report_end(run)


def _has_reportable_process(run: SupervisedRun) -> bool:
    """Return whether the process of the run is reported. A process before the command belongs to the supervisor that
    started it, and ends with it."""
    return (
        run.phase is RunPhase.RUNNING
        and not run.step.is_internal
        and not (run.is_inherited and run.step is RunStep.CHECK)
    )


def _discard_line(_line: bytes, *, within: float = 0.0) -> None:  # noqa: ARG001 - the signature of `SendLine`
    return


def _peek_exited_child() -> os.waitid_result | None:
    """Return the status of a child that has ended and is not reaped."""
    try:
        return os.waitid(os.P_ALL, 0, _PEEK_FLAGS)
    except ChildProcessError:
        return None


def _describe_exit(status: os.waitid_result) -> str:
    is_machine = status.si_code == os.CLD_EXITED and status.si_status == MACHINE_FAILURE_EXIT_CODE
    return "the disk is full" if is_machine else "it was terminated before it was done"


def _join_names(names: list[str]) -> str:
    return ", ".join(names[:_MAX_NAMED_RUNS]) + (
        f" and {len(names) - _MAX_NAMED_RUNS} more" if len(names) > _MAX_NAMED_RUNS else ""
    )


def _describe_journal_error(error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "disk full: the supervisor's journal cannot be written"
    return f"the supervisor's journal cannot be written: {error.strerror or error}"

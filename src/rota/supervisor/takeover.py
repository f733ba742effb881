"""Takeover of the journal, and possibly the children, of a lost supervisor.

    journal                 same boot, and /proc               action
    exited, failed          a process carries its tag          end it, report the exit
    started                 pid and start time match           watch by pidfd until it ends: exit status unknown
    started                 they do not match                  exit status unknown, exit not observed
    starting only           a session leader carries its tag   as started
    starting only           none does                          exit status unknown, exit not observed
    anything open           (another boot)                     exit status unknown, exit not observed

    in a step before the command: end it in any case; the command never started
    an exit, or the command is gone, and a worktree: finish the worktree, then report the exit

The exit status itself is lost: only a parent gets it, and the parent is dead. A predecessor killed between vfork and
exec leaves a child without its tag. But such a child still shares the predecessor's lock, so this process gets the lock
only after the child has reached its exec; and while it is inside the exec, the scan is repeated.
"""

from __future__ import annotations

import os
import time

from rota.supervisor import process
from rota.supervisor.child_manager import ChildManager
from rota.supervisor.event_loop import EventLoop
from rota.supervisor.log import write_log
from rota.supervisor.process import Process
from rota.supervisor.run import RunPhase, SupervisedRun
from rota.supervisor.tree import MAX_UNCERTAIN_SCANS, RECHECK_INTERVAL, ProcessTree


def adopt_runs(child_manager: ChildManager, tree: ProcessTree, loop: EventLoop, boot: str) -> None:
    """Settle every run of the journal, then rewrite the journal."""
    if not child_manager.runs:
        return
    for run in child_manager.runs.values():
        run.is_pid_trusted = run.boot == boot and _is_alive(run)
        # Ended runs are scanned too: the predecessor may have died while it was clearing their trees.
        run.phase = RunPhase.CLEARING if run.end_line is not None else RunPhase.STARTING
        child_manager.live_runs.add(run.number)
    processes = _find_processes(tree)
    for run in list(child_manager.runs.values()):
        _settle_run(run, processes.get(run.number, []) if run.boot == boot else [], child_manager, loop)
    child_manager.rewrite()


def _find_processes(tree: ProcessTree) -> dict[int, list[Process]]:
    """Return the live processes of all runs. Waits for processes inside an exec, which is fine before clients
    connect."""
    for _ in range(MAX_UNCERTAIN_SCANS):
        processes = tree.processes_by_run()
        if tree.is_certain:
            break
        time.sleep(RECHECK_INTERVAL)
    return processes


def _settle_run(run: SupervisedRun, processes: list[Process], child_manager: ChildManager, loop: EventLoop) -> None:
    if run.end_line is None:
        if run.pid is None:
            _identify_main_process(run, processes)
        if run.is_pid_trusted and _watch_main_process(run, child_manager, loop):
            if run.step.is_before_main:
                child_manager.terminator.terminate(run)  # on TERM it removes a half-created workspace
            else:
                write_log(f"run-{run.number} continues as process {run.pid}; its exit status will be unknown")
            return
        child_manager.record_lost_process(run, is_observed=False)
    if run.workspace is not None:
        run.workspace.may_have_finished = True
    child_manager.terminator.clear_tree(run, processes)


def _is_alive(run: SupervisedRun) -> bool:
    main = process.read_process(run.pid) if run.pid is not None else None
    return main is not None and not main.is_gone and main.start_time == run.start_time


def _identify_main_process(run: SupervisedRun, processes: list[Process]) -> None:
    """Identify the main process of a run whose pid was not recorded: the oldest session leader. A leader that an ended
    main process left behind cannot be distinguished from it, and ending the main process would be worse."""
    leaders = sorted((member.start_time, member.pid) for member in processes if member.session == member.pid)
    if leaders:
        run.start_time, run.pid = leaders[0]
        run.is_pid_trusted = True


def _watch_main_process(run: SupervisedRun, child_manager: ChildManager, loop: EventLoop) -> bool:
    if run.pid is None or run.start_time is None:
        return False
    fd = process.open_pidfd(run.pid, run.start_time)
    if fd is None:
        run.is_pid_trusted = False
        return False

    def handle_exit() -> None:
        if run.phase is RunPhase.RUNNING and not _is_alive(run):
            loop.unwatch(fd)
            os.close(fd)
            child_manager.record_lost_process(run, is_observed=True)
            child_manager.terminator.clear_tree(run)

    loop.watch(fd, handle_exit)
    child_manager.adopt(run)
    return True

"""Termination of a run's process tree: TERM, then KILL, until no process is left.

    stop, timeout ─► terminate ─► TERM to the whole tree ─► main process ends ─┐
                        └─ kill_after expires ─► KILL to the whole tree ───────┤
    the main process ends by itself ───────────────────────────────────────────┴─► clear
                                                                                     │
       nothing left ◄── scan ◄── last one gone (pidfd) ◄── TERM, KILL when due ◄─────┘

There is no polling: each signaled process is watched by its pidfd, and when the last of them is gone the tree is
scanned again, since they may have forked meanwhile. Between TERM and KILL the main process may start helpers to clean
up after itself; they are not signaled until it is gone or `kill_after` expires. A process that survives KILL (stuck in
the kernel) keeps its run alive, because it still holds its resources.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

from rota.executor.supervisor import cgroup, process
from rota.executor.supervisor.event_loop import EventLoop
from rota.executor.supervisor.log import write_log
from rota.executor.supervisor.process import Process
from rota.executor.supervisor.run import RunPhase, SupervisedRun
from rota.executor.supervisor.tree import ProcessTree

KILL_RETRY_INTERVAL = 1.0
RECHECK_INTERVAL = 0.02
MAX_UNCERTAIN_SCANS = 50
"""A program that hangs in its exec, for example on a dead mount, must not delay the end of every other run forever."""


class TreeTerminator:
    def __init__(self, loop: EventLoop, tree: ProcessTree, on_cleared: Callable[[SupervisedRun], None]) -> None:
        self._loop = loop
        self._tree = tree
        self._on_cleared = on_cleared

    def terminate(self, run: SupervisedRun) -> None:
        """Ask the whole tree to end. The main process is alive."""
        self._schedule_kill(run)
        self._signal_tree(run, signal.SIGTERM)

    def forward_signal(self, run: SupervisedRun, signal_number: int) -> None:
        """Send a signal to the main process and its process group, like a terminal does. The main process is alive."""
        if not run.is_inherited and run.pid is not None:
            process.signal_group(run.pid, signal_number)
            return
        for member in self._tree.processes_of(run):
            fd = process.open_pidfd(member.pid, member.start_time) if member.group == run.pid else None
            if fd is not None:
                process.send_signal(fd, signal_number)
                os.close(fd)

    def clear_tree(self, run: SupervisedRun, remaining: list[Process] | None = None) -> None:
        """End the processes that the reaped main process left behind, then report that the tree is clear."""
        if run.phase is not RunPhase.CLEARING:
            return
        if remaining is None and _needs_process_scan(run):
            remaining = self._tree.processes_of(run)
            if not remaining and not self._tree.is_certain and run.uncertain_scans < MAX_UNCERTAIN_SCANS:
                run.uncertain_scans += 1
                self._loop.call_at(time.monotonic() + RECHECK_INTERVAL, lambda: self.clear_tree(run))
                return
        if not remaining:
            self._finish(run)
            return
        self._schedule_kill(run)
        number = signal.SIGKILL if self._is_overdue(run) else signal.SIGTERM
        watched = {victim.identity for victim in run.victims.values()}
        for member in remaining:
            if member.identity not in watched or number == signal.SIGKILL:
                self._signal_member(run, member, number)
        self._recheck_unwatched(run, remaining)

    def _recheck_unwatched(self, run: SupervisedRun, remaining: list[Process]) -> None:
        watched = {victim.identity for victim in run.victims.values()}
        if not all(member.identity in watched for member in remaining):
            # It is gone, or no descriptor is available: check again soon.
            self._loop.call_at(time.monotonic() + RECHECK_INTERVAL, lambda: self.clear_tree(run))

    def _signal_tree(self, run: SupervisedRun, signal_number: int) -> None:
        group = run.pid if run.phase is RunPhase.RUNNING and not run.is_inherited else None
        others = [member for member in self._tree.processes_of(run) if member.group != group]
        if group is not None:
            # Atomically, including processes that are being forked at this moment.
            process.signal_group(group, signal_number)
        for member in others:
            fd = process.open_pidfd(member.pid, member.start_time)
            if fd is not None:
                process.send_signal(fd, signal_number)
                os.close(fd)

    def _signal_member(self, run: SupervisedRun, member: Process, signal_number: int) -> None:
        """Signal a remaining process and watch it until it is gone."""
        fd = next((fd for fd, victim in run.victims.items() if victim.identity == member.identity), None)
        if fd is None:
            try:
                fd = process.open_pidfd(member.pid, member.start_time)
            except OSError as error:
                write_log(f"{_describe_process(run, member)} cannot be watched: {error.strerror}")
                return
            if fd is None:
                return
            run.victims[fd] = member
            self._loop.watch(fd, lambda: self._handle_victim_exit(run, fd))
        is_first = member.identity not in run.term_sent
        if signal_number == signal.SIGKILL or is_first:
            run.term_sent.add(member.identity)
            if not process.send_signal(fd, signal_number) and is_first:
                write_log(
                    f"{_describe_process(run, member)} cannot be signaled (permission denied); waiting until it ends"
                )

    def _handle_victim_exit(self, run: SupervisedRun, fd: int) -> None:
        if fd not in run.victims:
            return
        self._release(run, fd)
        if not run.victims:
            self.clear_tree(run)

    def _schedule_kill(self, run: SupervisedRun) -> None:
        """Schedule the kill once per run: the time that began with TERM to the main process also applies to the
        processes it leaves behind."""
        if run.kill_at is None:
            run.kill_at = time.monotonic() + run.kill_after
        if run.kill_timer is None:
            run.kill_timer = self._loop.call_at(run.kill_at, lambda: self._kill(run))

    def _is_overdue(self, run: SupervisedRun) -> bool:
        return run.kill_at is not None and time.monotonic() >= run.kill_at

    def _kill(self, run: SupervisedRun) -> None:
        run.kill_timer = self._loop.call_at(time.monotonic() + KILL_RETRY_INTERVAL, lambda: self._kill(run))
        if run.phase is RunPhase.RUNNING:
            self._signal_tree(run, signal.SIGKILL)
        else:
            self.clear_tree(run)

    def _finish(self, run: SupervisedRun) -> None:
        for fd in list(run.victims):
            self._release(run, fd)
        run.term_sent.clear()
        run.uncertain_scans = 0
        if run.kill_timer is not None:
            run.kill_timer.cancel()
            run.kill_timer = None
        self._on_cleared(run)

    def _release(self, run: SupervisedRun, fd: int) -> None:
        del run.victims[fd]
        self._loop.unwatch(fd)
        os.close(fd)


def _needs_process_scan(run: SupervisedRun) -> bool:
    """Return whether `/proc` must be scanned. A few system calls rule it out in the common case.

    Once the main process is reaped, every remaining process of its tree is a stray of this supervisor or a descendant
    of one. That does not hold for a run that a predecessor started.
    """
    if run.is_inherited or run.pid is None:
        return True
    return process.has_strays() or process.has_group(run.pid) or not cgroup.remove(run.cgroup)


def _describe_process(run: SupervisedRun, member: Process) -> str:
    return f"process {member.pid} of run-{run.number}"

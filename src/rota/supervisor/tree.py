"""Process tree of a run: the assignment of processes to runs, and the termination of a tree.

    supervisor ─┬─ main of run-7 (session 100) ─┬─ worker                  session 100      run-7
                │                               └─ setsid tool             parent is run-7  run-7
                ├─ daemon that forked twice, environ ROTA_RUN=run-7        tag              run-7
                │    └─ env -i helper                                      parent is run-7  run-7
                ├─ no evidence, and only one run can have left it                           that run
                └─ no evidence, and several runs can have left it                           left alone until one can

The first match decides: the session, the process group, the tag in the environment the process was started with (run
and home, because another home may have a run-7 too), then the same checks for its parent, then its cgroup, if runs have
one. A process that another run has a claim to is therefore never assigned to this run. A scheduler that a job has
started, of this home or another, belongs to no run, and neither do its descendants.

The number of a session is not reused while it has a member. So if a process with the main process's pid but another
start time exists, no old member exists, and the number means nothing anymore.

A tree is terminated by TERM, then KILL, until no process is left:

    stop, timeout ─► terminate ─► TERM to the whole tree ─► main process ends ─┐
                        └─ kill_after expires ─► KILL to the whole tree ───────┤
    the main process ends by itself ───────────────────────────────────────────┴─► clear_tree
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
from collections.abc import Callable, Iterable

from rota.supervisor import cgroup, process
from rota.supervisor.event_loop import EventLoop
from rota.supervisor.log import write_log
from rota.supervisor.process import Process
from rota.supervisor.protocol import HOME_VARIABLE, RUN_VARIABLE, run_tag
from rota.supervisor.run import RunPhase, SupervisedRun

_KILL_RETRY_INTERVAL = 1.0
RECHECK_INTERVAL = 0.02
MAX_UNCERTAIN_SCANS = 50
"""A program that hangs in its exec, for example on a dead mount, must not delay the end of every other run forever."""
_RUN_VARIABLE_PREFIX = os.fsencode(f"{RUN_VARIABLE}={run_tag(0)}"[:-1])
_HOME_VARIABLE_PREFIX = os.fsencode(f"{HOME_VARIABLE}=")


class ProcessTree:
    """Assignment of the processes of the machine to the live runs."""

    def __init__(self, runs: dict[int, SupervisedRun], home: str) -> None:
        self._runs = runs
        self._home_variable = os.fsencode(f"{HOME_VARIABLE}={home}")
        self._supervisor_pid = os.getpid()
        # Before its exec a new child still shows this process's own environment: a tag in there means nothing.
        self._own_run_variable = os.fsencode(f"{RUN_VARIABLE}={os.environ.get(RUN_VARIABLE, '')}")
        self._unattributed: set[tuple[int, int]] = set()
        self.scheduler_pids: set[int] = set()
        self.is_certain = True
        """Whether the last scan found no process inside an exec, where the tag is unreadable for a moment."""

    def processes_of(self, run: SupervisedRun) -> list[Process]:
        """Return the live processes of this run, including its main process."""
        return self.processes_by_run().get(run.number, [])

    def processes_by_run(self) -> dict[int, list[Process]]:
        live = {number: run for number, run in self._runs.items() if run.phase is not RunPhase.ENDED}
        # Read before the processes: a member that has exited since may have forked.
        members = {number: cgroup.members(run.cgroup) for number, run in live.items()}
        processes = process.read_all_processes()
        owners = _OwnerResolver(self, processes, live)
        # Only processes that a predecessor started can be outside this process's descendants.
        has_inherited = any(run.is_inherited for run in live.values())
        self.is_certain = True
        by_run: dict[int, list[Process]] = {}
        for pid in processes if has_inherited else _descendants(self._supervisor_pid, processes.values()):
            candidate = processes[pid]
            if candidate.is_gone or pid == self._supervisor_pid:
                continue
            owner = owners.owner_of(pid)
            if owner is not None:
                by_run.setdefault(owner, []).append(candidate)
            elif process.is_in_exec(candidate):
                self.is_certain = False
            elif (
                candidate.parent == self._supervisor_pid
                and pid not in self.scheduler_pids
                and not self._belongs_to_other_home(pid)
                and not any(pid in ids for ids in members.values())
            ):
                self._attribute_stray(candidate, list(live.values()), by_run)
        for number, ids in members.items():
            alive = [processes[pid] for pid in ids if pid in processes and not processes[pid].is_gone]
            if ids and not alive and live[number].phase is not RunPhase.STARTING:
                self.is_certain = False  # all members are gone, and may have forked before
            for member in alive:
                if owners.owner_of(member.pid) is None and not self._has_job_scheduler(member, processes):
                    by_run.setdefault(number, []).append(member)
        return by_run

    def _has_job_scheduler(self, candidate: Process, processes: dict[int, Process]) -> bool:
        """Return whether the process is, or descends from, a scheduler that a job has started."""
        seen: set[int] = set()
        while candidate.pid not in seen:
            if candidate.pid == self._supervisor_pid:
                return not seen
            if candidate.pid in self.scheduler_pids or self._belongs_to_other_home(candidate.pid):
                return True
            seen.add(candidate.pid)
            candidate = processes.get(candidate.parent, candidate)
        return False

    def _belongs_to_other_home(self, pid: int) -> bool:
        """Return whether the process declares that it belongs to another home: a scheduler that a job has started."""
        return any(
            variable.startswith(_HOME_VARIABLE_PREFIX) and variable != self._home_variable
            for variable in process.read_environment(pid)
        )

    def _attribute_stray(self, stray: Process, live: list[SupervisedRun], members: dict[int, list[Process]]) -> None:
        """Assign a process that has left its session and its environment. It ends with the last run that can have left
        it."""
        if any(run.phase is RunPhase.STARTING for run in live):
            self.is_certain = False  # it may be the child that is being started
            return
        candidates = [run for run in live if run.start_time is not None and run.start_time <= stray.start_time]
        if len(candidates) == 1:
            members.setdefault(candidates[0].number, []).append(stray)
        elif stray.identity not in self._unattributed:
            self._unattributed.add(stray.identity)
            write_log(
                f"process {stray.pid} was left behind by one of {len(candidates)} runs; it ends with the last of them"
            )

    def tagged_run(self, pid: int, live: dict[int, SupervisedRun]) -> int | None:
        """Return the run whose tag the process carries, if it is one of `live`."""
        variables = process.read_environment(pid)
        if self._home_variable not in variables:
            return None
        for variable in variables:
            if variable.startswith(_RUN_VARIABLE_PREFIX) and variable != self._own_run_variable:
                number = variable.removeprefix(_RUN_VARIABLE_PREFIX)
                return int(number) if number.isdigit() and int(number) in live else None
        return None

    def is_excluded(self, pid: int) -> bool:
        return pid == self._supervisor_pid or pid in self.scheduler_pids


class _OwnerResolver:
    """Owners of the processes of one scan, each resolved once."""

    def __init__(self, tree: ProcessTree, processes: dict[int, Process], live: dict[int, SupervisedRun]) -> None:
        self._tree = tree
        self._processes = processes
        self._live = live
        self._sessions = {run.pid: run.number for run in live.values() if _owns_session(run, processes)}
        self._owners: dict[int, int | None] = {}

    def owner_of(self, pid: int) -> int | None:
        path = []
        owner = None
        while owner is None and pid in self._processes and not self._tree.is_excluded(pid):
            if pid in self._owners:
                owner = self._owners[pid]
                break
            self._owners[pid] = None  # a pid reused during the scan could create a cycle
            path.append(pid)
            owner = self._direct_owner(self._processes[pid])
            pid = self._processes[pid].parent
        for visited in path:
            self._owners[visited] = owner
        return owner

    def _direct_owner(self, member: Process) -> int | None:
        for number in (member.session, member.group):
            if number in self._sessions:
                return self._sessions[number]
        return self._tree.tagged_run(member.pid, self._live)


def _owns_session(run: SupervisedRun, processes: dict[int, Process]) -> bool:
    if run.pid is None or not run.is_pid_trusted:
        return False
    holder = processes.get(run.pid)
    return holder is None or holder.start_time == run.start_time


def _descendants(root: int, processes: Iterable[Process]) -> list[int]:
    children: dict[int, list[int]] = {}
    for member in processes:
        children.setdefault(member.parent, []).append(member.pid)
    descendants = list(children.get(root, ()))
    for pid in descendants:  # grows during the iteration
        descendants.extend(children.get(pid, ()))
    return descendants


class TreeTerminator:
    """Termination of the trees of runs, by signals and pidfds."""

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
        run.kill_timer = self._loop.call_at(time.monotonic() + _KILL_RETRY_INTERVAL, lambda: self._kill(run))
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

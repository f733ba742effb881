"""How a run's tree ends: TERM, then KILL, then nothing is left.

    stop, timeout ─► terminate ─► TERM to the whole tree ─► main process ends ─┐
                        └─ kill_after over ─► KILL to the whole tree ──────────┤
    the main process ends by itself ───────────────────────────────────────────┴─► clear
                                                                                     │
       nothing left ◄── look ◄── last one gone (pidfd) ◄── TERM, KILL when due ◄─────┘

Nothing is polled: each process that was signalled is watched by its pidfd, and when the last of them is gone
the tree is looked at again, since they may have forked meanwhile. Between TERM and KILL the main process may
start helpers to clean up after itself; they are left in peace until it is gone or its time is over.
Whatever survives KILL (a process stuck in the kernel) keeps its run alive: it does hold what it holds.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

from rota.executor.supervisor import process
from rota.executor.supervisor.log import say
from rota.executor.supervisor.loop import Loop
from rota.executor.supervisor.process import Process
from rota.executor.supervisor.run import Phase, Run
from rota.executor.supervisor.tree import Tree

KILL_AGAIN = 1.0
LOOK_AGAIN = 0.02
MOST_DOUBTS = 50
"""A program that hangs in its exec, on a dead mount perhaps, must not hold up every other run's end for ever."""


class Ending:
    def __init__(self, loop: Loop, tree: Tree, when_clear: Callable[[Run], None]) -> None:
        self._loop = loop
        self._tree = tree
        self._when_clear = when_clear

    def terminate(self, run: Run) -> None:
        """The main process lives: tell all of its tree to end."""
        self._set_kill_at(run)
        self._signal_tree(run, signal.SIGTERM)

    def pass_on(self, run: Run, number: int) -> None:
        """The main process lives: it and what it has in its group get this signal, as from a terminal."""
        if not run.inherited and run.pid is not None:
            process.send_group(run.pid, number)
            return
        for each in self._tree.of(run):
            fd = process.handle(each.pid, each.start_time) if each.group == run.pid else None
            if fd is not None:
                process.send(fd, number)
                os.close(fd)

    def clear(self, run: Run, left: list[Process] | None = None) -> None:
        """The main process is gone, and reaped: end what it left behind, then say so."""
        if run.phase is not Phase.CLEARING:
            return
        if left is None and _shows_something(run):
            left = self._tree.of(run)
            if not left and not self._tree.is_certain and run.doubts < MOST_DOUBTS:
                run.doubts += 1
                self._loop.at(time.monotonic() + LOOK_AGAIN, lambda: self.clear(run))
                return
        if not left:
            self._finish(run)
            return
        self._set_kill_at(run)
        number = signal.SIGKILL if self._is_overdue(run) else signal.SIGTERM
        watched = {victim.identity for victim in run.victims.values()}
        for each in left:
            if each.identity not in watched or number == signal.SIGKILL:
                self._signal(run, each, number)
        self._watch_the_rest(run, left)

    def _watch_the_rest(self, run: Run, left: list[Process]) -> None:
        watched = {victim.identity for victim in run.victims.values()}
        if not all(each.identity in watched for each in left):
            # Gone already, or no descriptor to be had: look again soon.
            self._loop.at(time.monotonic() + LOOK_AGAIN, lambda: self.clear(run))

    def _signal_tree(self, run: Run, number: int) -> None:
        group = run.pid if run.phase is Phase.RUNNING and not run.inherited else None
        others = [each for each in self._tree.of(run) if each.group != group]
        if group is not None:
            # At once and with what is being forked right now.
            process.send_group(group, number)
        for each in others:
            fd = process.handle(each.pid, each.start_time)
            if fd is not None:
                process.send(fd, number)
                os.close(fd)

    def _signal(self, run: Run, each: Process, number: int) -> None:
        """Signal one that is left, and watch it until it is gone."""
        fd = next((fd for fd, victim in run.victims.items() if victim.identity == each.identity), None)
        if fd is None:
            try:
                fd = process.handle(each.pid, each.start_time)
            except OSError as error:
                say(f"{_name(run, each)} cannot be watched: {error.strerror}")
                return
            if fd is None:
                return
            run.victims[fd] = each
            self._loop.watch(fd, lambda: self._victim_gone(run, fd))
        is_first = each.identity not in run.warned
        if number == signal.SIGKILL or is_first:
            run.warned.add(each.identity)
            if not process.send(fd, number) and is_first:
                say(f"{_name(run, each)} may not be signalled; waiting until it ends by itself")

    def _victim_gone(self, run: Run, fd: int) -> None:
        if fd not in run.victims:
            return
        self._release(run, fd)
        if not run.victims:
            self.clear(run)

    def _set_kill_at(self, run: Run) -> None:
        """Once for each run: what TERM began for the main process goes on for what it leaves behind."""
        if run.kill_at is None:
            run.kill_at = time.monotonic() + run.kill_after
        if run.kill_timer is None:
            run.kill_timer = self._loop.at(run.kill_at, lambda: self._kill(run))

    def _is_overdue(self, run: Run) -> bool:
        return run.kill_at is not None and time.monotonic() >= run.kill_at

    def _kill(self, run: Run) -> None:
        run.kill_timer = self._loop.at(time.monotonic() + KILL_AGAIN, lambda: self._kill(run))
        if run.phase is Phase.RUNNING:
            self._signal_tree(run, signal.SIGKILL)
        else:
            self.clear(run)

    def _finish(self, run: Run) -> None:
        for fd in list(run.victims):
            self._release(run, fd)
        run.warned.clear()
        run.doubts = 0
        if run.kill_timer is not None:
            run.kill_timer.cancel()
            run.kill_timer = None
        self._when_clear(run)

    def _release(self, run: Run, fd: int) -> None:
        del run.victims[fd]
        self._loop.forget(fd)
        os.close(fd)


def _shows_something(run: Run) -> bool:
    """Whether `/proc` has to be looked through: two system calls say no in the common case.

    Once the main process is reaped, all that is left of its tree is a stray of ours or below one. That does
    not hold for what a predecessor started.
    """
    if run.inherited or run.pid is None:
        return True
    return process.has_strays() or process.has_group(run.pid)


def _name(run: Run, each: Process) -> str:
    return f"process {each.pid} of run-{run.number}"

"""What a supervisor that was lost left behind: its journal, and perhaps its children.

    the journal says        same boot, and /proc says          then
    exited, failed          something carries its tag          end that, tell the end
    started                 pid and start time match           watch by pidfd until it ends: exit status unknown
    started                 they do not                        exit status unknown, and nobody saw it end
    starting only           a session leader carries its tag   as started
    starting only           none does                          exit status unknown, and nobody saw it end
    anything open           (another boot)                     exit status unknown, and nobody saw it end

    at what comes before the command: end that, whatever else is there; the command never began
    an end, or none but the command is gone, and a worktree: finish it, then tell the end

The exit status itself is gone: only a parent gets it, and the parent is dead. A predecessor killed between
vfork and exec leaves a child without its tag; but such a child still shares the predecessor's lock, so that
we are not here before it has gone on to its exec, and while it is inside that it is looked at again.
"""

from __future__ import annotations

import os
import time

from rota.executor.supervisor import process
from rota.executor.supervisor.ending import LOOK_AGAIN, MOST_DOUBTS
from rota.executor.supervisor.keeper import Keeper
from rota.executor.supervisor.log import say
from rota.executor.supervisor.loop import Loop
from rota.executor.supervisor.process import Process
from rota.executor.supervisor.run import Phase, Run
from rota.executor.supervisor.tree import Tree


def take_in(keeper: Keeper, tree: Tree, loop: Loop, boot: str) -> None:
    """Settle every run of the journal, then write a new one."""
    if not keeper.runs:
        return
    for run in keeper.runs.values():
        run.is_trusted = run.boot == boot and _is_alive(run)
        # Ends are looked through too: the predecessor may have died while it was clearing up.
        run.phase = Phase.CLEARING if run.end is not None else Phase.STARTING
        keeper.live.add(run.number)
    left = _look(tree)
    for run in list(keeper.runs.values()):
        _settle(run, left.get(run.number, []) if run.boot == boot else [], keeper, loop)
    keeper.rewrite()


def _look(tree: Tree) -> dict[int, list[Process]]:
    """What lives of all runs. Nobody is served yet, so a process inside its exec can be waited for."""
    for _ in range(MOST_DOUBTS):
        left = tree.of_all()
        if tree.is_certain:
            break
        time.sleep(LOOK_AGAIN)
    return left


def _settle(run: Run, left: list[Process], keeper: Keeper, loop: Loop) -> None:
    if run.end is None:
        if run.pid is None:
            _identify(run, left)
        if run.is_trusted and _watch(run, keeper, loop):
            if run.step.is_before_main:
                keeper.ending.terminate(run)  # as it is told by TERM, it undoes what it has half made
            else:
                say(f"run-{run.number} goes on as process {run.pid}; its exit status will not be known")
            return
        keeper.main_lost(run, watched=False)
    if run.workspace is not None:
        run.workspace.is_late = True
    keeper.ending.clear(run, left)


def _is_alive(run: Run) -> bool:
    found = process.look(run.pid) if run.pid is not None else None
    return found is not None and not found.is_gone and found.start_time == run.start_time


def _identify(run: Run, left: list[Process]) -> None:
    """The predecessor died before it could write the pid down: the oldest session leader is the main process. Or was
    left behind by one that has ended since: these two nothing can tell apart, and to end the first would be worse."""
    leaders = sorted((each.start_time, each.pid) for each in left if each.session == each.pid)
    if leaders:
        run.start_time, run.pid = leaders[0]
        run.is_trusted = True


def _watch(run: Run, keeper: Keeper, loop: Loop) -> bool:
    if run.pid is None or run.start_time is None:
        return False
    fd = process.handle(run.pid, run.start_time)
    if fd is None:
        run.is_trusted = False
        return False

    def ended() -> None:
        if run.phase is Phase.RUNNING and not _is_alive(run):
            loop.forget(fd)
            os.close(fd)
            keeper.main_lost(run, watched=True)
            keeper.ending.clear(run)

    loop.watch(fd, ended)
    keeper.inherit(run)
    return True

"""Which processes belong to which run.

    supervisor ─┬─ main of run-7 (session 100) ─┬─ worker                  session 100      run-7
                │                               └─ setsid tool             parent is run-7  run-7
                ├─ daemon that forked twice, environ ROTA_RUN=run-7        tag              run-7
                │    └─ env -i helper                                      parent is run-7  run-7
                ├─ nothing says where it is from, one run can have left it                  that run
                └─ several can have                                                         left alone, until one can

The first that answers decides: the session, the process group, the tag in the environment it was started
with (run and home: another home's run-7 is none of ours), then the same question about its parent. A process
that another run has a claim to is therefore never taken for this run's. The scheduler, should a job have
started it, and whatever it starts belong to nobody.

A session's number cannot be used again while any member is left. So where a process with the main's pid but
another start time exists, no old member does, and the number means nothing anymore.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from rota.executor.supervisor import process
from rota.executor.supervisor.log import say
from rota.executor.supervisor.process import Process
from rota.executor.supervisor.protocol import HOME_TAG, RUN_TAG, tag
from rota.executor.supervisor.run import Phase, Run

_RUN_TAG = os.fsencode(f"{RUN_TAG}={tag(0)}"[:-1])
_HOME_TAG = os.fsencode(f"{HOME_TAG}=")


class Tree:
    def __init__(self, runs: dict[int, Run], home: str) -> None:
        self._runs = runs
        self._home = os.fsencode(f"{HOME_TAG}={home}")
        self._me = os.getpid()
        # Before its exec a new child still shows our own environment: a tag in there says nothing.
        self._own_tag = os.fsencode(f"{RUN_TAG}={os.environ.get(RUN_TAG, '')}")
        self._strangers: set[tuple[int, int]] = set()
        self.schedulers: set[int] = set()
        self.is_certain = True
        """The last look saw nobody inside an exec, where a tag cannot be read for a moment."""

    def of(self, run: Run) -> list[Process]:
        """What lives of this run, its main process included."""
        return self.of_all().get(run.number, [])

    def of_all(self) -> dict[int, list[Process]]:
        live = {number: run for number, run in self._runs.items() if run.phase is not Phase.ENDED}
        everything = process.look_at_all()
        owners = _Owners(self, everything, live)
        # Only what a predecessor started can be anywhere else than below us.
        is_wide = any(run.inherited for run in live.values())
        self.is_certain = True
        found: dict[int, list[Process]] = {}
        for pid in everything if is_wide else _below(self._me, everything.values()):
            each = everything[pid]
            if each.is_gone or pid == self._me:
                continue
            owner = owners.of(pid)
            if owner is not None:
                found.setdefault(owner, []).append(each)
            elif process.is_in_exec(each):
                self.is_certain = False
            elif each.parent == self._me and pid not in self.schedulers and not self._is_elsewheres(pid):
                self._guess(each, list(live.values()), found)
        return found

    def _is_elsewheres(self, pid: int) -> bool:
        """It says of itself that it is another home's: a scheduler that a job has started."""
        return any(variable.startswith(_HOME_TAG) and variable != self._home for variable in process.variables(pid))

    def _guess(self, stray: Process, live: list[Run], found: dict[int, list[Process]]) -> None:
        """It has left its session and its environment behind. It ends with the last run that can have left it."""
        if any(run.phase is Phase.STARTING for run in live):
            self.is_certain = False  # it may be the very child that is being started
            return
        able = [run for run in live if run.start_time is not None and run.start_time <= stray.start_time]
        if len(able) == 1:
            found.setdefault(able[0].number, []).append(stray)
        elif stray.identity not in self._strangers:
            self._strangers.add(stray.identity)
            say(f"process {stray.pid} was left behind by one of {len(able)} runs; it ends with the last of them")

    def tagged(self, pid: int, live: dict[int, Run]) -> int | None:
        """The run whose tag the process carries, if it is one of these."""
        variables = process.variables(pid)
        if self._home not in variables:
            return None
        for variable in variables:
            if variable.startswith(_RUN_TAG) and variable != self._own_tag:
                number = variable.removeprefix(_RUN_TAG)
                return int(number) if number.isdigit() and int(number) in live else None
        return None

    def is_nobodys(self, pid: int) -> bool:
        return pid == self._me or pid in self.schedulers


class _Owners:
    """One look's answers, each worked out once."""

    def __init__(self, tree: Tree, everything: dict[int, Process], live: dict[int, Run]) -> None:
        self._tree = tree
        self._everything = everything
        self._live = live
        self._sessions = {run.pid: run.number for run in live.values() if _names_its_session(run, everything)}
        self._known: dict[int, int | None] = {}

    def of(self, pid: int) -> int | None:
        path = []
        owner = None
        while owner is None and pid in self._everything and not self._tree.is_nobodys(pid):
            if pid in self._known:
                owner = self._known[pid]
                break
            self._known[pid] = None  # a pid used again during the look could make a circle
            path.append(pid)
            owner = self._own(self._everything[pid])
            pid = self._everything[pid].parent
        for each in path:
            self._known[each] = owner
        return owner

    def _own(self, each: Process) -> int | None:
        for number in (each.session, each.group):
            if number in self._sessions:
                return self._sessions[number]
        return self._tree.tagged(each.pid, self._live)


def _names_its_session(run: Run, everything: dict[int, Process]) -> bool:
    if run.pid is None or not run.is_trusted:
        return False
    holder = everything.get(run.pid)
    return holder is None or holder.start_time == run.start_time


def _below(root: int, everything: Iterable[Process]) -> list[int]:
    children: dict[int, list[int]] = {}
    for each in everything:
        children.setdefault(each.parent, []).append(each.pid)
    below = list(children.get(root, ()))
    for pid in below:  # grows while it is walked
        below.extend(children.get(pid, ()))
    return below

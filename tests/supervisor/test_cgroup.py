"""Runs with their own cgroup: every process of a run is ended, even after its supervisor was replaced.

The tests need a cgroup in which this user may create others. Without one, the tests in `test_takeover.py` cover the
behavior.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rota.executor.port import ConnectionLoss
from rota.supervisor import cgroup
from tests.supervisor.rig import Fifo, Rig, ends_within, is_alive, open_rig
from tests.supervisor.test_takeover import replace_supervisor

MakeFifo = Callable[[str], Fifo]

ESCAPE = "(setsid env -i sh -c 'trap \"\" TERM; echo $$ > {channel}; exec sleep 1000' &) &"
"""Process with another parent, another session and no environment, which ignores TERM."""


@pytest.fixture
def rig(home: Path) -> Iterator[Rig]:
    with open_rig(home) as rig:
        if not rig.executor.has_cgroups:
            pytest.skip("no cgroup v2 in which this user may make cgroups")
        yield rig


def read_cgroup(pid: int) -> Path:
    name = next(line for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines() if line.startswith("0::"))
    mounts = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines() if " - cgroup2 " in line]
    return Path(mounts[0][4] + name.removeprefix("0::"))


def test_escaped_process_ends_after_its_supervisor_was_replaced(rig: Rig, make_fifo: MakeFifo) -> None:
    channel = make_fifo("channel")
    rig.start_shell(1, ESCAPE.format(channel=channel.path) + " exec sleep 1000", kill_after=0.1)
    pid, escaped = rig.wait_for_start(1).pid, channel.read_number()
    path = read_cgroup(pid)
    assert path == read_cgroup(escaped)
    assert path.name == "run-1"
    replace_supervisor(rig)
    rig.stop(1)
    end = rig.wait_for_exit(1)
    assert (end.ended_by, end.is_verified) == ("stop", True)
    assert not is_alive(escaped)
    assert not path.exists()


def test_escaped_process_ends_if_its_run_ended_unobserved(rig: Rig, make_fifo: MakeFifo) -> None:
    channel, gate = make_fifo("channel"), make_fifo("gate")
    rig.start_shell(1, ESCAPE.format(channel=channel.path) + f" read x < {gate.path}", kill_after=0.1)
    pid, escaped = rig.wait_for_start(1).pid, channel.read_number()
    rig.suspend_supervisor()
    gate.release()
    assert ends_within(pid)
    replace_supervisor(rig)
    end = rig.wait_for_exit(1)
    assert (end.is_observed, end.is_verified) == (False, True)
    assert not is_alive(escaped)


def test_exit_is_verified_after_its_cgroup_was_removed(rig: Rig, make_fifo: MakeFifo) -> None:
    """Any supervisor removes the empty cgroups of killed supervisors."""
    gate = make_fifo("gate")
    rig.start_shell(1, f"read x < {gate.path}")
    pid = rig.wait_for_start(1).pid
    path = read_cgroup(pid)
    rig.suspend_supervisor()
    gate.release()
    assert ends_within(pid)
    rig.kill_supervisor()
    cgroup.remove(str(path))
    assert not path.exists()
    rig.wait_for(ConnectionLoss)
    end = rig.wait_for_exit(1)
    assert (end.is_observed, end.is_verified) == (False, True)


def test_exit_is_not_verified_if_the_run_could_not_enter_its_cgroup(rig: Rig, make_fifo: MakeFifo) -> None:
    gate = make_fifo("gate")
    rig.start_shell(1, f"read x < {gate.path}")
    own = read_cgroup(rig.wait_for_start(1).pid).parent
    (own / "run-2").mkdir()  # of the domain type: a single thread may not enter it
    rig.start_shell(2, "exec sleep 1000")
    pid = rig.wait_for_start(2).pid
    assert read_cgroup(pid) == own
    replace_supervisor(rig)
    os.kill(pid, 9)
    assert not rig.wait_for_exit(2).is_verified
    gate.release()
    assert rig.wait_for_exit(1).is_verified


def test_escaped_process_ends_with_its_own_run_while_others_run(rig: Rig, make_fifo: MakeFifo) -> None:
    channel, gate = make_fifo("channel"), make_fifo("gate")
    rig.start_shell(2, "exec sleep 1000")
    other = rig.wait_for_start(2).pid
    rig.start_shell(1, ESCAPE.format(channel=channel.path) + f" read x < {gate.path}", kill_after=0.1)
    escaped = channel.read_number()
    path = read_cgroup(escaped)
    gate.release()
    assert rig.wait_for_exit(1).code == 0
    assert not is_alive(escaped)
    assert is_alive(other)
    assert not path.exists()


def test_supervisor_leaves_no_cgroup_behind(home: Path, rig: Rig) -> None:
    rig.start_shell(1, "exec sleep 1000")
    path = read_cgroup(rig.wait_for_start(1).pid)
    replace_supervisor(rig)
    own = read_cgroup(rig.executor.supervisor_pid)
    assert own.parent == path.parent.parent, "next to the cgroup of its predecessor, not inside"
    rig.stop(1)
    rig.wait_for_exit(1)
    assert not path.parent.exists()
    rig.acknowledge(1)
    rig.close()
    assert not own.exists()


def test_scheduler_started_by_a_job_outlives_it(rig: Rig, make_fifo: MakeFifo, tmp_path: Path) -> None:
    """It is in the job's cgroup and belongs to another home."""
    channel, gate = make_fifo("channel"), make_fifo("gate")
    other = f"setsid env -i PATH=$PATH ROTA_HOME={tmp_path / 'other'} sh -c 'echo $$ > {channel.path}; exec sleep 1000'"
    rig.start_shell(1, f"({other} &) & read x < {gate.path}")
    scheduler = channel.read_number()
    assert read_cgroup(scheduler).name == "run-1"
    gate.release()
    assert rig.wait_for_exit(1).code == 0
    try:
        assert is_alive(scheduler)
    finally:
        os.kill(scheduler, 9)


def test_exit_is_not_verified_without_cgroups(home: Path, make_fifo: MakeFifo) -> None:
    channel = make_fifo("channel")
    with open_rig(home, are_cgroups_enabled=False) as rig:
        assert not rig.executor.has_cgroups
        rig.start_shell(1, ESCAPE.format(channel=channel.path) + " exec sleep 1000", kill_after=0.1)
        escaped = channel.read_number()
        try:
            replace_supervisor(rig)
            rig.stop(1)
            end = rig.wait_for_exit(1)
            assert (end.ended_by, end.is_verified) == ("stop", False)
        finally:
            os.kill(escaped, 9)

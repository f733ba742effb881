"""Concurrent commands on a home without a scheduler."""

from __future__ import annotations

import pytest

from tests.e2e.rig import ChildControl, Rota, eventually

pytestmark = pytest.mark.executable


def test_twenty_concurrent_submits_start_one_scheduler(rota: Rota, children: ChildControl) -> None:
    """LESSONS Dispatch: two of two racers both won a claim, 2–7 of eight; 17 workers started for 4 items."""
    commands = [rota.spawn("submit", *children.immediate(f"job{number}")) for number in range(20)]
    results = [rota.finish(command) for command in commands]
    assert [result.code for result in results] == [0] * 20, results
    assert sorted(result.out for result in results) == sorted(f"job-{number}\n" for number in range(1, 21))
    for number in range(1, 21):
        assert rota.wait_for_end(f"job-{number}")["status"] == "COMPLETED"
    lines = children.read_available()
    assert sorted(lines) == sorted(f"job{number} {act}" for number in range(20) for act in ("begins", "ends"))
    assert all(lines[index].split()[0] == lines[index + 1].split()[0] for index in range(0, 40, 2)), "one at a time"
    pid = rota.scheduler_pid
    # Schedulers that lost the race may still be exiting.
    eventually(lambda: rota.schedulers() == [pid], description="one scheduler")
    assert (rota.home / "rota.log").read_text().count(f" serves {rota.home}\n") == 1


def test_concurrent_ups_start_one_scheduler(rota: Rota) -> None:
    """LESSONS Dispatch: two dispatcher threads after stop(timeout) and start()."""
    commands = [rota.spawn("--json", "up") for _ in range(8)]
    results = [rota.finish(command) for command in commands]
    assert [result.code for result in results] == [0] * 8, results
    pids = {result.json()["pid"] for result in results}
    assert len(pids) == 1
    eventually(lambda: set(rota.schedulers()) == pids, description="one scheduler")


def test_submit_during_down_starts_the_next_scheduler(rota: Rota, children: ChildControl) -> None:
    """A command that meets a stopping scheduler waits for its end and starts the next one."""
    rota.start()
    for number in range(3):
        stopping, submitting = rota.spawn("down"), rota.spawn("submit", *children.immediate(f"job{number}"))
        assert rota.finish(stopping).code == 0
        output = rota.finish(submitting)
        assert output.code == 0, output
        rota.wait(output.lines[0])
    assert len(children.read_available()) == 6

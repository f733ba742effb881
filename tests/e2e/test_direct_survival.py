"""§7, §6: the scheduler or its supervisor goes away under a direct execution, and its client comes back by itself."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from e2e.client import Client, all_free, ended, kill_client, slot, slots
from e2e.rig import Rota, Stage, ends_within, eventually, kill, lives

TELLS = "echo one; echo two >&2; echo $$ > {told}; read x < {gate}; echo three; echo four >&2; exit 9"


def pid_of(rota: Rota, name: str = "slot-1") -> int:
    pid: int = eventually(lambda: slot(rota, name)["pid"], what="its pid")
    return pid


def crash(rota: Rota) -> None:
    rota.crash()
    eventually(rota.schedulers, what="the scheduler, brought back by the client")
    rota.start()


def restart(rota: Rota) -> None:
    rota.ask("down", "--grace", "0s")
    rota.ask("up")


@pytest.fixture(params=[crash, restart], ids=["kill -9", "down and up"])
def goes(request: pytest.FixtureRequest) -> Callable[[Rota], None]:
    """The scheduler goes; after a crash nobody but the client itself brings it back."""
    chosen: Callable[[Rota], None] = request.param
    return chosen


def test_while_it_waits(rota: Rota, stage: Stage, goes: Callable[[Rota], None]) -> None:
    rota.start()
    job = rota.post(stage.actor("job"))
    assert stage.hear() == ["job begins"]
    rota.running(job)
    direct = Client(rota, *stage.actor("direct"))
    direct.says("slot-1: waiting on pool global (1/1)")
    queued = rota.post(stage.walk_on("queued"), priority=5)
    goes(rota)
    stage.release("job", 2)
    assert stage.hear(2) == ["job ends", "direct begins"], "it kept its place"
    assert rota.show(queued)["status"] == "QUEUED"
    stage.release("direct", 7)
    direct.end(7)
    assert rota.ended(job)["exit_code"] == 2
    assert rota.ended(queued)["status"] == "COMPLETED"
    assert slot(rota, "slot-1")["exit_code"] == 7
    assert slots(rota) == []
    assert rota.status()["recovery"]["slots_expired"] == 0


def test_while_it_runs(rota: Rota, stage: Stage, goes: Callable[[Rota], None]) -> None:
    """The output goes on without a gap and without a repeat."""
    rota.start()
    gate = stage.gate("gate")
    direct = Client(rota, "--", "sh", "-c", TELLS.format(told=stage.pipe, gate=gate))
    pid = int(stage.hear()[0])
    direct.prints("one\n")
    direct.says("two\n")
    queued = rota.post(stage.walk_on("queued"))
    for _ in range(2):
        goes(rota)
        assert lives(pid)
    stage.release("gate")
    said = direct.end(9)
    assert said.out == "one\nthree\n"
    assert [line for line in said.err.splitlines() if not line.startswith("rota: ")] == ["two", "four"]
    assert rota.ended(queued)["status"] == "COMPLETED"
    assert slot(rota, "slot-1")["pid"] == pid
    assert slots(rota) == []


def test_what_ended_while_nobody_was_there_has_its_real_exit_code(rota: Rota, stage: Stage) -> None:
    scheduler = rota.start()
    direct = Client(rota, "--", "sh", "-c", f"echo here; exec {' '.join(stage.actor('direct')[1:])}")
    assert stage.hear() == ["direct begins"]
    direct.prints("here")
    direct.send(signal.SIGSTOP)  # it cannot bring the scheduler back
    kill(scheduler)
    stage.release("direct", 11)
    assert stage.hear() == ["direct ends"]
    rota.start()
    assert ended(rota, "slot-1")["exit_code"] == 11
    direct.send(signal.SIGCONT)
    direct.end(11)


def test_stopped_on_purpose_it_waits_for_the_scheduler_and_says_so(rota: Rota, stage: Stage) -> None:
    rota.start()
    direct = Client(rota, *stage.actor("direct"))
    assert stage.hear() == ["direct begins"]
    rota.ask("down", "--grace", "0s")
    direct.says("slot-1 waits for the scheduler: the scheduler was stopped meanwhile")
    assert rota.schedulers() == [], "who stopped it meant it"
    rota.start()
    stage.release("direct", 3)
    direct.end(3)


def test_a_signal_while_there_is_no_scheduler_leaves_the_rest_to_the_next_one(rota: Rota, stage: Stage) -> None:
    """Nobody comes back for it, so it is withdrawn; 30 s later the place is free."""
    rota.start()
    direct = Client(rota, *stage.actor("direct"))
    assert stage.hear() == ["direct begins"]
    pid = pid_of(rota)
    rota.ask("down", "--grace", "0s")
    direct.says("waits for the scheduler")
    direct.interrupt()
    assert "slot-1 ends by itself when the scheduler is back" in direct.end(130).err
    assert lives(pid)
    rota.start()
    queued = rota.post(stage.walk_on("queued"))
    assert rota.show(queued)["status"] == "QUEUED", "it still has its time to come back"
    assert rota.ended(queued)["status"] == "COMPLETED"
    assert ends_within(pid)
    shown = slot(rota, "slot-1")
    assert shown["status"] == "CANCELLED"
    assert shown["reason"] == "its client did not come back within 30s of the scheduler's start"
    assert rota.status()["recovery"]["slots_expired"] == 1


def test_a_cancel_that_the_scheduler_never_heard_is_asked_again(rota: Rota, stage: Stage) -> None:
    """It was killed with the request in its socket."""
    scheduler = rota.start()
    direct = Client(rota, "--", "sh", "-c", f"echo here; echo $$ > {stage.pipe}; exec sleep 1000")
    pid = int(stage.hear()[0])
    direct.prints("here")
    os.kill(scheduler, signal.SIGSTOP)
    direct.interrupt()
    eventually(lambda: len(sockets(direct.pid)) == 2, what="its stream, and the request to cancel")
    kill(scheduler)
    direct.end(130)
    assert ends_within(pid)
    assert slot(rota, "slot-1")["status"] == "CANCELLED"


def sockets(pid: int) -> list[str]:
    links = [str(entry.readlink()) for entry in Path(f"/proc/{pid}/fd").iterdir()]
    return [link for link in links if link.startswith("socket:")]


def test_a_client_that_dies_with_the_scheduler_has_nothing_left(rota: Rota, stage: Stage) -> None:
    """A shorter time than 30 s would take the place of one that is on its way; `rota slot cancel` need not wait."""
    scheduler = rota.start()
    direct = Client(rota, *stage.actor("direct"))
    assert stage.hear() == ["direct begins"]
    direct.send(signal.SIGSTOP)
    kill(scheduler)
    kill_client(direct)
    rota.start()
    assert [each["status"] for each in slots(rota)] == ["RUNNING"]
    rota.ask("slot", "cancel", "slot-1")
    all_free(rota)
    assert rota.status()["recovery"]["slots_expired"] == 0


def test_shutdown_gives_it_the_grace_period(rota: Rota, stage: Stage) -> None:
    """CON-003: what runs has its time, job or not, and nothing new starts meanwhile."""
    rota.start()
    direct = Client(rota, *stage.actor("direct"))
    assert stage.hear() == ["direct begins"]
    waiting = Client(rota, *stage.walk_on("waiting"))
    waiting.says("slot-2: ")
    down = rota.begin("down")
    waiting.says("the scheduler is stopping")
    stage.release("direct", 8)
    direct.end(8)
    assert rota.end(down).code == 0
    assert stage.heard() == ["direct ends"]
    rota.start()
    waiting.end(0)
    assert stage.heard() == ["waiting begins", "waiting ends"]


def test_down_with_kill_ends_it(rota: Rota, stage: Stage) -> None:
    rota.start()
    direct = Client(rota, *stage.actor("direct"))
    assert stage.hear() == ["direct begins"]
    pid = pid_of(rota)
    rota.ask("down", "--grace", "0s", "--kill")
    assert ends_within(pid)
    assert "slot-1 FAILED: stopped by shutdown" in direct.end(143).err


@pytest.mark.parametrize("options", [[], ["--quiet"]], ids=["", "quiet"])
def test_the_supervisor_is_lost_under_it(rota: Rota, stage: Stage, options: list[str]) -> None:
    """Its child is watched to its end, which nobody can know, and that is said; then the place is free."""
    rota.start()
    gate = stage.gate("gate")
    direct = Client(rota, *options, "--", "sh", "-c", TELLS.format(told=stage.pipe, gate=gate))
    pid = int(stage.hear()[0])
    pid_of(rota)
    supervisor = rota.supervisor
    kill(supervisor)
    eventually(lambda: rota.supervisor != supervisor, what="a new supervisor")
    assert lives(pid)
    queued = rota.post(stage.walk_on("queued"))
    assert rota.show(queued)["status"] == "QUEUED"
    stage.release("gate")
    said = direct.end(1)
    assert said.out == "one\nthree\n"
    assert said.err.count("slot-1 FAILED: exit status unknown") == 1
    assert rota.ended(queued)["status"] == "COMPLETED"


def test_all_is_lost(rota: Rota, stage: Stage) -> None:
    """Scheduler, supervisor and the command itself: then nobody can account for it."""
    scheduler = rota.start()
    direct = Client(rota, *stage.actor("direct"))
    assert stage.hear() == ["direct begins"]
    pid, supervisor = pid_of(rota), rota.supervisor
    direct.send(signal.SIGSTOP)
    for each in (scheduler, supervisor, pid):
        kill(each)
    direct.send(signal.SIGCONT)
    assert "slot-1 FAILED: Scheduler crash recovery" in direct.end(1).err
    all_free(rota)


def test_the_wait_goes_on_over_a_restart(rota: Rota, stage: Stage) -> None:
    """It is not begun anew by it."""
    rota.start()
    job = rota.post(stage.actor("job"))
    assert stage.hear() == ["job begins"]
    rota.ask("config", "set", "direct.wait", "1h")
    direct = Client(rota, "--wait", "2s", *stage.walk_on("direct"))
    direct.says("slot-1: waiting on pool")
    rota.crash()
    direct.end(75)
    stage.release("job")
    rota.wait(job)
    assert stage.heard() == ["job ends"]


def test_the_wait_goes_on_without_a_scheduler(rota: Rota, stage: Stage) -> None:
    rota.start()
    rota.set_global(0)
    direct = Client(rota, "--wait", "1s", *stage.walk_on("direct"))
    direct.says("slot-1: waiting on pool")
    rota.ask("down")
    assert "its turn did not come in time" in direct.end(75).err


def test_what_its_client_gave_up_while_there_was_no_scheduler_never_begins(rota: Rota, stage: Stage) -> None:
    """75 says that nothing of it ran: nothing of it may run afterwards."""
    rota.start()
    rota.ask("pause")
    direct = Client(rota, "--wait", "1s", *stage.walk_on("direct"))
    direct.says("paused by")
    rota.ask("down")
    assert "nothing of it ran" in direct.end(75).err
    rota.start()
    rota.ask("resume")
    (left,) = slots(rota)
    assert (left["status"], left["wait"]["detail"]) == ("WAITING", "its client has not come back yet")
    queued = rota.post(stage.walk_on("queued"))
    rota.ask("slot", "cancel", left["id"])
    assert rota.ended(queued)["status"] == "COMPLETED"
    assert stage.heard() == ["queued begins", "queued ends"]


def test_down_with_kill_ends_the_turn_of_a_program(rota: Rota) -> None:
    rota.start()
    mine = rota.api("POST", "/api/slots", {"name": "mine"}).json()
    assert mine["status"] == "RUNNING"
    said = rota.ask("down", "--kill", "--grace", "0s")
    assert f"still running: {mine['id']} (mine)" in said.err
    rota.start()
    assert (slot(rota, mine["id"])["status"], slot(rota, mine["id"])["reason"]) == ("FAILED", "stopped by shutdown")

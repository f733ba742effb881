"""Direct executions survive the loss of the scheduler or the supervisor, and their clients reconnect."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.direct_client import (
    DirectClient,
    get_reservation,
    kill_client,
    list_reservations,
    wait_for_reservation_end,
    wait_until_no_reservations,
)
from tests.e2e.rig import ChildControl, Rota, eventually, exits_within, is_alive, kill

SCRIPT = "echo one; echo two >&2; echo $$ > {pipe}; read x < {gate}; echo three; echo four >&2; exit 9"


def pid_of(rota: Rota, name: str = "reservation-1") -> int:
    pid: int = eventually(lambda: get_reservation(rota, name)["pid"], description="the pid")
    return pid


def crash(rota: Rota) -> None:
    rota.crash()
    eventually(rota.schedulers, description="a scheduler started by the client")
    rota.start()


def restart(rota: Rota) -> None:
    rota.run("down", "--grace", "0s")
    rota.run("up")


@pytest.fixture(params=[crash, restart], ids=["kill -9", "down and up"])
def interrupt_scheduler(request: pytest.FixtureRequest) -> Callable[[Rota], None]:
    """Function that stops and restarts the scheduler. After a crash the client starts it."""
    param: Callable[[Rota], None] = request.param
    return param


def test_waiting_reservation_survives_a_restart(
    rota: Rota, children: ChildControl, interrupt_scheduler: Callable[[Rota], None]
) -> None:
    rota.start()
    job = rota.post_job(children.gated("job"))
    assert children.read_lines() == ["job begins"]
    rota.wait_for_start(job)
    direct = DirectClient(rota, *children.gated("direct"))
    direct.wait_for_stderr("reservation-1: waiting on pool global (1/1)")
    queued = rota.post_job(children.immediate("queued"), priority=5)
    interrupt_scheduler(rota)
    children.release("job", 2)
    assert children.read_lines(2) == ["job ends", "direct begins"], "the reservation keeps its place"
    assert rota.show(queued)["status"] == "QUEUED"
    children.release("direct", 7)
    direct.finish(7)
    assert rota.wait_for_end(job)["exit_code"] == 2
    assert rota.wait_for_end(queued)["status"] == "COMPLETED"
    assert get_reservation(rota, "reservation-1")["exit_code"] == 7
    assert list_reservations(rota) == []
    assert rota.status()["recovery"]["reservations_expired"] == 0


def test_running_command_survives_a_restart(
    rota: Rota, children: ChildControl, interrupt_scheduler: Callable[[Rota], None]
) -> None:
    """The output has no gap and no repetition."""
    rota.start()
    gate = children.make_gate("gate")
    direct = DirectClient(rota, "--", "sh", "-c", SCRIPT.format(pipe=children.pipe, gate=gate))
    pid = int(children.read_lines()[0])
    direct.wait_for_stdout("one\n")
    direct.wait_for_stderr("two\n")
    queued = rota.post_job(children.immediate("queued"))
    for _ in range(2):
        interrupt_scheduler(rota)
        assert is_alive(pid)
        assert pid_of(rota) == pid
    children.release("gate")
    output = direct.finish(9)
    assert output.out == "one\nthree\n"
    assert [line for line in output.err.splitlines() if not line.startswith("rota: ")] == ["two", "four"]
    assert rota.wait_for_end(queued)["status"] == "COMPLETED"
    assert get_reservation(rota, "reservation-1")["pid"] is None, "the command has ended"
    assert list_reservations(rota) == []


def test_command_that_ended_without_a_scheduler_has_its_exit_code(rota: Rota, children: ChildControl) -> None:
    scheduler = rota.start()
    direct = DirectClient(rota, "--", "sh", "-c", f"echo here; exec {' '.join(children.gated_argv('direct'))}")
    assert children.read_lines() == ["direct begins"]
    direct.wait_for_stdout("here")
    direct.send_signal(signal.SIGSTOP)  # so that it cannot start the scheduler
    kill(scheduler)
    children.release("direct", 11)
    assert children.read_lines() == ["direct ends"]
    rota.start()
    assert wait_for_reservation_end(rota, "reservation-1")["exit_code"] == 11
    direct.send_signal(signal.SIGCONT)
    direct.finish(11)


def test_client_waits_for_a_scheduler_that_was_stopped(rota: Rota, children: ChildControl) -> None:
    rota.start()
    direct = DirectClient(rota, *children.gated("direct"))
    assert children.read_lines() == ["direct begins"]
    rota.run("down", "--grace", "0s")
    direct.wait_for_stderr("reservation-1 waits for the scheduler: the scheduler was stopped meanwhile")
    assert rota.schedulers() == [], "the client does not restart a stopped scheduler"
    rota.start()
    children.release("direct", 3)
    direct.finish(3)


def test_signal_without_a_scheduler_cancels_after_the_next_start(rota: Rota, children: ChildControl) -> None:
    """No client reconnects, so the reservation is withdrawn after 30 s."""
    rota.start()
    direct = DirectClient(rota, *children.gated("direct"))
    assert children.read_lines() == ["direct begins"]
    pid = pid_of(rota)
    rota.run("down", "--grace", "0s")
    direct.wait_for_stderr("waits for the scheduler")
    direct.interrupt()
    assert "reservation-1 is cancelled when the scheduler is back" in direct.finish(130).err
    assert is_alive(pid)
    rota.start()
    queued = rota.post_job(children.immediate("queued"))
    assert rota.show(queued)["status"] == "QUEUED", "its client still has time to reconnect"
    assert rota.wait_for_end(queued)["status"] == "COMPLETED"
    assert exits_within(pid)
    shown = get_reservation(rota, "reservation-1")
    assert shown["status"] == "CANCELLED"
    assert shown["reason"] == "its client did not reconnect within 30s of the scheduler's start"
    assert rota.status()["recovery"]["reservations_expired"] == 1


def test_cancel_lost_in_a_crash_is_repeated(rota: Rota, children: ChildControl) -> None:
    """The scheduler is killed with the unread request in its socket."""
    scheduler = rota.start()
    direct = DirectClient(rota, "--", "sh", "-c", f"echo here; echo $$ > {children.pipe}; exec sleep 1000")
    pid = int(children.read_lines()[0])
    direct.wait_for_stdout("here")
    os.kill(scheduler, signal.SIGSTOP)
    direct.interrupt()
    eventually(lambda: len(open_sockets(direct.pid)) == 2, description="the stream and the cancel request")
    kill(scheduler)
    direct.finish(130)
    assert exits_within(pid)
    assert get_reservation(rota, "reservation-1")["status"] == "CANCELLED"


def open_sockets(pid: int) -> list[str]:
    links = [str(entry.readlink()) for entry in Path(f"/proc/{pid}/fd").iterdir()]
    return [link for link in links if link.startswith("socket:")]


def test_reservation_of_a_killed_client_can_be_cancelled(rota: Rota, children: ChildControl) -> None:
    """A reconnecting client has 30 s. `rota reservation cancel` frees the place sooner."""
    scheduler = rota.start()
    direct = DirectClient(rota, *children.gated("direct"))
    assert children.read_lines() == ["direct begins"]
    direct.send_signal(signal.SIGSTOP)
    kill(scheduler)
    kill_client(direct)
    rota.start()
    assert [reservation["status"] for reservation in list_reservations(rota)] == ["RUNNING"]
    rota.run("reservation", "cancel", "reservation-1")
    wait_until_no_reservations(rota)
    assert rota.status()["recovery"]["reservations_expired"] == 0


def test_shutdown_gives_direct_executions_the_grace_period(rota: Rota, children: ChildControl) -> None:
    """CON-003: a running command gets the grace period, and nothing new starts."""
    rota.start()
    direct = DirectClient(rota, *children.gated("direct"))
    assert children.read_lines() == ["direct begins"]
    waiting = DirectClient(rota, *children.immediate("waiting"))
    waiting.wait_for_stderr("reservation-2: ")
    down = rota.spawn("down")
    waiting.wait_for_stderr("the scheduler is stopping")
    children.release("direct", 8)
    direct.finish(8)
    assert rota.finish(down).code == 0
    assert children.read_available() == ["direct ends"]
    rota.start()
    waiting.finish(0)
    assert children.read_available() == ["waiting begins", "waiting ends"]


def test_down_with_kill_ends_direct_executions(rota: Rota, children: ChildControl) -> None:
    rota.start()
    direct = DirectClient(rota, *children.gated("direct"))
    assert children.read_lines() == ["direct begins"]
    pid = pid_of(rota)
    rota.run("down", "--grace", "0s", "--kill")
    assert exits_within(pid)
    assert "reservation-1 FAILED: stopped by shutdown" in direct.finish(143).err


@pytest.mark.parametrize("options", [[], ["--quiet"]], ids=["", "quiet"])
def test_command_of_a_killed_supervisor_has_an_unknown_exit_status(
    rota: Rota, children: ChildControl, options: list[str]
) -> None:
    """The process is observed until it ends. Its unknown exit status is reported, and the capacity is freed."""
    rota.start()
    gate = children.make_gate("gate")
    direct = DirectClient(rota, *options, "--", "sh", "-c", SCRIPT.format(pipe=children.pipe, gate=gate))
    pid = int(children.read_lines()[0])
    pid_of(rota)
    supervisor = rota.supervisor_pid
    kill(supervisor)
    eventually(lambda: rota.supervisor_pid != supervisor, description="a new supervisor")
    assert is_alive(pid)
    queued = rota.post_job(children.immediate("queued"))
    assert rota.show(queued)["status"] == "QUEUED"
    children.release("gate")
    output = direct.finish(125)
    assert output.out == "one\nthree\n"
    assert output.err.count("reservation-1 FAILED: exit status unknown") == 1
    assert rota.wait_for_end(queued)["status"] == "COMPLETED"


def test_crash_of_scheduler_supervisor_and_command(rota: Rota, children: ChildControl) -> None:
    """Scheduler, supervisor and command are killed, so the exit status is unknown."""
    scheduler = rota.start()
    direct = DirectClient(rota, *children.gated("direct"))
    assert children.read_lines() == ["direct begins"]
    pid, supervisor = pid_of(rota), rota.supervisor_pid
    direct.send_signal(signal.SIGSTOP)
    for process in (scheduler, supervisor, pid):
        kill(process)
    direct.send_signal(signal.SIGCONT)
    assert "reservation-1 FAILED: Scheduler crash recovery" in direct.finish(125).err
    wait_until_no_reservations(rota)


def test_wait_timeout_continues_over_a_restart(rota: Rota, children: ChildControl) -> None:
    """The wait timeout does not restart with the scheduler."""
    rota.start()
    job = rota.post_job(children.gated("job"))
    assert children.read_lines() == ["job begins"]
    rota.run("config", "set", "direct.wait", "1h")
    direct = DirectClient(rota, "--wait", "2s", *children.immediate("direct"))
    direct.wait_for_stderr("reservation-1: waiting on pool")
    rota.crash()
    direct.finish(75)
    children.release("job")
    rota.wait(job)
    assert children.read_available() == ["job ends"]


def test_wait_timeout_continues_without_a_scheduler(rota: Rota, children: ChildControl) -> None:
    rota.start()
    rota.set_global_size(0)
    direct = DirectClient(rota, "--wait", "1s", *children.immediate("direct"))
    direct.wait_for_stderr("reservation-1: waiting on pool")
    rota.run("down")
    assert "it did not start in time" in direct.finish(75).err


def test_reservation_abandoned_without_a_scheduler_never_starts(rota: Rota, children: ChildControl) -> None:
    """Exit code 75 means that the command did not run, so it must not run later."""
    rota.start()
    rota.run("pause")
    direct = DirectClient(rota, "--wait", "3s", *children.immediate("direct"))
    direct.wait_for_stderr("paused by")
    rota.run("down")
    assert "nothing of it ran" in direct.finish(75).err
    rota.start()
    rota.run("resume")
    (reservation,) = list_reservations(rota)
    assert (reservation["status"], reservation["wait"]["detail"]) == ("WAITING", "its client has not reconnected yet")
    queued = rota.post_job(children.immediate("queued"))
    rota.run("reservation", "cancel", reservation["id"])
    assert rota.wait_for_end(queued)["status"] == "COMPLETED"
    assert children.read_available() == ["queued begins", "queued ends"]


def test_down_with_kill_ends_reservations_without_a_process(rota: Rota) -> None:
    rota.start()
    reservation = rota.api("POST", "/api/reservations", {"name": "mine"}).json()
    assert reservation["status"] == "RUNNING"
    output = rota.run("down", "--kill", "--grace", "0s")
    assert f"killing {reservation['id']} (mine)" in output.err
    rota.start()
    assert (get_reservation(rota, reservation["id"])["status"], get_reservation(rota, reservation["id"])["reason"]) == (
        "FAILED",
        "stopped by shutdown",
    )


def test_down_names_the_jobs_it_kills_after_a_short_grace_period(rota: Rota, children: ChildControl) -> None:
    """The scheduler may stop before `down` reads again which jobs run."""
    rota.start()
    rota.set_global_size(2)
    reservation = rota.api("POST", "/api/reservations", {"name": "mine"}).json()
    assert reservation["status"] == "RUNNING"
    job = rota.post_job(children.gated("long"), name="long one")
    assert children.read_lines() == ["long begins"]
    rota.wait_for_start(job)
    output = rota.run("down", "--kill", "--grace", "100ms")
    killed = " ".join(line for line in output.err.splitlines() if "stopping; killing " in line or "killed " in line)
    assert f"{job} (long one)" in killed, output
    assert f"{reservation['id']} (mine)" in killed, output

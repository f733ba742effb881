"""DEC-004: `rota run` reserves the next slot, waits without preemption, runs the command and releases the slot."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import signal
import subprocess
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
from tests.e2e.rig import TIMEOUT, ChildControl, Rota, eventually, exits_within, is_alive


def test_direct_execution_behaves_like_a_local_command(rota: Rota, tmp_path: Path) -> None:
    """The command starts the scheduler if necessary and creates no job."""
    directory = tmp_path / "place"
    directory.mkdir()
    script = 'pwd; echo "$ANSWER $ROTA_RESERVATION ${ROTA_JOB-none} $ROTA_HOME"; echo oops >&2; exit 7'
    env = {"ANSWER": "42", "ROTA_JOB": "job-9"}
    output = rota.run("run", "--", "sh", "-c", script, env=env, cwd=directory, code=7)
    assert output.lines == [str(directory), f"42 reservation-1 none {rota.home}"]
    started = f"rota: started the scheduler in {rota.home}; `rota down` stops it\n"
    assert output.err == f"{started}oops\n", "an immediate start prints no message"
    assert rota.jobs() == []
    assert list_reservations(rota) == []
    shown = get_reservation(rota, "reservation-1")
    assert (shown["status"], shown["exit_code"], shown["reason"]) == ("FAILED", 7, "exit code 7")


@pytest.mark.parametrize(
    ("words", "code", "output"),
    [
        (["--", "true"], 0, ""),
        (["--", "sh", "-c", "kill -KILL $$"], 137, "rota: reservation-1 FAILED: killed by SIGKILL\n"),
        (["--", "no-such-program-here"], 127, "rota: reservation-1 FAILED: program not found: no-such-program-here\n"),
        (["--timeout", "100ms", "--", "sleep", "1000"], 124, "rota: reservation-1 FAILED: timed out after 100ms\n"),
        (
            ["--idle-timeout", "100ms", "--", "sleep", "1000"],
            124,
            "rota: reservation-1 FAILED: timed out after 100ms without output\n",
        ),
        (["--quiet", "--", "no-such-program-here"], 127, ""),
    ],
)
def test_direct_execution_returns_the_exit_code(rota: Rota, words: list[str], code: int, output: str) -> None:
    rota.start()
    response = rota.run("run", *words, code=code)
    assert (response.out, response.err) == ("", output)
    assert list_reservations(rota) == []


@pytest.mark.parametrize(
    "words",
    [
        ["--"],
        ["--lock", ":shared", "--", "true"],
        ["--wait", "soon", "--", "true"],
        ["--pool", "bad name", "--", "true"],
    ],
)
def test_invalid_direct_execution_exits_with_2(read_only_rota: Rota, words: list[str]) -> None:
    assert read_only_rota.run("run", *words, code=2).out == ""
    assert list_reservations(read_only_rota) == []


def test_order_is_running_job_then_reservations_then_queue(rota: Rota, children: ChildControl) -> None:
    """DEC-004: deterministic order, without preemption."""
    rota.start()
    running = rota.post_job(children.gated("running"))
    before = rota.post_job(children.immediate("before"), priority=100)
    assert children.read_lines() == ["running begins"]
    first = DirectClient(rota, *children.gated("first"))
    first.wait_for_stderr("rota: reservation-1: waiting on pool global (1/1), used by job-1\n")
    second = DirectClient(rota, *children.immediate("second"))
    second.wait_for_stderr("rota: reservation-2: direct execution has the next slot\n")
    after = rota.post_job(children.immediate("after"), priority=100)
    for job in (before, after):
        wait = rota.show(job)["wait"]
        assert (wait["kind"], wait["detail"]) == ("reservation", "direct execution has the next slot")
    assert children.read_available() == [], "no preemption"
    children.release("running", 3)
    rota.wait(running, code=3)
    assert children.read_lines(2) == ["running ends", "first begins"]
    assert rota.show(before)["wait"]["detail"] == "direct execution has the next slot", "reservation-2 waits"
    children.release("first", 5)
    first.finish(5)
    second.finish(0)
    for job in (before, after):
        assert rota.wait_for_end(job)["status"] == "COMPLETED"
    assert children.read_available() == [
        "first ends",
        "second begins",
        "second ends",
        "before begins",
        "before ends",
        "after begins",
        "after ends",
    ]
    assert [job["id"] for job in rota.jobs()] == [running, before, after], "direct executions create no jobs"


def test_reservation_holds_only_jobs_of_its_pools(rota: Rota, children: ChildControl) -> None:
    rota.start()
    rota.set_global_size(3)
    assert rota.api("PUT", "/api/pools/type/story", {"size": 1}).status == 200
    story = rota.post_job(children.gated("story"), type="story")
    assert children.read_lines() == ["story begins"]
    direct = DirectClient(rota, "--type", "story", *children.immediate("direct"))
    direct.wait_for_stderr("reservation-1: waiting on pool type/story (1/1)")
    other = rota.post_job(children.immediate("other"))
    assert rota.wait_for_end(other)["status"] == "COMPLETED", "one of three workers is free"
    next_story = rota.post_job(children.immediate("next"), type="story")
    assert rota.show(next_story)["wait"]["detail"] == "direct execution has the next slot"
    children.release("story")
    direct.finish(0)
    rota.wait(story, next_story)
    assert children.read_available() == [
        "other begins",
        "other ends",
        "story ends",
        "direct begins",
        "direct ends",
        "next begins",
        "next ends",
    ]


def test_direct_executions_run_concurrently_in_free_slots(rota: Rota, children: ChildControl) -> None:
    rota.start()
    rota.set_global_size(2)
    clients = [DirectClient(rota, *children.gated(name)) for name in ("one", "two")]
    assert sorted(children.read_lines(2)) == ["one begins", "two begins"]
    queued = rota.post_job(children.immediate("queued"))
    assert rota.show(queued)["wait"]["detail"] == "waiting on pool global (2/2)", "running reservations count as used"
    children.release("two", 2)
    clients[1].finish(2)
    assert rota.wait_for_end(queued)["status"] == "COMPLETED"
    children.release("one", 1)
    clients[0].finish(1)


def test_direct_execution_waits_for_locks(rota: Rota, children: ChildControl) -> None:
    rota.start()
    rota.set_global_size(4)
    holder = rota.post_job(children.gated("holder"), locks=[{"key": "repo"}])
    assert children.read_lines() == ["holder begins"]
    queued = rota.post_job(children.immediate("queued"), locks=[{"key": "repo"}])
    direct = DirectClient(rota, "--lock", "repo", *children.gated("direct"))
    direct.wait_for_stderr("rota: reservation-1: waiting on locks: repo (held by job-1)\n")
    assert rota.wait_for_end(rota.post_job(children.immediate("other")))["status"] == "COMPLETED"
    children.release("holder")
    rota.wait(holder)
    assert children.read_lines(4) == ["other begins", "other ends", "holder ends", "direct begins"], (
        "the reservation starts before the queue"
    )
    assert rota.show(queued)["status"] == "WAITING_ON_LOCKS"
    children.release("direct")
    direct.finish(0)
    assert "reservation-1 starts" in direct.err.decode()
    assert rota.wait_for_end(queued)["status"] == "COMPLETED"


def test_direct_execution_waits_for_resource_pools(rota: Rota, children: ChildControl) -> None:
    """CON-002: one user of Ollama at a time, job or direct execution."""
    rota.start()
    rota.set_global_size(-1)
    first = DirectClient(rota, "--pool", "resource/ollama", *children.gated("first"))
    assert children.read_lines() == ["first begins"]
    second = DirectClient(rota, "--pool", "resource/ollama", *children.immediate("second"))
    second.wait_for_stderr("reservation-2: waiting on pool resource/ollama (1/1)")
    assert rota.wait_for_end(rota.post_job(children.immediate("other")))["status"] == "COMPLETED"
    children.release("first")
    first.finish()
    second.finish()
    assert children.read_available() == ["other begins", "other ends", "first ends", "second begins", "second ends"]


def test_zero_global_pool_is_reported_immediately(rota: Rota, children: ChildControl) -> None:
    rota.start()
    rota.set_global_size(0)
    direct = DirectClient(rota, *children.immediate("direct"))
    direct.wait_for_stderr("rota: reservation-1: waiting on pool global (0/0)\n")
    rota.set_global_size(1)
    direct.finish(0)
    assert children.read_available() == ["direct begins", "direct ends"]


def test_pause_is_reported_immediately(rota: Rota, children: ChildControl) -> None:
    rota.start()
    rota.run("pause")
    direct = DirectClient(rota, *children.immediate("direct"))
    direct.wait_for_stderr("rota: reservation-1: paused by ")
    assert children.read_available() == []
    rota.run("resume")
    direct.finish(0)
    assert children.read_available() == ["direct begins", "direct ends"]


def test_hold_file_is_reported_immediately(rota: Rota, children: ChildControl, tmp_path: Path) -> None:
    hold = tmp_path / "hold"
    hold.write_text("deploying\n")
    rota.run("config", "set", "scheduler.hold_file", str(hold))
    direct = DirectClient(rota, *children.immediate("direct"))
    direct.wait_for_stderr("rota: reservation-1: held: deploying\n")
    assert children.read_available() == []
    hold.unlink()
    direct.finish(0)
    assert children.read_available() == ["direct begins", "direct ends"]


def test_pacing_of_the_queue_does_not_delay_direct_executions(rota: Rota, children: ChildControl) -> None:
    """Batch size, spawn delay and dispatch interval hold jobs; a direct execution starts when capacity is free."""
    for key, value in (("batch_size", "1"), ("spawn_delay", "1h"), ("dispatch_interval", "1h")):
        rota.run("config", "set", f"scheduler.{key}", value)
    rota.start()
    first = DirectClient(rota, *children.gated("first"))
    assert children.read_lines() == ["first begins"]
    second = DirectClient(rota, *children.immediate("second"))
    second.wait_for_stderr("reservation-2: waiting on pool global (1/1)")
    job = rota.post_job(children.immediate("job"))
    children.release("first")
    first.finish(0)
    second.finish(0)
    assert children.read_available() == ["first ends", "second begins", "second ends"]
    assert rota.show(job)["status"] == "QUEUED"


def test_wait_timeout_exits_with_75(rota: Rota, children: ChildControl) -> None:
    rota.start()
    job = rota.post_job(children.gated("job"))
    assert children.read_lines() == ["job begins"]
    output = DirectClient(rota, "--wait", "300ms", *children.immediate("late")).finish(75)
    assert output.out == ""
    assert output.err.splitlines()[-1] == "rota: reservation-1 CANCELLED: it did not start in time"
    rota.run("config", "set", "direct.wait", "200ms")
    assert rota.run("run", "--quiet", *children.immediate("later"), code=75).err == ""
    assert list_reservations(rota) == []
    children.release("job")
    rota.wait(job)
    assert children.read_available() == ["job ends"]


def test_zero_wait_runs_immediately_or_not_at_all(rota: Rota, children: ChildControl) -> None:
    rota.start()
    rota.run("run", "--wait", "0s", "--", "sh", "-c", "exit 4", code=4)
    holder = DirectClient(rota, *children.gated("holder"))
    assert children.read_lines() == ["holder begins"]
    rota.run("run", "--wait", "0s", "--", "true", code=75)
    children.release("holder")
    holder.finish(0)


def test_wait_timeout_does_not_end_a_running_command(rota: Rota, children: ChildControl) -> None:
    rota.start()
    direct = DirectClient(rota, "--wait", "200ms", *children.gated("direct"))
    assert children.read_lines() == ["direct begins"]
    late = DirectClient(rota, "--wait", "600ms", "--", "true")
    late.finish(75)  # waits three times as long as the first
    children.release("direct", 4)
    direct.finish(4)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1])
def test_signal_while_waiting_cancels_the_reservation(rota: Rota, children: ChildControl, number: int) -> None:
    rota.start()
    job = rota.post_job(children.gated("job"))
    assert children.read_lines() == ["job begins"]
    direct = DirectClient(rota, *children.immediate("direct"))
    direct.wait_for_stderr("reservation-1: waiting on pool global")
    queued = rota.post_job(children.immediate("queued"))
    direct.send_signal(number)
    direct.finish(128 + number)
    assert list_reservations(rota) == []
    shown = get_reservation(rota, "reservation-1")
    assert (shown["status"], shown["exit_code"], shown["started_at"]) == ("CANCELLED", 143, None)
    children.release("job")
    rota.wait(job, queued)
    assert children.read_available() == ["job ends", "queued begins", "queued ends"]


TREE = "sleep 1000 & echo $! > {pipe}; setsid sh -c 'echo $$ > {pipe}; exec sleep 1000' & wait"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_while_running_cancels_the_command(rota: Rota, children: ChildControl, number: int) -> None:
    rota.start()
    direct = DirectClient(rota, "--", "sh", "-c", TREE.format(pipe=children.pipe))
    pids = [int(line) for line in children.read_lines(2)]
    queued = rota.post_job(children.immediate("queued"))
    direct.send_signal(number)
    direct.finish(128 + number)
    assert not any(is_alive(pid) for pid in pids), "the process tree ends before the command returns"
    shown = get_reservation(rota, "reservation-1")
    assert (shown["status"], shown["exit_code"]) == ("CANCELLED", 143)
    assert shown["reason"].startswith("cancelled by ")
    assert rota.wait_for_end(queued)["status"] == "COMPLETED"


def test_second_signal_exits_immediately_and_the_command_is_killed(rota: Rota, children: ChildControl) -> None:
    rota.start()
    script = (
        f"trap 'echo ignored > {children.pipe}' TERM; echo $$ > {children.pipe}; while :; do sleep 1000 & wait $!; done"
    )
    direct = DirectClient(rota, "--", "sh", "-c", script)
    pid = int(children.read_lines()[0])
    queued = rota.post_job(children.immediate("queued"))
    direct.interrupt()
    assert children.read_lines() == ["ignored"]
    direct.interrupt()
    direct.finish(130)
    assert exits_within(pid), "killed after kill_after"
    assert wait_for_reservation_end(rota, "reservation-1")["status"] == "CANCELLED"
    assert rota.wait_for_end(queued)["status"] == "COMPLETED"


def test_command_may_finish_during_an_interrupt(rota: Rota, children: ChildControl) -> None:
    """A command that handles SIGTERM and exits keeps its exit code, and its last output is printed."""
    rota.start()
    script = (
        f"trap 'echo last words; exit 0' TERM; echo ready > {children.pipe}; while :; do sleep 1000 & wait $!; done"
    )
    direct = DirectClient(rota, "--", "sh", "-c", script)
    assert children.read_lines() == ["ready"]
    direct.interrupt()
    assert direct.finish(130).out == "last words\n"


def test_other_signals_are_forwarded(rota: Rota, children: ChildControl) -> None:
    rota.start()
    names = ("HUP", "QUIT", "USR1")
    traps = " ".join(f"trap 'echo {name} > {children.pipe}' {name};" for name in names)
    script = f"{traps} trap 'exit 33' USR2; echo ready > {children.pipe}; while :; do sleep 1000 & wait $!; done"
    direct = DirectClient(rota, "--", "sh", "-c", script)
    assert children.read_lines() == ["ready"]
    for name in names:
        direct.send_signal(signal.Signals[f"SIG{name}"])
        assert children.read_lines() == [name]
    direct.send_signal(signal.SIGUSR2)
    direct.finish(33)


def test_signal_ignored_by_the_caller_stays_ignored(rota: Rota, children: ChildControl) -> None:
    """As with `nohup rota run …` or a background job of a shell."""
    rota.start()

    def ignore() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    direct = DirectClient(rota, *children.gated("direct"), preexec_fn=ignore)
    assert children.read_lines() == ["direct begins"]
    (ignored,) = re.findall(r"^SigIgn:\s*(\w+)$", Path(f"/proc/{direct.pid}/status").read_text(), re.MULTILINE)
    assert int(ignored, 16) & 1 << signal.SIGHUP - 1
    direct.send_signal(signal.SIGHUP)
    children.release("direct", 6)
    direct.finish(6)


@pytest.mark.parametrize("is_running", [True, False], ids=["while it runs", "while it waits"])
def test_killed_client_leaves_no_process_and_no_reservation(
    rota: Rota, children: ChildControl, is_running: bool
) -> None:
    """LESSONS Waiting: orphan reservations hid 25 of 37 tasks; an expired reservation blocked until restart."""
    rota.start()
    job = None if is_running else rota.post_job(children.gated("job"))
    if job is not None:
        assert children.read_lines() == ["job begins"]
    direct = DirectClient(rota, "--", "sh", "-c", TREE.format(pipe=children.pipe))
    if job is None:
        pids = [int(line) for line in children.read_lines(2)]
    else:
        direct.wait_for_stderr("reservation-1: waiting on pool")
    following = DirectClient(rota, *children.immediate("following"))
    following.wait_for_stderr("reservation-2: ")
    kill_client(direct)
    if job is None:
        assert all(exits_within(pid) for pid in pids)
    else:
        assert wait_for_reservation_end(rota, "reservation-1")["reason"] == "its client disconnected"
        children.release("job")
        rota.wait(job)
        assert children.read_lines() == ["job ends"]
    following.finish(0)
    assert children.read_available() == ["following begins", "following ends"]
    assert wait_for_reservation_end(rota, "reservation-1")["status"] == "CANCELLED"
    wait_until_no_reservations(rota)


def test_large_output_is_complete(rota: Rota) -> None:
    size = 100_000_000
    script = f"import sys; [sys.stdout.buffer.write(n.to_bytes(4, 'big') * 25) for n in range({size // 100})]"
    direct = rota.spawn("run", "--", "python3", "-c", script)
    digest, count = hashlib.sha256(), 0
    assert direct.stdout is not None
    while piece := direct.stdout.read(1 << 20):
        digest.update(piece)
        count += len(piece)
    assert rota.finish(direct).code == 0
    request = hashlib.sha256(b"".join(n.to_bytes(4, "big") * 25 for n in range(size // 100)))
    assert (count, digest.hexdigest()) == (size, request.hexdigest())


def test_closed_output_pipe_cancels_the_command(rota: Rota) -> None:
    """`rota run -- yes | head -1`."""
    rota.start()
    direct = rota.spawn("run", "--", "yes")
    with subprocess.Popen(["head", "-1"], stdin=direct.stdout, stdout=subprocess.PIPE) as head:
        assert direct.stdout is not None
        direct.stdout.close()
        assert head.communicate(timeout=TIMEOUT)[0] == b"y\n"
    assert direct.wait(TIMEOUT) == 141
    assert direct.stderr is not None
    assert direct.stderr.read() == b""
    direct.stderr.close()
    wait_until_no_reservations(rota)
    assert get_reservation(rota, "reservation-1")["status"] == "CANCELLED"


def test_signal_exits_although_the_output_is_blocked(rota: Rota, children: ChildControl) -> None:
    rota.start()
    script = f"head -c 1000000 /dev/zero; echo written > {children.pipe}; sleep 1000"
    direct = rota.spawn("run", "--", "sh", "-c", script)
    assert children.read_lines() == ["written"]
    for _ in range(2):  # the second signal exits immediately, because the output is blocked
        direct.send_signal(signal.SIGINT)
        if _ == 0:
            eventually(lambda: not list_reservations(rota), description="cancelled")
    assert direct.wait(TIMEOUT) == -signal.SIGINT
    for stream in (direct.stdout, direct.stderr):
        assert stream is not None
        stream.close()


def test_json_is_alone_on_stdout(rota: Rota) -> None:
    rota.start()
    output = rota.run("run", "--json", "--name", "n", "--type", "t", "--", "sh", "-c", "echo out; exit 3", code=3)
    shown = output.json()
    assert output.err == "out\n"
    assert (shown["id"], shown["status"], shown["exit_code"], shown["name"]) == ("reservation-1", "FAILED", 3, "n")
    assert Path(shown["log_paths"]["stdout"]).read_text() == "out\n"
    assert Path(shown["log_paths"]["stdout"]).stat().st_mode & 0o777 == 0o600


def test_reservation_list_and_cancel(rota: Rota, children: ChildControl) -> None:
    rota.start()
    assert rota.run("reservation", "list").err == "rota: there are no waiting or running direct executions\n"
    first = DirectClient(rota, *children.gated("first"))
    assert children.read_lines() == ["first begins"]
    second = DirectClient(rota, "--name", "the second", *children.immediate("second"))
    second.wait_for_stderr("reservation-2: ")
    lines = rota.run("reservation", "list").lines
    assert lines[0].split() == ["ID", "STATUS", "TIME", "ACTOR", "NAME/COMMAND", "WAIT"]
    assert lines[1].split()[:2] == ["reservation-1", "RUNNING"]
    assert "the second" in lines[2]
    assert lines[2].endswith("waiting on pool global (1/1)")
    assert [reservation["id"] for reservation in rota.json("reservation", "list")["reservations"]] == [
        "reservation-1",
        "reservation-2",
    ]
    assert rota.run("reservation", "cancel", "2", "reservation-1").lines == [
        "reservation-2 CANCELLED",
        "reservation-1 CANCELLED",
    ]
    for client in (first, second):
        output = client.finish(143)
        assert "CANCELLED: cancelled by " in output.err
    assert rota.run("reservation", "cancel", "reservation-77", code=3).err.startswith(
        "rota: no such reservation: reservation-77"
    )


def test_direct_execution_inside_a_job_times_out(rota: Rota) -> None:
    rota.start()
    words = rota.argv("run", "--wait", "300ms", "--", "true")
    job = rota.post_job(words, env={"ROTA_HOME": str(rota.home)})
    assert rota.wait_for_end(job)["exit_code"] == 75


def test_concurrent_direct_executions_run_one_after_another(rota: Rota, children: ChildControl) -> None:
    rota.start()
    clients = [DirectClient(rota, *children.immediate(f"n{n}", n)) for n in range(6)]
    for number, client in enumerate(clients):
        client.finish(number)
    lines = children.read_available()
    assert len(lines) == 12
    assert all(begins.split()[0] == ends.split()[0] for begins, ends in zip(lines[::2], lines[1::2], strict=True))
    wait_until_no_reservations(rota)
    assert len(list((rota.home / "reservations").iterdir())) >= 6


def test_ctrl_c_ends_a_surrounding_shell_loop(rota: Rota, children: ChildControl) -> None:
    """A shell continues its loop unless the signal itself ended the command."""
    rota.start()
    command = shlex.join(rota.argv("run", "--", "sh", "-c", f"echo $$ > {children.pipe}; sleep 1000"))
    loop = f"for n in 1 2; do {command}; done"
    shell = subprocess.Popen(["bash", "-c", loop], start_new_session=True, env=rota.env)
    assert children.read_lines()[0].isdecimal()
    os.killpg(shell.pid, signal.SIGINT)
    assert shell.wait(TIMEOUT) == -signal.SIGINT
    wait_until_no_reservations(rota)
    assert [reservation["id"] for reservation in list_reservations(rota)] == []
    assert get_reservation(rota, "reservation-1")["status"] == "CANCELLED"
    assert rota.api("GET", "/api/reservations/reservation-2").status == 404

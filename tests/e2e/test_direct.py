"""§7, DEC-004: `rota run` reserves the next place, waits for it without preempting, runs, returns, releases."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import signal
import subprocess
from pathlib import Path

import pytest

from e2e.client import Client, all_free, ended, kill_client, slot, slots
from e2e.rig import PATIENCE, Rota, Stage, ends_within, eventually, lives


def test_as_if_it_were_run_right_here(rota: Rota, tmp_path: Path) -> None:
    """The scheduler is started if it is not there; no job is made."""
    place = tmp_path / "place"
    place.mkdir()
    script = 'pwd; echo "$ANSWER $ROTA_SLOT ${ROTA_JOB-none} $ROTA_HOME"; echo oops >&2; exit 7'
    env = {"ANSWER": "42", "ROTA_JOB": "job-9"}
    said = rota.ask("run", "--", "sh", "-c", script, env=env, cwd=place, code=7)
    assert said.lines == [str(place), f"42 slot-1 none {rota.home}"]
    assert said.err == "oops\n", "what starts at once is not talked about"
    assert rota.jobs() == []
    assert slots(rota) == []
    shown = slot(rota, "slot-1")
    assert (shown["status"], shown["exit_code"], shown["reason"]) == ("FAILED", 7, "exit code 7")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--", "true"], 0, ""),
        (["--", "sh", "-c", "kill -KILL $$"], 137, "rota: slot-1 FAILED: killed by SIGKILL\n"),
        (["--", "no-such-program-here"], 127, "rota: slot-1 FAILED: program not found: no-such-program-here\n"),
        (["--timeout", "100ms", "--", "sleep", "1000"], 124, "rota: slot-1 FAILED: timed out after 100ms\n"),
        (
            ["--idle-timeout", "100ms", "--", "sleep", "1000"],
            124,
            "rota: slot-1 FAILED: timed out after 100ms without output\n",
        ),
        (["--quiet", "--", "no-such-program-here"], 127, ""),
    ],
)
def test_exit_codes(rota: Rota, words: list[str], code: int, said: str) -> None:
    answer = rota.ask("run", *words, code=code)
    assert (answer.out, answer.err) == ("", said)
    assert slots(rota) == []


@pytest.mark.parametrize(
    "words",
    [
        ["--"],
        ["--lock", ":shared", "--", "true"],
        ["--wait", "soon", "--", "true"],
        ["--pool", "bad name", "--", "true"],
    ],
)
def test_what_cannot_be_meant_is_2(untouched: Rota, words: list[str]) -> None:
    assert untouched.ask("run", *words, code=2).out == ""
    assert slots(untouched) == []


def test_the_running_job_then_direct_requests_then_the_queue(rota: Rota, stage: Stage) -> None:
    """DEC-004: deterministic order, and nobody is preempted."""
    rota.start()
    running = rota.post(stage.actor("running"))
    before = rota.post(stage.walk_on("before"), priority=100)
    assert stage.hear() == ["running begins"]
    first = Client(rota, *stage.actor("first"))
    first.says("rota: slot-1: waiting on pool global (1/1), used by job-1\n")
    second = Client(rota, *stage.walk_on("second"))
    second.says("rota: slot-2: direct execution has the next slot\n")
    after = rota.post(stage.walk_on("after"), priority=100)
    for job in (before, after):
        wait = rota.show(job)["wait"]
        assert (wait["kind"], wait["detail"]) == ("slot", "direct execution has the next slot")
    assert stage.heard() == [], "no preemption"
    stage.release("running", 3)
    rota.wait(running, code=3)
    assert stage.hear(2) == ["running ends", "first begins"]
    assert rota.show(before)["wait"]["detail"] == "direct execution has the next slot", "of the second"
    stage.release("first", 5)
    first.end(5)
    second.end(0)
    for job in (before, after):
        assert rota.ended(job)["status"] == "COMPLETED"
    assert stage.heard() == [
        "first ends", "second begins", "second ends", "before begins", "before ends", "after begins", "after ends",
    ]  # fmt: skip
    assert [job["id"] for job in rota.jobs()] == [running, before, after], "no job was made for them"


def test_only_jobs_that_share_a_pool_are_held_back(rota: Rota, stage: Stage) -> None:
    rota.start()
    rota.set_global(3)
    assert rota.api("PUT", "/api/pools/type/story", {"size": 1}).status == 200
    story = rota.post(stage.actor("story"), type="story")
    assert stage.hear() == ["story begins"]
    direct = Client(rota, "--type", "story", *stage.walk_on("direct"))
    direct.says("slot-1: waiting on pool type/story (1/1)")
    other = rota.post(stage.walk_on("other"))
    assert rota.ended(other)["status"] == "COMPLETED", "one place of three is left"
    next_story = rota.post(stage.walk_on("next"), type="story")
    assert rota.show(next_story)["wait"]["detail"] == "direct execution has the next slot"
    stage.release("story")
    direct.end(0)
    rota.wait(story, next_story)
    assert stage.heard() == [
        "other begins", "other ends", "story ends", "direct begins", "direct ends", "next begins", "next ends",
    ]  # fmt: skip


def test_several_run_side_by_side_where_there_is_room(rota: Rota, stage: Stage) -> None:
    rota.start()
    rota.set_global(2)
    clients = [Client(rota, *stage.actor(name)) for name in ("one", "two")]
    assert sorted(stage.hear(2)) == ["one begins", "two begins"]
    queued = rota.post(stage.walk_on("queued"))
    assert rota.show(queued)["wait"]["detail"] == "waiting on pool global (2/2)", "running ones count as used"
    stage.release("two", 2)
    clients[1].end(2)
    assert rota.ended(queued)["status"] == "COMPLETED"
    stage.release("one", 1)
    clients[0].end(1)


def test_locks_apply(rota: Rota, stage: Stage) -> None:
    rota.start()
    rota.set_global(4)
    holder = rota.post(stage.actor("holder"), locks=[{"key": "repo"}])
    assert stage.hear() == ["holder begins"]
    queued = rota.post(stage.walk_on("queued"), locks=[{"key": "repo"}])
    direct = Client(rota, "--lock", "repo", *stage.actor("direct"))
    direct.says("rota: slot-1: waiting on locks: repo (held by job-1)\n")
    assert rota.ended(rota.post(stage.walk_on("other")))["status"] == "COMPLETED"
    stage.release("holder")
    rota.wait(holder)
    assert stage.hear(4) == ["other begins", "other ends", "holder ends", "direct begins"], "before the queue"
    assert rota.show(queued)["status"] == "WAITING_ON_LOCKS"
    stage.release("direct")
    direct.end(0)
    assert "slot-1 starts" in direct.err.decode()
    assert rota.ended(queued)["status"] == "COMPLETED"


def test_resources_apply(rota: Rota, stage: Stage) -> None:
    """CON-002: one user of Ollama at a time, whoever it is."""
    rota.start()
    rota.set_global(-1)
    first = Client(rota, "--pool", "resource/ollama", *stage.actor("first"))
    assert stage.hear() == ["first begins"]
    second = Client(rota, "--pool", "resource/ollama", *stage.walk_on("second"))
    second.says("slot-2: waiting on pool resource/ollama (1/1)")
    assert rota.ended(rota.post(stage.walk_on("other")))["status"] == "COMPLETED"
    stage.release("first")
    first.end()
    second.end()
    assert stage.heard() == ["other begins", "other ends", "first ends", "second begins", "second ends"]


def test_nothing_starts_where_global_is_nought_and_it_is_said_at_once(rota: Rota, stage: Stage) -> None:
    rota.start()
    rota.set_global(0)
    direct = Client(rota, *stage.walk_on("direct"))
    direct.says("rota: slot-1: waiting on pool global (0/0)\n")
    rota.set_global(1)
    direct.end(0)
    assert stage.heard() == ["direct begins", "direct ends"]


def test_a_pause_holds_it_and_it_is_said_at_once(rota: Rota, stage: Stage) -> None:
    rota.start()
    rota.ask("pause")
    direct = Client(rota, *stage.walk_on("direct"))
    direct.says("rota: slot-1: paused by ")
    assert stage.heard() == []
    rota.ask("resume")
    direct.end(0)
    assert stage.heard() == ["direct begins", "direct ends"]


def test_a_file_holds_it_and_it_is_said_at_once(rota: Rota, stage: Stage, tmp_path: Path) -> None:
    hold = tmp_path / "hold"
    hold.write_text("deploying\n")
    rota.ask("config", "set", "scheduler.hold_file", str(hold))
    direct = Client(rota, *stage.walk_on("direct"))
    direct.says("rota: slot-1: held: deploying\n")
    assert stage.heard() == []
    hold.unlink()
    direct.end(0)
    assert stage.heard() == ["direct begins", "direct ends"]


def test_the_pace_of_the_queue_is_not_its_own(rota: Rota, stage: Stage) -> None:
    """Batch size, spawn delay and heartbeat hold jobs; a direct execution begins when there is room."""
    for key, value in (("batch_size", "1"), ("spawn_delay", "1h"), ("heartbeat", "1h")):
        rota.ask("config", "set", f"scheduler.{key}", value)
    rota.start()
    first = Client(rota, *stage.actor("first"))
    assert stage.hear() == ["first begins"]
    second = Client(rota, *stage.walk_on("second"))
    second.says("slot-2: waiting on pool global (1/1)")
    job = rota.post(stage.walk_on("job"))
    stage.release("first")
    first.end(0)
    second.end(0)
    assert stage.heard() == ["first ends", "second begins", "second ends"]
    assert rota.show(job)["status"] == "QUEUED"


def test_wait_over(rota: Rota, stage: Stage) -> None:
    rota.start()
    job = rota.post(stage.actor("job"))
    assert stage.hear() == ["job begins"]
    said = Client(rota, "--wait", "300ms", *stage.walk_on("late")).end(75)
    assert said.out == ""
    assert said.err.splitlines()[-1] == "rota: slot-1 CANCELLED: wait over: its turn did not come in time"
    rota.ask("config", "set", "direct.wait", "200ms")
    assert rota.ask("run", "--quiet", *stage.walk_on("later"), code=75).err == ""
    assert slots(rota) == []
    stage.release("job")
    rota.wait(job)
    assert stage.heard() == ["job ends"]


def test_now_or_not_at_all(rota: Rota, stage: Stage) -> None:
    rota.start()
    rota.ask("run", "--wait", "0s", "--", "sh", "-c", "exit 4", code=4)
    holder = Client(rota, *stage.actor("holder"))
    assert stage.hear() == ["holder begins"]
    rota.ask("run", "--wait", "0s", "--", "true", code=75)
    stage.release("holder")
    holder.end(0)


def test_a_wait_that_is_over_does_not_end_what_runs(rota: Rota, stage: Stage) -> None:
    rota.start()
    direct = Client(rota, "--wait", "200ms", *stage.actor("direct"))
    assert stage.hear() == ["direct begins"]
    late = Client(rota, "--wait", "600ms", "--", "true")
    late.end(75)  # three times as long
    stage.release("direct", 4)
    direct.end(4)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1])
def test_a_signal_while_it_waits_ends_the_waiting(rota: Rota, stage: Stage, number: int) -> None:
    rota.start()
    job = rota.post(stage.actor("job"))
    assert stage.hear() == ["job begins"]
    direct = Client(rota, *stage.walk_on("direct"))
    direct.says("slot-1: waiting on pool global")
    queued = rota.post(stage.walk_on("queued"))
    direct.send(number)
    direct.end(128 + number)
    assert slots(rota) == []
    shown = slot(rota, "slot-1")
    assert (shown["status"], shown["exit_code"], shown["started_at"]) == ("CANCELLED", 143, None)
    stage.release("job")
    rota.wait(job, queued)
    assert stage.heard() == ["job ends", "queued begins", "queued ends"]


TREE = "sleep 1000 & echo $! > {told}; setsid sh -c 'echo $$ > {told}; exec sleep 1000' & wait"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_it_runs_cancels_it(rota: Rota, stage: Stage, number: int) -> None:
    rota.start()
    direct = Client(rota, "--", "sh", "-c", TREE.format(told=stage.pipe))
    pids = [int(line) for line in stage.hear(2)]
    queued = rota.post(stage.walk_on("queued"))
    direct.send(number)
    direct.end(128 + number)
    assert not any(lives(pid) for pid in pids), "the whole tree is gone when it returns"
    shown = slot(rota, "slot-1")
    assert (shown["status"], shown["exit_code"]) == ("CANCELLED", 143)
    assert shown["reason"].startswith("cancelled by ")
    assert rota.ended(queued)["status"] == "COMPLETED"


def test_a_second_signal_leaves_at_once_and_nothing_behind(rota: Rota, stage: Stage) -> None:
    rota.start()
    script = f"trap 'echo deaf > {stage.pipe}' TERM; echo $$ > {stage.pipe}; while :; do sleep 1000 & wait $!; done"
    direct = Client(rota, "--", "sh", "-c", script)
    pid = int(stage.hear()[0])
    queued = rota.post(stage.walk_on("queued"))
    direct.interrupt()
    assert stage.hear() == ["deaf"]
    direct.interrupt()
    direct.end(130)
    assert ends_within(pid), "killed when kill_after was over"
    assert ended(rota, "slot-1")["status"] == "CANCELLED"
    assert rota.ended(queued)["status"] == "COMPLETED"


def test_what_finished_first_stands(rota: Rota, stage: Stage) -> None:
    """A command that ends by itself while it is told to keeps its word, and its last output is seen."""
    rota.start()
    script = f"trap 'echo last words; exit 0' TERM; echo ready > {stage.pipe}; while :; do sleep 1000 & wait $!; done"
    direct = Client(rota, "--", "sh", "-c", script)
    assert stage.hear() == ["ready"]
    direct.interrupt()
    assert direct.end(130).out == "last words\n"


def test_other_signals_are_passed_on(rota: Rota, stage: Stage) -> None:
    rota.start()
    names = ("HUP", "QUIT", "USR1")
    traps = " ".join(f"trap 'echo {name} > {stage.pipe}' {name};" for name in names)
    script = f"{traps} trap 'exit 33' USR2; echo ready > {stage.pipe}; while :; do sleep 1000 & wait $!; done"
    direct = Client(rota, "--", "sh", "-c", script)
    assert stage.hear() == ["ready"]
    for name in names:
        direct.send(signal.Signals[f"SIG{name}"])
        assert stage.hear() == [name]
    direct.send(signal.SIGUSR2)
    direct.end(33)


def test_what_the_caller_ignores_stays_ignored(rota: Rota, stage: Stage) -> None:
    """`nohup rota run …`, or a shell's background job: then the signal is for nobody."""
    rota.start()

    def ignore() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    direct = Client(rota, *stage.actor("direct"), preexec_fn=ignore)
    assert stage.hear() == ["direct begins"]
    (ignored,) = re.findall(r"^SigIgn:\s*(\w+)$", Path(f"/proc/{direct.pid}/status").read_text(), re.MULTILINE)
    assert int(ignored, 16) & 1 << signal.SIGHUP - 1
    direct.send(signal.SIGHUP)
    stage.release("direct", 6)
    direct.end(6)


@pytest.mark.parametrize("is_running", [True, False], ids=["while it runs", "while it waits"])
def test_a_client_that_is_killed_leaves_nothing_behind(rota: Rota, stage: Stage, is_running: bool) -> None:
    """LESSONS Waiting: orphan reservations hid 25 of 37 tasks; an expired reservation blocked until restart."""
    rota.start()
    job = None if is_running else rota.post(stage.actor("job"))
    if job is not None:
        assert stage.hear() == ["job begins"]
    direct = Client(rota, "--", "sh", "-c", TREE.format(told=stage.pipe))
    if job is None:
        pids = [int(line) for line in stage.hear(2)]
    else:
        direct.says("slot-1: waiting on pool")
    following = Client(rota, *stage.walk_on("following"))
    following.says("slot-2: ")
    kill_client(direct)
    if job is None:
        assert all(ends_within(pid) for pid in pids)
    else:
        assert ended(rota, "slot-1")["reason"] == "its client went away"
        stage.release("job")
        rota.wait(job)
        assert stage.hear() == ["job ends"]
    following.end(0)
    assert stage.heard() == ["following begins", "following ends"]
    assert ended(rota, "slot-1")["status"] == "CANCELLED"
    all_free(rota)


def test_a_hundred_megabytes_arrive_whole(rota: Rota) -> None:
    size = 100_000_000
    script = f"import sys; [sys.stdout.buffer.write(n.to_bytes(4, 'big') * 25) for n in range({size // 100})]"
    direct = rota.begin("run", "--", "python3", "-c", script)
    digest, count = hashlib.sha256(), 0
    assert direct.stdout is not None
    while piece := direct.stdout.read(1 << 20):
        digest.update(piece)
        count += len(piece)
    assert rota.end(direct).code == 0
    wanted = hashlib.sha256(b"".join(n.to_bytes(4, "big") * 25 for n in range(size // 100)))
    assert (count, digest.hexdigest()) == (size, wanted.hexdigest())


def test_a_reader_that_leaves_ends_it(rota: Rota) -> None:
    """`rota run -- yes | head -1`."""
    rota.start()
    direct = rota.begin("run", "--", "yes")
    with subprocess.Popen(["head", "-1"], stdin=direct.stdout, stdout=subprocess.PIPE) as head:
        assert direct.stdout is not None
        direct.stdout.close()
        assert head.communicate(timeout=PATIENCE)[0] == b"y\n"
    assert direct.wait(PATIENCE) == 141
    assert direct.stderr is not None
    assert direct.stderr.read() == b""
    direct.stderr.close()
    all_free(rota)
    assert slot(rota, "slot-1")["status"] == "CANCELLED"


def test_a_reader_that_does_not_read_keeps_nobody_from_leaving(rota: Rota, stage: Stage) -> None:
    rota.start()
    script = f"head -c 1000000 /dev/zero; echo written > {stage.pipe}; sleep 1000"
    direct = rota.begin("run", "--", "sh", "-c", script)
    assert stage.hear() == ["written"]
    for _ in range(2):  # the second leaves at once: its own output is stuck
        direct.send_signal(signal.SIGINT)
        if _ == 0:
            eventually(lambda: not slots(rota), what="cancelled")
    assert direct.wait(PATIENCE) == -signal.SIGINT
    for stream in (direct.stdout, direct.stderr):
        assert stream is not None
        stream.close()


def test_json_has_stdout_to_itself(rota: Rota) -> None:
    said = rota.ask("run", "--json", "--name", "n", "--type", "t", "--", "sh", "-c", "echo out; exit 3", code=3)
    shown = said.json()
    assert said.err == "out\n"
    assert (shown["id"], shown["status"], shown["exit_code"], shown["name"]) == ("slot-1", "FAILED", 3, "n")
    assert Path(shown["log_paths"]["stdout"]).read_text() == "out\n"
    assert Path(shown["log_paths"]["stdout"]).stat().st_mode & 0o777 == 0o600


def test_slot_list_and_cancel(rota: Rota, stage: Stage) -> None:
    rota.start()
    assert rota.ask("slot", "list").err == "rota: no direct execution waits or runs\n"
    first = Client(rota, *stage.actor("first"))
    assert stage.hear() == ["first begins"]
    second = Client(rota, "--name", "the second", *stage.walk_on("second"))
    second.says("slot-2: ")
    lines = rota.ask("slot", "list").lines
    assert lines[0].split() == ["ID", "STATUS", "TIME", "ACTOR", "NAME/COMMAND", "WAIT"]
    assert lines[1].split()[:2] == ["slot-1", "RUNNING"]
    assert "the second" in lines[2]
    assert lines[2].endswith("waiting on pool global (1/1)")
    assert [each["id"] for each in rota.json("slot", "list")["slots"]] == ["slot-1", "slot-2"]
    assert rota.ask("slot", "cancel", "2", "slot-1").lines == ["slot-2 CANCELLED", "slot-1 CANCELLED"]
    for client in (first, second):
        said = client.end(143)
        assert "CANCELLED: cancelled by " in said.err
    assert rota.ask("slot", "cancel", "slot-77", code=3).err.startswith("rota: no such slot: slot-77")


def test_in_a_job_that_holds_the_only_place_it_does_not_wait_for_ever(rota: Rota) -> None:
    rota.start()
    words = rota.argv("run", "--wait", "300ms", "--", "true")
    job = rota.post(words, env={"ROTA_HOME": str(rota.home)})
    assert rota.ended(job)["exit_code"] == 75


def test_it_comes_and_goes_many_times_at_once(rota: Rota, stage: Stage) -> None:
    rota.start()
    clients = [Client(rota, *stage.walk_on(f"n{n}", n)) for n in range(6)]
    for number, client in enumerate(clients):
        client.end(number)
    heard = stage.heard()
    assert len(heard) == 12
    assert all(begins.split()[0] == ends.split()[0] for begins, ends in zip(heard[::2], heard[1::2], strict=True))
    all_free(rota)
    assert len(list((rota.home / "slots").iterdir())) >= 6


def test_ctrl_c_ends_a_shells_loop_around_it(rota: Rota, stage: Stage) -> None:
    """A shell goes on with the next unless the command was ended by the signal itself."""
    rota.start()
    command = shlex.join(rota.argv("run", "--", "sh", "-c", f"echo $$ > {stage.pipe}; sleep 1000"))
    loop = f"for n in 1 2; do {command}; done"
    shell = subprocess.Popen(["bash", "-c", loop], start_new_session=True, env=rota.env)
    assert stage.hear()[0].isdecimal()
    os.killpg(shell.pid, signal.SIGINT)
    assert shell.wait(PATIENCE) == -signal.SIGINT
    all_free(rota)
    assert [each["id"] for each in slots(rota)] == []
    assert slot(rota, "slot-1")["status"] == "CANCELLED"
    assert rota.api("GET", "/api/slots/slot-2").status == 404

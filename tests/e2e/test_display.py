"""`rota list` and `rota show` as people have set them, on a terminal and in a pipe."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import struct
import subprocess
import termios

import pytest

from e2e.rig import PATIENCE, Rota, Stage

NAME = "レビュー\033[2J\nwith a name that goes on and on and on and on"


AFTER = [{"job": "job-2"}, {"job": "job-1", "policy": "finished"}]
LOCKS = [{"key": "repo"}, {"key": "db", "mode": "shared"}]


@pytest.fixture
def busy(rota: Rota, stage: Stage) -> Rota:
    """One of each kind: ended, running, ready, behind a job, delayed."""
    rota.start()
    rota.ended(rota.post(["true"], name="done"))
    rota.post(stage.actor("build"), name="build", target="web", flow="impl", locks=[{"key": "repo"}])
    rota.post(["true"], name=NAME, target="api")
    rota.post(["true"], name="merge", target="web", after=AFTER, locks=LOCKS)
    rota.post(["true"], name="later", flow="impl", delay="1h")
    assert stage.hear() == ["build begins"]
    rota.running("job-2")
    return rota


def on_terminal(rota: Rota, columns: int, *words: str, **variables: str) -> list[str]:
    """What a person sees: both streams, in a window of that width."""
    screen, side = pty.openpty()
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {**rota.env, "TERM": "xterm", **variables}
    command = subprocess.Popen(rota.argv(*words), stdin=side, stdout=side, stderr=side, env=environment, cwd=rota.cwd)
    os.close(side)
    seen = b""
    with os.fdopen(screen, "rb", buffering=0) as reader:
        while True:
            try:
                part = reader.read(65536)
            except OSError:  # the last that held the other side has left
                break
            if not part:
                break
            seen += part
    assert command.wait(PATIENCE) == 0
    return seen.decode().split("\r\n")[:-1]


def width(line: str) -> int:
    return sum(2 if "\u3000" <= character <= "\uffef" else 1 for character in line)


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_a_list_fits_its_terminal(busy: Rota, columns: int) -> None:
    for words in (
        ["list"],
        ["list", "--all", "--by", "target"],
        ["list", "--by", "pool"],
        ["show", "3", "--format", "table"],
    ):
        seen = on_terminal(busy, columns, *words, NO_COLOR="1")
        rows = [line for line in seen if not line.startswith("rota: ")]
        assert max(width(line) for line in rows) <= columns, words
        assert any("レビュー" in line for line in rows)
        assert all(line.isprintable() for line in rows)


def test_colour_is_for_terminals_that_want_it(busy: Rota) -> None:
    assert any("\033[36mRUNNING" in line for line in on_terminal(busy, 80, "list"))
    assert not any("\033" in line for line in on_terminal(busy, 80, "list", NO_COLOR="1"))
    assert not any("\033" in line for line in on_terminal(busy, 80, "list", TERM="dumb"))
    assert "\033" not in busy.ask("list").out


def test_a_pipe_gets_everything(busy: Rota) -> None:
    assert r"レビュー\x1b[2J\nwith a name that goes on and on and on and on" in busy.ask("list").lines[2]


def test_what_is_not_ready_is_marked_and_agrees_with_status(busy: Rota) -> None:
    said = busy.ask("list", "--by", "target", "--fields", "id,wait")
    assert said.lines == [
        "   ID     WAIT",
        "",
        "target web: 2 jobs (1 running, 1 not ready)",
        "*  job-2",
        "-  job-4  waiting on job job-2",
        "",
        "target api: 1 job (1 ready)",
        "+  job-3  waiting on pool global (1/1)",
        "",
        "(no target): 1 job (1 not ready)",
        f"-  job-5  {busy.show('job-5')['wait']['detail']}",
    ]
    assert said.err.splitlines() == [
        "rota: * running, + ready, - not ready, . ended",
        "rota: 1 finished job hidden (1 COMPLETED); --all shows them",
    ]
    groups = busy.json("list", "--by", "target")["groups"]
    counted = {name: sum(group["counts"][name] for group in groups) for name in ("running", "ready")}
    status = busy.status()
    assert counted == {"running": status["running"], "ready": status["ready"]}


def test_by_pool_knows_limits_that_hold_for_each_of_a_kind(busy: Rota) -> None:
    busy.post(["true"], name="behind", flow="review", after=[{"job": "job-2"}])
    heads = [line for line in busy.ask("list", "--by", "pool").lines if line.startswith("pool")]
    assert heads == [
        "pool global 1/1: 5 jobs (1 running, 1 ready, 3 not ready)",
        "pool flow/impl 1/1: 2 jobs (1 running, 1 not ready)",
        "pool flow/review 0/1: 1 job (1 not ready)",
    ]
    busy.ask("pool", "set", "global", "-1")
    assert not any(line.startswith("pool global") for line in busy.ask("list", "--by", "pool").lines)


def test_what_is_configured_holds_at_once(busy: Rota) -> None:
    busy.ask("config", "set", "display.list.fields", "id,after,locks")
    assert busy.ask("list", "--status", "waiting-on-deps").lines == [
        "ID     AFTER                  LOCKS",
        "job-4  job-2, job-1:finished  db:shared, repo",
    ]
    assert busy.ask("config", "get", "display.list.fields").out == '["id", "after", "locks"]\n'
    with (busy.home / "rota.toml").open("a") as toml:
        toml.write('\n[display.show]\nfields = ["status", "run.exit_code"]\n')
    assert busy.ask("show", "1").lines == ["status             COMPLETED", "run.exit_code      0"]
    assert list(busy.json("show", "1")) == list(busy.show("job-1")), "programs get what they always got"
    refused = busy.ask("config", "set", "display.list.fields", "id,lock", code=2)
    assert (
        refused.err
        == "rota: display.list.fields cannot be \"id,lock\": there is no field 'lock'; did you mean locks?\n"
    )
    assert (
        busy.ask("list", "--fields", "id,lock", code=2).err == "rota: there is no field 'lock'; did you mean locks?\n"
    )
    busy.ask("config", "set", "display.list.fields", "default")
    assert busy.ask("list").lines[0].split() == ["ID", "STATUS", "NAME/COMMAND", "PRIO", "WAIT/REASON", "TIME"]


def test_some_jobs_only(busy: Rota) -> None:
    def ids(*words: str) -> list[str]:
        return [line.split()[0] for line in busy.ask("list", "--fields", "id", *words).lines[1:]]

    assert ids("--target", "web") == ["job-2", "job-4"]
    assert ids("--flow", "impl", "--target", "web") == ["job-2"]
    assert ids("--name", "done") == []
    assert ids("--name", "done", "--all") == ["job-1"]
    assert ids("--target", "web", "--status", "running") == ["job-2"]


def test_times_are_those_of_the_place(busy: Rota) -> None:
    created = busy.show("job-1")["created_at"]
    here = busy.ask("show", "1", "--fields", "created_at", "--format", "table", env={"TZ": "XYZ-5"}).lines[1]
    assert here[11:13] == f"{(int(created[11:13]) + 5) % 24:02d}"
    assert json.loads(busy.ask("show", "1", "--json", env={"TZ": "XYZ-5"}).out)["created_at"] == created


def test_ten_thousand_jobs_are_listed_whole(rota: Rota) -> None:
    rota.start()
    rota.set_global(0)
    for part in range(4):
        jobs = [{"command": ["true"], "target": f"t{number % 5}"} for number in range(2500)]
        assert rota.api("POST", "/api/jobs/batch", {"jobs": jobs}).status == 201, part
    lines = rota.ask("list", "--by", "target", "--fields", "id").lines
    assert [line for line in lines if line.startswith("target")] == [
        f"target t{number}: 2000 jobs (2000 ready)" for number in range(5)
    ]
    assert len({line for line in lines if line.startswith("+")}) == 10_000

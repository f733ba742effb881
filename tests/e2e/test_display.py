"""`rota list` and `rota show` with configured columns, on a terminal and in a pipe."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import struct
import subprocess
import termios

import pytest

from tests.e2e.rig import TIMEOUT, ChildControl, Rota

NAME = "レビュー\033[2J\twith a name that goes on and on and on and on"


AFTER = [{"job": "job-2"}, {"job": "job-1", "policy": "finished"}]
LOCKS = [{"key": "repo"}, {"key": "db", "mode": "shared"}]


@pytest.fixture
def busy(rota: Rota, children: ChildControl) -> Rota:
    """Home with one job of each kind: ended, running, ready, dependent, delayed."""
    rota.start()
    rota.wait_for_end(rota.post_job(["true"], name="done"))
    rota.post_job(children.gated("build"), name="build", target="web", flow="impl", locks=[{"key": "repo"}])
    rota.post_job(["true"], name=NAME, target="api")
    rota.post_job(["true"], name="merge", target="web", after=AFTER, locks=LOCKS)
    rota.post_job(["true"], name="later", flow="impl", delay="1h")
    assert children.read_lines() == ["build begins"]
    rota.wait_for_start("job-2")
    return rota


def on_terminal(rota: Rota, columns: int, *words: str, **variables: str) -> list[str]:
    """Return the lines that a command prints to a terminal of that width, from both streams."""
    terminal, terminal_end = pty.openpty()
    fcntl.ioctl(terminal_end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {**rota.env, "TERM": "xterm", **variables}
    command = subprocess.Popen(
        rota.argv(*words), stdin=terminal_end, stdout=terminal_end, stderr=terminal_end, env=environment, cwd=rota.cwd
    )
    os.close(terminal_end)
    output = b""
    with os.fdopen(terminal, "rb", buffering=0) as reader:
        while True:
            try:
                chunk = reader.read(65536)
            except OSError:  # every process has closed the other end
                break
            if not chunk:
                break
            output += chunk
    assert command.wait(TIMEOUT) == 0
    return output.decode().split("\r\n")[:-1]


def width(line: str) -> int:
    return sum(2 if "\u3000" <= character <= "\uffef" else 1 for character in line)


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_list_fits_the_terminal_width(busy: Rota, columns: int) -> None:
    for words in (
        ["list"],
        ["list", "--all", "--by", "target"],
        ["list", "--by", "pool"],
        ["show", "3", "--format", "table"],
    ):
        output = on_terminal(busy, columns, *words, NO_COLOR="1")
        rows = [line for line in output if not line.startswith("rota: ")]
        assert max(width(line) for line in rows) <= columns, words
        assert any("レビュー" in line for line in rows)
        assert all(line.isprintable() for line in rows)


def test_color_only_on_terminals_without_no_color(busy: Rota) -> None:
    assert any("\033[36mRUNNING" in line for line in on_terminal(busy, 80, "list"))
    assert not any("\033" in line for line in on_terminal(busy, 80, "list", NO_COLOR="1"))
    assert not any("\033" in line for line in on_terminal(busy, 80, "list", TERM="dumb"))
    assert "\033" not in busy.run("list").out


def test_names_are_not_truncated_in_a_pipe(busy: Rota) -> None:
    assert r"レビュー\x1b[2J\twith a name that goes on and on and on and on" in busy.run("list").lines[2]


def test_markers_of_list_agree_with_status(busy: Rota) -> None:
    output = busy.run("list", "--by", "target", "--fields", "id,wait")
    assert output.lines == [
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
    assert output.err.splitlines() == [
        "rota: * running, + ready, - not ready, . ended",
        "rota: 1 ended job hidden (1 COMPLETED); --all lists them",
    ]
    groups = busy.json("list", "--by", "target")["groups"]
    counted = {name: sum(group["counts"][name] for group in groups) for name in ("running", "ready")}
    status = busy.status()
    assert counted == {"running": status["running"], "ready": status["ready"]}


def test_list_by_pool_shows_per_name_pools(busy: Rota) -> None:
    busy.post_job(["true"], name="behind", flow="review", after=[{"job": "job-2"}])
    heads = [line for line in busy.run("list", "--by", "pool").lines if line.startswith("pool")]
    assert heads == [
        "pool global 1/1: 5 jobs (1 running, 1 ready, 3 not ready)",
        "pool flow/impl 1/1: 2 jobs (1 running, 1 not ready)",
        "pool flow/review 0/1: 1 job (1 not ready)",
    ]
    busy.run("pool", "set", "global", "-1")
    assert not any(line.startswith("pool global") for line in busy.run("list", "--by", "pool").lines)


def test_configured_fields_take_effect_immediately(busy: Rota) -> None:
    busy.run("config", "set", "display.list.fields", "id,after,locks")
    assert busy.run("list", "--status", "waiting-on-deps").lines == [
        "ID     AFTER                  LOCKS",
        "job-4  job-2, job-1:finished  db:shared, repo",
    ]
    assert busy.run("config", "get", "display.list.fields").out == '["id", "after", "locks"]\n'
    with (busy.home / "rota.toml").open("a") as toml:
        toml.write('\n[display.show]\nfields = ["status", "run.exit_code"]\n')
    assert busy.run("show", "1").lines == ["status             COMPLETED", "run.exit_code      0"]
    assert list(busy.json("show", "1")) == list(busy.show("job-1")), "JSON output has all fields"
    refused = busy.run("config", "set", "display.list.fields", "id,lock", code=2)
    assert refused.err == "rota: display.list.fields cannot be \"id,lock\": unknown field 'lock'; did you mean locks?\n"
    assert busy.run("list", "--fields", "id,lock", code=2).err == "rota: unknown field 'lock'; did you mean locks?\n"
    busy.run("config", "set", "display.list.fields", "default")
    assert busy.run("list").lines[0].split() == ["ID", "STATUS", "NAME/COMMAND", "PRIO", "WAIT/REASON", "TIME"]


def test_list_filters_by_target_flow_name_and_status(busy: Rota) -> None:
    def ids(*words: str) -> list[str]:
        return [line.split()[0] for line in busy.run("list", "--fields", "id", *words).lines[1:]]

    assert ids("--target", "web") == ["job-2", "job-4"]
    assert ids("--flow", "impl", "--target", "web") == ["job-2"]
    assert ids("--name", "done") == []
    assert ids("--name", "done", "--all") == ["job-1"]
    assert ids("--target", "web", "--status", "running") == ["job-2"]


def test_times_are_printed_in_the_local_time_zone(busy: Rota) -> None:
    created = busy.show("job-1")["created_at"]
    local = busy.run("show", "1", "--fields", "created_at", "--format", "table", env={"TZ": "XYZ-5"}).lines[1]
    assert local[11:13] == f"{(int(created[11:13]) + 5) % 24:02d}"
    assert json.loads(busy.run("show", "1", "--json", env={"TZ": "XYZ-5"}).out)["created_at"] == created


def test_list_prints_ten_thousand_jobs(rota: Rota) -> None:
    rota.start()
    rota.set_global_size(0)
    for chunk in range(4):
        jobs = [{"command": ["true"], "target": f"t{number % 5}"} for number in range(2500)]
        assert rota.api("POST", "/api/jobs/batch", {"jobs": jobs}).status == 201, chunk
    lines = rota.run("list", "--by", "target", "--fields", "id").lines
    assert [line for line in lines if line.startswith("target")] == [
        f"target t{number}: 2000 jobs (2000 ready)" for number in range(5)
    ]
    assert len({line for line in lines if line.startswith("+")}) == 10_000

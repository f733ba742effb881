"""`rota graph` of real jobs in a real repository: text, JSON and watch mode."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import time
from pathlib import Path

from tests.e2e.rig import TIMEOUT, ChildControl, Rota, eventually


def _git(repository: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=repository, check=True, capture_output=True, text=True).stdout.strip()


def _draw(rota: Rota, *words: str) -> list[str]:
    output = rota.run("graph", *words)
    assert output.out.isascii()
    assert "\033" not in output.out
    return output.lines


def test_graph_of_an_empty_home(read_only_rota: Rota) -> None:
    output = read_only_rota.run("graph")
    assert (output.out, output.err) == ("Outcome: No scheduled jobs\n", "")
    assert read_only_rota.json("graph") == {"nodes": [], "edges": []}
    assert read_only_rota.run("graph", "--format", "json").json() == {"nodes": [], "edges": []}
    assert read_only_rota.run("graph", "--job", "job-4", code=3).err.startswith("rota: no such job: job-4")


def test_graph_of_a_diamond_while_it_runs_and_after(rota: Rota, children: ChildControl, repository: Path) -> None:
    rota.run("pool", "set", "global", "-1")
    top = rota.submit("--name", "plan", "--type", "story", *children.gated("top"), cwd=repository)
    left, right = (
        rota.submit("--name", side, "--after", top, "--lock", "repo", *children.immediate(side), cwd=repository)
        for side in ("links", "rechts–")
    )
    bottom = rota.submit("--after", left, "--after", right, *children.immediate("bottom"), cwd=repository)
    rota.wait_for_start(top)
    assert _draw(rota) == [
        f"{bottom} WAITING_ON_DEPS [wait: waiting on job {left}]",
        f"|-- after:success -> {left} WAITING_ON_DEPS [links] [wait: waiting on job {top}] [locks: repo]",
        f"|   `-- after:success -> {top} RUNNING [story/plan]",
        f"`-- after:success -> {right} WAITING_ON_DEPS [rechts\\u2013] [wait: waiting on job {top}] [locks: repo]",
        f"    `-- after:success -> {top} RUNNING (see above)",
    ]
    assert _draw(rota, "--job", top, "--max-depth", "1") == [
        f"{top} RUNNING [story/plan]",
        f"{left} WAITING_ON_DEPS [links] [wait: waiting on job {top}] [locks: repo]",
        f"`-- after:success -> {top} RUNNING (see above)",
        f"{right} WAITING_ON_DEPS [rechts\\u2013] [wait: waiting on job {top}] [locks: repo]",
        f"`-- after:success -> {top} RUNNING (see above)",
    ]
    graph = rota.json("graph")
    assert [(node["id"], node["status"], node["wait"]) for node in graph["nodes"]] == [
        (top, "RUNNING", None),
        (left, "WAITING_ON_DEPS", f"waiting on job {top}"),
        (right, "WAITING_ON_DEPS", f"waiting on job {top}"),
        (bottom, "WAITING_ON_DEPS", f"waiting on job {left}"),
    ]
    assert {"from": bottom, "to": right, "after": {"policy": "success"}} in graph["edges"]
    children.release("top")
    rota.wait(bottom)
    assert _draw(rota) == ["Outcome: No scheduled jobs"]
    assert [line.strip("|-` ").split(" [")[0] for line in _draw(rota, "--all")] == [
        f"{bottom} COMPLETED",
        f"after:success -> {left} COMPLETED",
        f"after:success -> {top} COMPLETED",
        f"after:success -> {right} COMPLETED",
        f"after:success -> {top} COMPLETED (see above)",
    ]


def test_graph_shows_artifacts_of_a_repository(rota: Rota, children: ChildControl, repository: Path) -> None:
    """The state of branches and documents is read from git for each drawing."""
    rota.start()
    rota.set_global_size(-1)
    cwd = str(repository)
    (repository / "plans").mkdir()
    (repository / "plans/foo.md").write_text("a plan\n")
    _git(repository, "checkout", "-q", "-b", "draft/foo")
    _git(repository, "add", ".")
    _git(repository, "commit", "-q", "-m", "plan")
    head = _git(repository, "rev-parse", "HEAD")
    producer = rota.post_job(children.gated("maker"), cwd=cwd, produces=["plan_commits:foo", "file:out"], name="maker")
    consumer = rota.post_job(
        children.gated("user"),
        cwd=cwd,
        pin=f"draft/foo@{head}",
        missing_producer="wait",
        needs=["plan_doc:foo", "file:out", "plan_branch:bar"],
    )
    rota.wait_for_start(producer)
    expected = [
        f"{consumer} WAITING_ON_DEPS [wait: waiting on file:{cwd}/out] [pinned: draft/foo@{head[:8]}]",
        "|-- plan_doc:foo (draft/foo) [present]",
        f"|-- file:{cwd}/out -> {producer} RUNNING [maker]",
        "`-- plan_branch:bar (draft/bar) [missing]",
    ]
    assert eventually(lambda: (lines := _draw(rota)) == expected and lines, description="the drawing") == expected
    assert rota.json("graph")["edges"] == [
        {
            "from": consumer,
            "to": "artifact:plan_doc:foo (draft/foo)",
            "artifact": "plan_doc:foo (draft/foo)",
            "state": "present",
        },
        {"from": consumer, "to": producer, "artifact": f"file:{cwd}/out"},
        {
            "from": consumer,
            "to": "artifact:plan_branch:bar (draft/bar)",
            "artifact": "plan_branch:bar (draft/bar)",
            "state": "missing",
        },
    ]
    (repository / "out").touch()
    _git(repository, "branch", "draft/bar")
    children.release("maker")
    rota.wait_for_start(consumer)
    _git(repository, "branch", "-D", "draft/bar")
    assert _draw(rota)[-1] == "`-- plan_branch:bar (draft/bar) [missing]", (
        "the drawing shows artifacts that no job waits for"
    )
    children.release("user")
    rota.wait(consumer)


def test_graph_long_poll_returns_on_a_change(rota: Rota, children: ChildControl) -> None:
    rota.start()
    job = rota.post_job(children.gated("a"))
    rota.wait_for_start(job)
    connection = rota.connection()
    connection.request("GET", "/api/graph?format=dag")
    response = connection.getresponse()
    tag, body = response.headers["ETag"], response.read()
    assert body == f'{{"text":"{job} RUNNING","skipped":0}}'.encode()
    connection.close()
    cached = rota.api("GET", "/api/graph?format=dag", If_None_Match=tag)
    assert (cached.status, cached.body) == (304, b"")
    connection = rota.connection()
    connection.request("GET", "/api/graph?format=dag&wait=60", headers={"If-None-Match": tag})
    children.release("a")
    response = connection.getresponse()
    assert (response.status, response.headers["ETag"] != tag) == (200, True)
    assert b"No scheduled jobs" in response.read()
    connection.close()


def test_invalid_graph_query_is_refused(read_only_rota: Rota) -> None:
    for query, text in {
        "format=svg": "the query cannot be used: Invalid enum value 'svg' - at `$.format`",
        "all=yes": "the query cannot be used: Expected `bool`, got `str` - at `$.all`",
        "job=plan": "not a job id: 'plan'; a job id looks like job-24",
        "max_depth=-1": "the query cannot be used: Expected `int` >= 0 - at `$.max_depth`",
        "max_depth=deep": "the query cannot be used: Expected `int`, got `str` - at `$.max_depth`",
        "depth=2": "unknown query parameter 'depth'; did you mean max_depth?",
    }.items():
        refused = read_only_rota.api("GET", f"/api/graph?{query}")
        assert (refused.status, refused.json()["detail"]) == (422, text)


def _read_page(process: subprocess.Popen[bytes]) -> list[str]:
    """Return the lines up to the next empty line."""
    assert process.stdout is not None
    return [line.decode().rstrip("\n") for line in iter(process.stdout.readline, b"\n")]


def test_watch_redraws_on_changes_and_ends_with_ctrl_c(rota: Rota, children: ChildControl) -> None:
    first = rota.submit("--name", "one", *children.gated("one"))
    second = rota.submit("--after", first, *children.gated("two"))
    rota.wait_for_start(first)
    process = rota.spawn("graph", "--watch")
    assert _read_page(process) == [
        f"{second} WAITING_ON_DEPS [wait: waiting on job {first}]",
        f"`-- after:success -> {first} RUNNING [one]",
    ]
    children.release("one")
    while (lines := _read_page(process)) != [f"{second} RUNNING", f"`-- after:success -> {first} COMPLETED [one]"]:
        assert lines[0].startswith(second)
    process.send_signal(signal.SIGINT)
    output = rota.finish(process)
    assert (output.code, output.err) == (130, "")
    children.release("two")
    rota.wait(second)


def test_watch_on_a_terminal_overwrites_the_previous_drawing(rota: Rota, children: ChildControl) -> None:
    job = rota.submit(*children.gated("a"))
    rota.wait_for_start(job)
    terminal, terminal_end = pty.openpty()
    process = rota.spawn("graph", "--watch", stdout=terminal_end, env={"TERM": "xterm"})
    os.close(terminal_end)
    screen = _Screen(terminal)
    screen.wait_for(f"\r{job} RUNNING\033[K\r\n\033[J")
    children.release("a")
    screen.wait_for("\r\033[1AOutcome: No scheduled jobs\033[K\r\n\033[J")
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=TIMEOUT)[1] == b""
    assert process.returncode == -signal.SIGINT
    os.close(terminal)


class _Screen:
    """Output on a pseudo-terminal that a test can wait for."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._text = ""

    def wait_for(self, text: str) -> None:
        deadline = time.monotonic() + TIMEOUT
        while text not in self._text:
            assert select.select([self._descriptor], [], [], max(0.0, deadline - time.monotonic()))[0], self._text
            self._text += os.read(self._descriptor, 65536).decode()


def test_watch_ends_when_the_scheduler_stops(rota: Rota) -> None:
    rota.start()
    process = rota.spawn("graph", "--watch")
    assert _read_page(process) == ["Outcome: No scheduled jobs"]
    rota.run("down")
    output = rota.finish(process)
    assert (output.code, output.err) == (
        1,
        "rota: the scheduler was stopped meanwhile; start it with `rota up`, then try again\n",
    )

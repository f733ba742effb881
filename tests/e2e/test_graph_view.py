"""`rota graph` as a person sees it: real jobs in a real repository, drawn, given as JSON, and watched."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import time
from pathlib import Path

from e2e.rig import PATIENCE, Rota, Stage, eventually


def _git(repository: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=repository, check=True, capture_output=True, text=True).stdout.strip()


def _drawn(rota: Rota, *words: str) -> list[str]:
    said = rota.ask("graph", *words)
    assert said.out.isascii()
    assert "\033" not in said.out
    return said.lines


def test_nothing_is_scheduled(untouched: Rota) -> None:
    said = untouched.ask("graph")
    assert (said.out, said.err) == ("Outcome: No scheduled jobs\n", "")
    assert untouched.json("graph") == {"nodes": [], "edges": []}
    assert untouched.ask("graph", "--format", "json").json() == {"nodes": [], "edges": []}
    assert untouched.ask("graph", "--job", "job-4", code=3).err.startswith("rota: no such job: job-4")


def test_a_diamond_while_it_runs_and_after(rota: Rota, stage: Stage, repository: Path) -> None:
    rota.ask("pool", "set", "global", "-1")
    top = rota.submit("--name", "plan", "--type", "story", *stage.actor("top"), cwd=repository)
    left, right = (
        rota.submit("--name", side, "--after", top, "--lock", "repo", *stage.walk_on(side), cwd=repository)
        for side in ("links", "rechts–")
    )
    bottom = rota.submit("--after", left, "--after", right, *stage.walk_on("bottom"), cwd=repository)
    rota.running(top)
    assert _drawn(rota) == [
        f"{bottom} WAITING_ON_DEPS [wait: waiting on job {left}]",
        f"|-- after:success -> {left} WAITING_ON_DEPS [links] [wait: waiting on job {top}] [locks: repo]",
        f"|   `-- after:success -> {top} RUNNING [story/plan]",
        f"`-- after:success -> {right} WAITING_ON_DEPS [rechts\\u2013] [wait: waiting on job {top}] [locks: repo]",
        f"    `-- after:success -> {top} RUNNING (see above)",
    ]
    assert _drawn(rota, "--job", top, "--max-depth", "1") == [
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
    stage.release("top")
    rota.wait(bottom)
    assert _drawn(rota) == ["Outcome: No scheduled jobs"]
    assert [line.strip("|-` ").split(" [")[0] for line in _drawn(rota, "--all")] == [
        f"{bottom} COMPLETED",
        f"after:success -> {left} COMPLETED",
        f"after:success -> {top} COMPLETED",
        f"after:success -> {right} COMPLETED",
        f"after:success -> {top} COMPLETED (see above)",
    ]


def test_artifacts_of_a_repository(rota: Rota, stage: Stage, repository: Path) -> None:
    """The branch and the document are git's, and are seen as they are now."""
    rota.start()
    rota.set_global(-1)
    cwd = str(repository)
    (repository / "plans").mkdir()
    (repository / "plans/foo.md").write_text("a plan\n")
    _git(repository, "checkout", "-q", "-b", "draft/foo")
    _git(repository, "add", ".")
    _git(repository, "commit", "-q", "-m", "plan")
    head = _git(repository, "rev-parse", "HEAD")
    maker = rota.post(stage.actor("maker"), cwd=cwd, produces=["plan_commits:foo", "file:out"], name="maker")
    user = rota.post(
        stage.actor("user"), cwd=cwd, pin=f"draft/foo@{head}", missing_producer="wait",
        needs=["plan_doc:foo", "file:out", "plan_branch:bar"],
    )  # fmt: skip
    rota.running(maker)
    expected = [
        f"{user} WAITING_ON_DEPS [wait: waiting on file:{cwd}/out] [pinned: draft/foo@{head[:8]}]",
        "|-- plan_doc:foo (draft/foo) [present]",
        f"|-- file:{cwd}/out -> {maker} RUNNING [maker]",
        "`-- plan_branch:bar (draft/bar) [missing]",
    ]
    assert eventually(lambda: (lines := _drawn(rota)) == expected and lines, what="the drawing") == expected
    assert rota.json("graph")["edges"] == [
        {"from": user, "to": "artifact:plan_doc:foo (draft/foo)", "artifact": "plan_doc:foo (draft/foo)",
         "state": "present"},
        {"from": user, "to": maker, "artifact": f"file:{cwd}/out"},
        {"from": user, "to": "artifact:plan_branch:bar (draft/bar)", "artifact": "plan_branch:bar (draft/bar)",
         "state": "missing"},
    ]  # fmt: skip
    (repository / "out").touch()
    _git(repository, "branch", "draft/bar")
    stage.release("maker")
    rota.running(user)
    _git(repository, "branch", "-D", "draft/bar")
    assert _drawn(rota)[-1] == "`-- plan_branch:bar (draft/bar) [missing]", "nobody waits for it, and yet it is seen"
    stage.release("user")
    rota.wait(user)


def test_over_http_it_is_told_when_it_changes(rota: Rota, stage: Stage) -> None:
    rota.start()
    job = rota.post(stage.actor("a"))
    rota.running(job)
    connection = rota.connection()
    connection.request("GET", "/api/graph?format=dag")
    response = connection.getresponse()
    tag, body = response.headers["ETag"], response.read()
    assert body == f'{{"text":"{job} RUNNING","left_out":0}}'.encode()
    connection.close()
    again = rota.api("GET", "/api/graph?format=dag", If_None_Match=tag)
    assert (again.status, again.body) == (304, b"")
    connection = rota.connection()
    connection.request("GET", "/api/graph?format=dag&wait=60", headers={"If-None-Match": tag})
    stage.release("a")
    response = connection.getresponse()
    assert (response.status, response.headers["ETag"] != tag) == (200, True)
    assert b"No scheduled jobs" in response.read()
    connection.close()


def test_what_cannot_be_asked(untouched: Rota) -> None:
    for query, text in {
        "format=svg": "the query cannot be used: Invalid enum value 'svg' - at `$.format`",
        "all=yes": "the query cannot be used: Expected `bool`, got `str` - at `$.all`",
        "job=plan": "not a job id: 'plan'; a job id looks like job-24",
        "max_depth=-1": "the query cannot be used: Expected `int` >= 0 - at `$.max_depth`",
        "max_depth=deep": "the query cannot be used: Expected `int`, got `str` - at `$.max_depth`",
        "depth=2": "nothing is asked by 'depth' here; known are format, all, job, max_depth, wait",
    }.items():
        refused = untouched.api("GET", f"/api/graph?{query}")
        assert (refused.status, refused.json()["detail"]) == (422, text)


def _page(process: subprocess.Popen[bytes]) -> list[str]:
    """Up to the empty line."""
    assert process.stdout is not None
    return [line.decode().rstrip("\n") for line in iter(process.stdout.readline, b"\n")]


def test_watch_draws_again_when_something_happens_and_ends_by_ctrl_c(rota: Rota, stage: Stage) -> None:
    first = rota.submit("--name", "one", *stage.actor("one"))
    second = rota.submit("--after", first, *stage.actor("two"))
    rota.running(first)
    process = rota.begin("graph", "--watch")
    assert _page(process) == [
        f"{second} WAITING_ON_DEPS [wait: waiting on job {first}]",
        f"`-- after:success -> {first} RUNNING [one]",
    ]
    stage.release("one")
    while (page := _page(process)) != [f"{second} RUNNING", f"`-- after:success -> {first} COMPLETED [one]"]:
        assert page[0].startswith(second)
    process.send_signal(signal.SIGINT)
    said = rota.end(process)
    assert (said.code, said.err) == (130, "")
    stage.release("two")
    rota.wait(second)


def test_watch_on_a_terminal_draws_over_what_it_drew(rota: Rota, stage: Stage) -> None:
    job = rota.submit(*stage.actor("a"))
    rota.running(job)
    ours, theirs = pty.openpty()
    process = rota.begin("graph", "--watch", stdout=theirs, env={"TERM": "xterm"})
    os.close(theirs)
    screen = _Screen(ours)
    screen.shows(f"\r{job} RUNNING\033[K\r\n\033[J")
    stage.release("a")
    screen.shows("\r\033[1AOutcome: No scheduled jobs\033[K\r\n\033[J")
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=PATIENCE)[1] == b""
    assert process.returncode == -signal.SIGINT
    os.close(ours)


class _Screen:
    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._seen = ""

    def shows(self, text: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while text not in self._seen:
            assert select.select([self._descriptor], [], [], max(0.0, deadline - time.monotonic()))[0], self._seen
            self._seen += os.read(self._descriptor, 65536).decode()


def test_watch_ends_with_the_scheduler(rota: Rota) -> None:
    rota.start()
    process = rota.begin("graph", "--watch")
    assert _page(process) == ["Outcome: No scheduled jobs"]
    rota.ask("down")
    said = rota.end(process)
    assert (said.code, said.err) == (
        1,
        "rota: the scheduler was stopped meanwhile; `rota up` starts it, then ask again\n",
    )

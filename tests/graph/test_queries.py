"""The dependency graph over real stores: selection of jobs, edges, artifacts, and number of statements."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from rota.db.postgres.store import PostgresStore
from rota.db.session import Reader
from rota.errors import NotFound
from rota.graph import queries
from rota.graph.queries import DrawingDraft, GraphDraft, GraphOptions, draft_drawing, draft_graph
from rota.ids import JobId, format_job_id
from rota.jobs.queries import ViewContext
from rota.jobs.submission import DefaultEnvironment, Submission
from rota.jobs.submit import submit
from rota.kernel.facts import BranchHead, FileExists
from rota.kernel.status import Status
from tests.harness import Scheduler

OID = "a" * 40


def _render(
    scheduler: Scheduler, read: Callable[[Reader, GraphOptions, ViewContext], DrawingDraft | GraphDraft], options: Any
) -> Any:
    """Read, probe and render the graph, as the API does."""
    with scheduler.reader.read_transaction():
        draft = read(scheduler.reader, GraphOptions(**options), scheduler.view_context)
    known = scheduler.view_context.observations
    probed = scheduler.probe.observe(draft.unproduced.facts_to_probe(known))
    return msgspec.to_builtins(draft.render(msgspec.structs.replace(known, observed={**known.observed, **probed})))


def draw_lines(scheduler: Scheduler, **options: Any) -> list[str]:
    drawing = _render(scheduler, draft_drawing, options)
    assert drawing["skipped"] == 0
    return drawing["text"].split("\n")  # type: ignore[no-any-return]


def render_graph(scheduler: Scheduler, **options: Any) -> Any:
    return _render(scheduler, draft_graph, options)


def test_empty_graph_has_the_specified_text(scheduler: Scheduler) -> None:
    assert draw_lines(scheduler) == ["Outcome: No scheduled jobs"]
    assert render_graph(scheduler) == {"nodes": [], "edges": []}
    scheduler.end_run(scheduler.submit())
    assert draw_lines(scheduler) == ["Outcome: No scheduled jobs"]


def test_lines_show_labels_waits_locks_and_pins(scheduler: Scheduler) -> None:
    scheduler.probe.values[BranchHead("/repo/.git", "main")] = OID
    scheduler.submit("sleep", "9", name="plan", type="story", target="web", locks=["repo"])
    scheduler.submit(after=[JobId(1)], name="build", locks=["repo:shared"], pin="main")
    assert draw_lines(scheduler) == [
        "job-2 WAITING_ON_DEPS [build] [wait: waiting on job job-1] [locks: repo:shared] [pinned: main@aaaaaaaa]",
        "`-- after:success -> job-1 RUNNING [story/plan/web] [locks: repo]",
    ]


def test_waits_in_graph_match_waits_of_the_gates(unlimited_scheduler: Scheduler) -> None:
    """The same functions serve dispatch, `why` and `graph`."""
    unlimited_scheduler.probe.values[BranchHead("/repo/.git", "main")] = OID
    unlimited_scheduler.submit(locks=["k"])
    unlimited_scheduler.submit(locks=["k"])
    unlimited_scheduler.submit(delay="1h")
    unlimited_scheduler.submit(pin=f"main@{'b' * 40}")
    unlimited_scheduler.submit(needs=["file:/x"], missing_producer="wait")
    unlimited_scheduler.submit(needs=["file:/x"], missing_producer="block")
    waits = [node["wait"] for node in render_graph(unlimited_scheduler)["nodes"]]
    assert waits == [unlimited_scheduler.wait_detail(JobId(number)) for number in range(1, 7)]
    assert waits == [
        None,
        "waiting on locks",
        "not before 2026-01-01T01:00:00Z",
        "pinned head mismatch on main",
        "awaiting producer for file:/x",
        "missing file:/x",
    ]


def test_nodes_and_edges_have_the_specified_format(scheduler: Scheduler) -> None:
    scheduler.probe.values[BranchHead("/repo/.git", "draft/foo")] = OID
    producer = scheduler.submit("make", "it all", produces=["plan_doc:foo"])
    scheduler.submit(
        "sh", "-c", "x > y", after=[f"{format_job_id(producer)}:finished"], needs=["plan_doc:foo", "plan_branch:foo"]
    )
    assert render_graph(scheduler) == {
        "nodes": [
            {"id": "job-1", "status": "RUNNING", "command": "make 'it all'", "wait": None},
            {"id": "job-2", "status": "WAITING_ON_DEPS", "command": "sh -c 'x > y'", "wait": "waiting on job job-1"},
        ],
        "edges": [
            {"from": "job-2", "to": "job-1", "after": {"policy": "finished"}},
            {"from": "job-2", "to": "job-1", "artifact": "plan_doc:foo (draft/foo)"},
            {
                "from": "job-2",
                "to": "artifact:plan_branch:foo (draft/foo)",
                "artifact": "plan_branch:foo (draft/foo)",
                "state": "present",
            },
        ],
    }


def test_artifacts_with_one_producer_several_and_none(scheduler: Scheduler) -> None:
    scheduler.probe.values[FileExists("/there")] = True
    scheduler.submit(produces=["file:/one", "file:/two"])
    scheduler.submit(produces=["file:/two"])
    scheduler.submit(needs=["file:/one", "file:/two", "file:/there", "custom:report:weekly"], missing_producer="wait")
    assert draw_lines(scheduler) == [
        "job-3 WAITING_ON_DEPS [wait: waiting on file:/one]",
        "|-- file:/one -> job-1 RUNNING",
        "|-- file:/two -> job-1 RUNNING (see above)",
        "|-- file:/two -> job-2 QUEUED [wait: waiting on pool global (1/1)]",
        "|-- file:/there [present]",
        "`-- custom:report:weekly [missing]",
    ]


def test_job_does_not_depend_on_itself(unlimited_scheduler: Scheduler) -> None:
    unlimited_scheduler.probe.values[FileExists("/x")] = True
    unlimited_scheduler.submit(needs=["file:/x"], produces=["file:/x"])
    assert draw_lines(unlimited_scheduler) == ["job-1 RUNNING", "`-- file:/x [present]"]


def test_unwatched_artifact_is_probed_for_the_graph(unlimited_scheduler: Scheduler) -> None:
    """The engine probes only the needs of waiting jobs, so its observation may be older than the start of the job."""
    unlimited_scheduler.probe.values[FileExists("/x")] = True
    job = unlimited_scheduler.submit(needs=["file:/x"])
    assert unlimited_scheduler.status(job) is Status.DISPATCHED
    del unlimited_scheduler.probe.values[FileExists("/x")]
    assert draw_lines(unlimited_scheduler) == ["job-1 RUNNING", "`-- file:/x [missing]"]


def test_watched_artifact_is_not_probed_again(scheduler: Scheduler) -> None:
    scheduler.submit(needs=["file:/x"], missing_producer="wait")
    probe_count = scheduler.probe.probe_count
    with scheduler.reader.read_transaction():
        draft = draft_drawing(scheduler.reader, GraphOptions(), scheduler.view_context)
    assert draft.unproduced.facts_to_probe(scheduler.view_context.observations) == set()
    assert scheduler.probe.probe_count == probe_count
    unprobed = msgspec.structs.replace(scheduler.view_context.observations, observed={})
    assert draft.unproduced.facts_to_probe(unprobed) == {FileExists("/x")}
    assert draft.render(unprobed).text.endswith("`-- file:/x [unknown]")


def test_ended_job_is_shown_only_with_dependents(unlimited_scheduler: Scheduler) -> None:
    first = unlimited_scheduler.submit(name="first")
    second = unlimited_scheduler.submit(after=[first], name="second")
    third = unlimited_scheduler.submit(after=[second], name="third")
    unlimited_scheduler.end_run(first)
    unlimited_scheduler.end_run(second, 3)
    lonely = unlimited_scheduler.submit()
    unlimited_scheduler.end_run(lonely)
    assert unlimited_scheduler.status(third) is Status.BLOCKED_BY_DEPENDENCY
    assert draw_lines(unlimited_scheduler) == [
        "job-3 BLOCKED_BY_DEPENDENCY [third] [wait: dependency failed for job job-2 (FAILED)]",
        "`-- after:success -> job-2 FAILED [second]",
    ]
    assert render_graph(unlimited_scheduler) == {
        "nodes": [
            {
                "id": "job-3",
                "status": "BLOCKED_BY_DEPENDENCY",
                "command": "true",
                "wait": "dependency failed for job job-2 (FAILED)",
            }
        ],
        "edges": [{"from": "job-3", "to": "job-2", "after": {"policy": "success"}}],
    }
    assert [node["id"] for node in render_graph(unlimited_scheduler, focus=second)["nodes"]] == ["job-2", "job-3"]
    assert draw_lines(unlimited_scheduler, with_ended=True) == [
        "job-3 BLOCKED_BY_DEPENDENCY [third] [wait: dependency failed for job job-2 (FAILED)]",
        "`-- after:success -> job-2 FAILED [second]",
        "    `-- after:success -> job-1 COMPLETED [first]",
        "job-4 COMPLETED",
    ]


def test_edges_lead_to_last_job_of_chain(unlimited_scheduler: Scheduler) -> None:
    flaky = unlimited_scheduler.submit(name="flaky", retries=2, produces=["file:/x"])
    unlimited_scheduler.end_run(flaky, 7)
    unlimited_scheduler.submit(after=[flaky], needs=["file:/x"])
    assert draw_lines(unlimited_scheduler) == [
        "job-3 WAITING_ON_DEPS [wait: waiting on job job-2]",
        "|-- after:success -> job-2 QUEUED [flaky] [wait: not before 2026-01-01T00:00:10Z]",
        "`-- file:/x -> job-2 QUEUED (see above)",
    ]
    assert draw_lines(unlimited_scheduler, with_ended=True)[-1] == "job-1 FAILED [flaky]"
    assert [node["id"] for node in render_graph(unlimited_scheduler)["nodes"]] == ["job-2", "job-3"]
    assert draw_lines(unlimited_scheduler, focus=flaky)[0].startswith("job-2 QUEUED"), (
        "the focus is the last job of the chain"
    )


def test_focus_shows_last_retry_of_consumer(unlimited_scheduler: Scheduler) -> None:
    base = unlimited_scheduler.submit()
    unlimited_scheduler.end_run(base)
    unlimited_scheduler.end_run(unlimited_scheduler.submit(after=[base], retries=1), 7)
    assert [node["id"] for node in render_graph(unlimited_scheduler, focus=base)["nodes"]] == ["job-1", "job-3"]
    assert [node["id"] for node in render_graph(unlimited_scheduler, focus=base, with_ended=True)["nodes"]] == [
        "job-1",
        "job-2",
        "job-3",
    ]


def test_edges_keep_the_order_of_the_submit(scheduler: Scheduler) -> None:
    one, two = scheduler.submit(), scheduler.submit()
    scheduler.submit(after=[two, one])
    assert [edge["to"] for edge in render_graph(scheduler)["edges"]] == ["job-2", "job-1"]


def test_put_artifact_is_present(scheduler: Scheduler) -> None:
    scheduler.submit(needs=["custom:report:weekly"], missing_producer="wait")
    assert draw_lines(scheduler)[1] == "`-- custom:report:weekly [missing]"
    (report,) = scheduler.reader.artifacts.watched()
    scheduler.run_request(lambda tx: tx.artifacts.put(report.id, None, None, tx.now))
    assert draw_lines(scheduler)[1] == "`-- custom:report:weekly [present]"


@pytest.mark.damages_store
def test_retried_blocked_job_is_not_shown(unlimited_scheduler: Scheduler, run_sql: Any) -> None:
    bad = unlimited_scheduler.submit()
    blocked = unlimited_scheduler.submit(after=[bad])
    unlimited_scheduler.end_run(bad, 1)
    run_sql(f"UPDATE job SET retried_as = 9 WHERE id = {blocked}")
    assert draw_lines(unlimited_scheduler) == ["Outcome: No scheduled jobs"]
    assert len(draw_lines(unlimited_scheduler, with_ended=True)) == 2


def _submit_row(scheduler: Scheduler, length: int) -> None:
    scheduler.submit()
    for number in range(2, length + 1):
        scheduler.submit(after=[JobId(number - 1)])


def test_focus_shows_jobs_up_to_max_depth(scheduler: Scheduler) -> None:
    _submit_row(scheduler, 9)
    scheduler.submit()
    assert [node["id"] for node in render_graph(scheduler, focus=JobId(5))["nodes"]] == [
        f"job-{n}" for n in range(2, 9)
    ]
    assert [line.split(" [")[0] for line in draw_lines(scheduler, focus=JobId(5))] == [
        "job-5 WAITING_ON_DEPS",
        "`-- after:success -> job-4 WAITING_ON_DEPS",
        "    `-- after:success -> job-3 WAITING_ON_DEPS",
        "        `-- after:success -> job-2 WAITING_ON_DEPS",
        "job-8 WAITING_ON_DEPS",
        "`-- after:success -> job-7 WAITING_ON_DEPS",
        "    `-- after:success -> job-6 WAITING_ON_DEPS",
        "        `-- after:success -> job-5 WAITING_ON_DEPS (see above)",
    ]
    near = render_graph(scheduler, focus=JobId(5), max_depth=1)
    assert [node["id"] for node in near["nodes"]] == ["job-4", "job-5", "job-6"]
    assert [(edge["from"], edge["to"]) for edge in near["edges"]] == [("job-5", "job-4"), ("job-6", "job-5")]
    assert draw_lines(scheduler, focus=JobId(5), max_depth=1)[1].endswith("[wait: waiting on job job-3] ...")
    assert [node["id"] for node in render_graph(scheduler, focus=JobId(5), max_depth=0)["nodes"]] == ["job-5"]


def test_focus_shows_consumers_of_its_artifacts(scheduler: Scheduler) -> None:
    producer = scheduler.submit(produces=["file:/x"])
    user = scheduler.submit(needs=["file:/x", "file:/y"], missing_producer="wait", name="user")
    assert draw_lines(scheduler, focus=producer) == [
        "job-1 RUNNING",
        "job-2 WAITING_ON_DEPS [user] [wait: waiting on file:/x] ...",
        "`-- file:/x -> job-1 RUNNING (see above)",
    ]
    assert draw_lines(scheduler, focus=user) == [
        "job-2 WAITING_ON_DEPS [user] [wait: waiting on file:/x]",
        "|-- file:/x -> job-1 RUNNING",
        "`-- file:/y [missing]",
    ]


def test_focus_omits_other_predecessors_of_its_consumers(scheduler: Scheduler) -> None:
    one, other = scheduler.submit(), scheduler.submit()
    scheduler.submit(after=[one, other])
    assert [node["id"] for node in render_graph(scheduler, focus=one)["nodes"]] == ["job-1", "job-3"]
    assert render_graph(scheduler, focus=one)["edges"] == [
        {"from": "job-3", "to": "job-1", "after": {"policy": "success"}}
    ]


def test_ended_focus_is_shown_and_other_ended_jobs_on_request(unlimited_scheduler: Scheduler) -> None:
    first = unlimited_scheduler.submit()
    middle = unlimited_scheduler.submit(after=[first])
    last = unlimited_scheduler.submit(after=[middle])
    for job in (first, middle, last):
        unlimited_scheduler.end_run(job)
    assert draw_lines(unlimited_scheduler, focus=middle) == ["job-2 COMPLETED", "`-- after:success -> job-1 COMPLETED"]
    assert [node["id"] for node in render_graph(unlimited_scheduler, focus=middle)["nodes"]] == ["job-2"]
    assert draw_lines(unlimited_scheduler, focus=middle, with_ended=True) == [
        "job-2 COMPLETED",
        "`-- after:success -> job-1 COMPLETED",
        "job-3 COMPLETED",
        "`-- after:success -> job-2 COMPLETED (see above)",
    ]


def test_unknown_focus_is_refused(scheduler: Scheduler) -> None:
    with pytest.raises(NotFound, match="no such job: job-7; `rota list --all` lists all jobs"):
        draw_lines(scheduler, focus=JobId(7))


def test_unreadable_record_does_not_hide_its_job(scheduler: Scheduler, run_sql: Any) -> None:
    scheduler.submit()
    scheduler.submit()
    run_sql("UPDATE spec SET command = 'no json' WHERE id = 2")
    assert [node["command"] for node in render_graph(scheduler)["nodes"]] == ["true", ""]


def test_jobs_beyond_the_limit_are_counted_as_skipped(
    unlimited_scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "MAX_DRAWN_JOBS", 3)
    monkeypatch.setattr(queries, "MAX_LISTED_JOBS", 2)
    for _ in range(5):
        unlimited_scheduler.submit()
    drawing = _render(unlimited_scheduler, draft_drawing, {})
    assert (drawing["text"], drawing["skipped"]) == ("job-1 RUNNING\njob-2 RUNNING\njob-3 RUNNING", 2)
    assert (len(render_graph(unlimited_scheduler)["nodes"]), render_graph(unlimited_scheduler)["skipped"]) == (2, 3)
    for _ in range(3):
        unlimited_scheduler.submit(after=[JobId(1)])
    neighborhood = render_graph(unlimited_scheduler, focus=JobId(1))
    assert ([node["id"] for node in neighborhood["nodes"]], neighborhood["skipped"]) == (["job-1", "job-6"], 2)


class CountingDatabase:
    """A database that counts its statements."""

    def __init__(self, database: Any) -> None:
        self._database = database
        self.statements = 0

    def rows(self, name: str, /, **values: Any) -> Any:
        self.statements += 1
        return self._database.rows(name, **values)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)


def _count_statements(scheduler: Scheduler, read: Any, **options: Any) -> tuple[int, Any]:
    database: Any = CountingDatabase(scheduler.reader._db)
    reader, scheduler.reader = scheduler.reader, Reader(database)
    try:
        rendered = _render(scheduler, read, options)
    finally:
        scheduler.reader = reader
    assert database.statements
    return database.statements, rendered


def _submit_many(scheduler: Scheduler, bodies: list[dict[str, Any]]) -> None:
    submissions = msgspec.convert(bodies, list[Submission])
    environment = DefaultEnvironment(cwd="/", variables={"PATH": "/usr/bin:/bin"})
    scheduler.run_request(lambda tx: submit(tx, submissions, environment, actor="tester"))


def test_thousands_of_jobs_need_few_statements(scheduler: Scheduler) -> None:
    """With the default limits the graph takes less than a second, so the number of statements must not grow
    with the number of jobs."""
    limit = 1000 if isinstance(scheduler.store, PostgresStore) else 3000
    max_statements = 25
    scheduler.submit(locks=["hold"])
    _submit_many(
        scheduler,
        [
            {"command": ["true"], "locks": [{"key": f"k{number}"}, {"key": "hold"}]}
            if number % 10 == 0
            else {"command": ["true"], "after": [{"job": f"job-{number - 1}"}]}
            for number in range(2, limit + 1)
        ],
    )
    count, output = _count_statements(scheduler, draft_graph)
    assert (count <= max_statements, len(output["nodes"]), len(output["edges"])) == (True, limit, limit * 9 // 10 - 1)
    assert output["nodes"][9]["wait"] == "waiting on locks"
    assert output["nodes"][limit - 2]["wait"] == f"waiting on job job-{limit - 2}"
    count, output = _count_statements(scheduler, draft_drawing)
    lines = output["text"].split("\n")
    assert (count <= max_statements, len(lines)) == (True, 500)
    assert output["skipped"] == limit - len({job for line in lines for job in re.findall(r"(job-\d+) [A-Z]", line)})
    count, output = _count_statements(scheduler, draft_drawing, focus=JobId(limit // 2 + 5))
    assert (count <= max_statements, output["skipped"]) == (True, 0)

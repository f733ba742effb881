"""`graph` over real stores: what is selected, where edges lead, what is said of artifacts, and what it costs."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from harness import Scheduler
from rota.command.submission import Submission, Surroundings
from rota.command.submit import submit
from rota.core.fact import File, Head
from rota.core.status import Status
from rota.errors import NotFound
from rota.ids import JobId, show_job
from rota.store.postgres.store import PostgresStore
from rota.store.session import Reader
from rota.view import graph as view
from rota.view.graph import Adjacency, Picture, Wanted, adjacency, picture
from rota.view.job import Sight

OID = "a" * 40


def _said(scheduler: Scheduler, read: Callable[[Reader, Wanted, Sight], Picture | Adjacency], wanted: Any) -> Any:
    """As the API does it: read, look outside, say."""
    with scheduler.reader.reading():
        seen = read(scheduler.reader, Wanted(**wanted), scheduler.sight)
    outside = scheduler.sight.outside
    found = scheduler.probe.look(seen.leaves.unseen(outside))
    return msgspec.to_builtins(seen.said(msgspec.structs.replace(outside, seen={**outside.seen, **found})))


def drawn(scheduler: Scheduler, **wanted: Any) -> list[str]:
    said = _said(scheduler, picture, wanted)
    assert said["left_out"] == 0
    return said["text"].split("\n")  # type: ignore[no-any-return]


def listed(scheduler: Scheduler, **wanted: Any) -> Any:
    return _said(scheduler, adjacency, wanted)


def test_nothing_is_said_as_the_seed_says_it(scheduler: Scheduler) -> None:
    assert drawn(scheduler) == ["Outcome: No scheduled jobs"]
    assert listed(scheduler) == {"nodes": [], "edges": []}
    scheduler.end(scheduler.submit())
    assert drawn(scheduler) == ["Outcome: No scheduled jobs"]


def test_a_node_says_all_there_is_to_say(scheduler: Scheduler) -> None:
    scheduler.probe.world[Head("/repo/.git", "main")] = OID
    scheduler.submit("sleep", "9", name="plan", type="story", target="web", locks=["repo"])
    scheduler.submit(after=[JobId(1)], name="build", locks=["repo:shared"], pin="main")
    assert drawn(scheduler) == [
        "job-2 WAITING_ON_DEPS [build] [wait: waiting on job job-1] [locks: repo:shared] [pinned: main@aaaaaaaa]",
        "`-- after:success -> job-1 RUNNING [story/plan/web] [locks: repo]",
    ]


def test_each_gate_speaks_as_it_does_elsewhere(wide: Scheduler) -> None:
    """DESIGN §3: the same functions serve dispatch, `why` and `graph`."""
    wide.probe.world[Head("/repo/.git", "main")] = OID
    wide.submit(locks=["k"])
    wide.submit(locks=["k"])
    wide.submit(delay="1h")
    wide.submit(pin=f"main@{'b' * 40}")
    wide.submit(needs=["file:/x"], missing_producer="wait")
    wide.submit(needs=["file:/x"])
    said = [node["wait"] for node in listed(wide)["nodes"]]
    assert said == [wide.detail(JobId(number)) for number in range(1, 7)]
    assert said == [
        None, "waiting on locks", "not before 2026-01-01T01:00:00Z", "pinned head mismatch on main",
        "awaiting producer for file:/x", "missing file:/x",
    ]  # fmt: skip


def test_edges_have_the_form_of_the_seed(scheduler: Scheduler) -> None:
    scheduler.probe.world[Head("/repo/.git", "draft/foo")] = OID
    maker = scheduler.submit("make", "it all", produces=["plan_doc:foo"])
    scheduler.submit(
        "sh", "-c", "x > y", after=[f"{show_job(maker)}:finished"], needs=["plan_doc:foo", "plan_branch:foo"]
    )
    assert listed(scheduler) == {
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


def test_artifacts_with_one_maker_with_several_and_with_none(scheduler: Scheduler) -> None:
    scheduler.probe.world[File("/there")] = True
    scheduler.submit(produces=["file:/one", "file:/two"])
    scheduler.submit(produces=["file:/two"])
    scheduler.submit(needs=["file:/one", "file:/two", "file:/there", "custom:report:weekly"], missing_producer="wait")
    assert drawn(scheduler) == [
        "job-3 WAITING_ON_DEPS [wait: waiting on file:/one]",
        "|-- file:/one -> job-1 RUNNING",
        "|-- file:/two -> job-1 RUNNING (see above)",
        "|-- file:/two -> job-2 QUEUED [wait: waiting on pool global (1/1)]",
        "|-- file:/there [present]",
        "`-- custom:report:weekly [missing]",
    ]


def test_a_job_does_not_hang_on_itself(wide: Scheduler) -> None:
    wide.probe.world[File("/x")] = True
    wide.submit(needs=["file:/x"], produces=["file:/x"])
    assert drawn(wide) == ["job-1 RUNNING", "`-- file:/x [present]"]


def test_what_nobody_waits_for_is_looked_at_when_it_is_asked_for(wide: Scheduler) -> None:
    """The prober looks only at what waiting jobs need: what it saw before the job began is of before."""
    wide.probe.world[File("/x")] = True
    job = wide.submit(needs=["file:/x"])
    assert wide.status(job) is Status.DISPATCHED
    del wide.probe.world[File("/x")]
    assert drawn(wide) == ["job-1 RUNNING", "`-- file:/x [missing]"]


def test_what_the_prober_has_seen_is_not_looked_at_again(scheduler: Scheduler) -> None:
    scheduler.submit(needs=["file:/x"], missing_producer="wait")
    looks = scheduler.probe.looks
    with scheduler.reader.reading():
        seen = picture(scheduler.reader, Wanted(), scheduler.sight)
    assert seen.leaves.unseen(scheduler.sight.outside) == set()
    assert scheduler.probe.looks == looks
    unseen = msgspec.structs.replace(scheduler.sight.outside, seen={})
    assert seen.leaves.unseen(unseen) == {File("/x")}, "nobody has looked yet"
    assert seen.said(unseen).text.endswith("`-- file:/x [unknown]")


def test_what_has_ended_is_shown_only_where_something_hangs_on_it(wide: Scheduler) -> None:
    first = wide.submit(name="first")
    second = wide.submit(after=[first], name="second")
    third = wide.submit(after=[second], name="third")
    wide.end(first)
    wide.end(second, 3)
    lonely = wide.submit()
    wide.end(lonely)
    assert wide.status(third) is Status.BLOCKED_BY_DEPENDENCY
    assert drawn(wide) == [
        "job-3 BLOCKED_BY_DEPENDENCY [third] [wait: dependency failed for job job-2 (FAILED)]",
        "`-- after:success -> job-2 FAILED [second]",
    ]
    assert listed(wide) == {
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
    assert [node["id"] for node in listed(wide, focus=second)["nodes"]] == ["job-2", "job-3"]
    assert drawn(wide, with_ended=True) == [
        "job-3 BLOCKED_BY_DEPENDENCY [third] [wait: dependency failed for job job-2 (FAILED)]",
        "`-- after:success -> job-2 FAILED [second]",
        "    `-- after:success -> job-1 COMPLETED [first]",
        "job-4 COMPLETED",
    ]


def test_edges_lead_to_the_last_job_of_a_chain(wide: Scheduler) -> None:
    flaky = wide.submit(name="flaky", retries=2, produces=["file:/x"])
    wide.end(flaky, 7)
    wide.submit(after=[flaky], needs=["file:/x"])
    assert drawn(wide) == [
        "job-3 WAITING_ON_DEPS [wait: waiting on job job-1]",
        "|-- after:success -> job-2 QUEUED [flaky] [wait: not before 2026-01-01T00:00:10Z]",
        "`-- file:/x -> job-2 QUEUED (see above)",
    ]
    assert drawn(wide, with_ended=True)[-1] == "job-1 FAILED [flaky]"
    assert [node["id"] for node in listed(wide)["nodes"]] == ["job-2", "job-3"]
    assert drawn(wide, focus=flaky)[0].startswith("job-2 QUEUED"), "what became of it is what is looked at"


def test_of_a_consumer_that_was_retried_the_last_is_around_the_focus(wide: Scheduler) -> None:
    base = wide.submit()
    wide.end(base)
    wide.end(wide.submit(after=[base], retries=1), 7)
    assert [node["id"] for node in listed(wide, focus=base)["nodes"]] == ["job-1", "job-3"]
    assert [node["id"] for node in listed(wide, focus=base, with_ended=True)["nodes"]] == ["job-1", "job-2", "job-3"]


def test_edges_stand_in_the_order_in_which_they_were_named(scheduler: Scheduler) -> None:
    one, two = scheduler.submit(), scheduler.submit()
    scheduler.submit(after=[two, one])
    assert [edge["to"] for edge in listed(scheduler)["edges"]] == ["job-2", "job-1"]


def test_what_was_put_is_present(scheduler: Scheduler) -> None:
    scheduler.submit(needs=["custom:report:weekly"], missing_producer="wait")
    assert drawn(scheduler)[1] == "`-- custom:report:weekly [missing]"
    (report,) = scheduler.reader.watched_artifacts()
    scheduler.do(lambda work: work.session.put(report.id, None, None, work.now))
    assert drawn(scheduler)[1] == "`-- custom:report:weekly [present]"


def test_a_blocked_job_that_was_tried_again_gives_way(wide: Scheduler, raw: Any) -> None:
    bad = wide.submit()
    blocked = wide.submit(after=[bad])
    wide.end(bad, 1)
    raw(f"UPDATE job SET retried_as = 9 WHERE id = {blocked}")
    assert drawn(wide) == ["Outcome: No scheduled jobs"]
    assert len(drawn(wide, with_ended=True)) == 2


def _row(scheduler: Scheduler, length: int) -> None:
    scheduler.submit()
    for number in range(2, length + 1):
        scheduler.submit(after=[JobId(number - 1)])


def test_the_focus_has_around_it_what_is_few_steps_away(scheduler: Scheduler) -> None:
    _row(scheduler, 9)
    scheduler.submit()
    assert [node["id"] for node in listed(scheduler, focus=JobId(5))["nodes"]] == [f"job-{n}" for n in range(2, 9)]
    assert [line.split(" [")[0] for line in drawn(scheduler, focus=JobId(5))] == [
        "job-5 WAITING_ON_DEPS",
        "`-- after:success -> job-4 WAITING_ON_DEPS",
        "    `-- after:success -> job-3 WAITING_ON_DEPS",
        "        `-- after:success -> job-2 WAITING_ON_DEPS",
        "job-8 WAITING_ON_DEPS",
        "`-- after:success -> job-7 WAITING_ON_DEPS",
        "    `-- after:success -> job-6 WAITING_ON_DEPS",
        "        `-- after:success -> job-5 WAITING_ON_DEPS (see above)",
    ]
    near = listed(scheduler, focus=JobId(5), max_depth=1)
    assert [node["id"] for node in near["nodes"]] == ["job-4", "job-5", "job-6"]
    assert [(edge["from"], edge["to"]) for edge in near["edges"]] == [("job-5", "job-4"), ("job-6", "job-5")]
    assert drawn(scheduler, focus=JobId(5), max_depth=1)[1].endswith("[wait: waiting on job job-3] ...")
    assert [node["id"] for node in listed(scheduler, focus=JobId(5), max_depth=0)["nodes"]] == ["job-5"]


def test_the_focus_finds_those_who_need_what_it_makes(scheduler: Scheduler) -> None:
    maker = scheduler.submit(produces=["file:/x"])
    user = scheduler.submit(needs=["file:/x", "file:/y"], missing_producer="wait", name="user")
    assert drawn(scheduler, focus=maker) == [
        "job-1 RUNNING",
        "job-2 WAITING_ON_DEPS [user] [wait: waiting on file:/x] ...",
        "`-- file:/x -> job-1 RUNNING (see above)",
    ]
    assert drawn(scheduler, focus=user) == [
        "job-2 WAITING_ON_DEPS [user] [wait: waiting on file:/x]",
        "|-- file:/x -> job-1 RUNNING",
        "`-- file:/y [missing]",
    ]


def test_the_focus_leaves_out_what_its_neighbours_hang_on_besides(scheduler: Scheduler) -> None:
    one, other = scheduler.submit(), scheduler.submit()
    scheduler.submit(after=[one, other])
    assert [node["id"] for node in listed(scheduler, focus=one)["nodes"]] == ["job-1", "job-3"]
    assert listed(scheduler, focus=one)["edges"] == [{"from": "job-3", "to": "job-1", "after": {"policy": "success"}}]


def test_a_focus_that_has_ended_is_there_and_its_past_only_when_asked_for(wide: Scheduler) -> None:
    first = wide.submit()
    middle = wide.submit(after=[first])
    last = wide.submit(after=[middle])
    for job in (first, middle, last):
        wide.end(job)
    assert drawn(wide, focus=middle) == ["job-2 COMPLETED", "`-- after:success -> job-1 COMPLETED"]
    assert [node["id"] for node in listed(wide, focus=middle)["nodes"]] == ["job-2"]
    assert drawn(wide, focus=middle, with_ended=True) == [
        "job-2 COMPLETED",
        "`-- after:success -> job-1 COMPLETED",
        "job-3 COMPLETED",
        "`-- after:success -> job-2 COMPLETED (see above)",
    ]


def test_a_focus_that_is_not_there(scheduler: Scheduler) -> None:
    with pytest.raises(NotFound, match="no such job: job-7; `rota list --all` shows what there is"):
        drawn(scheduler, focus=JobId(7))


def test_a_record_that_cannot_be_read_hides_nothing(scheduler: Scheduler, raw: Any) -> None:
    scheduler.submit()
    scheduler.submit()
    raw("UPDATE spec SET command = 'no json' WHERE id = 2")
    assert [node["command"] for node in listed(scheduler)["nodes"]] == ["true", ""]


def test_what_is_not_read_is_counted(wide: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view, "MOST_DRAWN", 3)
    monkeypatch.setattr(view, "MOST_LISTED", 2)
    for _ in range(5):
        wide.submit()
    said = _said(wide, picture, {})
    assert (said["text"], said["left_out"]) == ("job-1 RUNNING\njob-2 RUNNING\njob-3 RUNNING", 2)
    assert (len(listed(wide)["nodes"]), listed(wide)["left_out"]) == (2, 3)
    for _ in range(3):
        wide.submit(after=[JobId(1)])
    around = listed(wide, focus=JobId(1))
    assert ([node["id"] for node in around["nodes"]], around["left_out"]) == (["job-1", "job-6"], 2)


class Counted:
    """A database that counts what it is asked."""

    def __init__(self, database: Any) -> None:
        self._database = database
        self.statements = 0

    def rows(self, name: str, /, **values: Any) -> Any:
        self.statements += 1
        return self._database.rows(name, **values)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)


def _statements(scheduler: Scheduler, read: Any, **wanted: Any) -> tuple[int, Any]:
    counted = Counted(scheduler.reader._db)
    scheduler.reader._db = counted
    try:
        said = _said(scheduler, read, wanted)
    finally:
        scheduler.reader._db = counted._database
    return counted.statements, said


def _submit_many(scheduler: Scheduler, bodies: list[dict[str, Any]]) -> None:
    wanted = msgspec.convert(bodies, list[Submission])
    around = Surroundings(cwd="/", variables={"PATH": "/usr/bin:/bin"})
    scheduler.do(lambda work: submit(work, wanted, around, actor="tester"))


def test_thousands_of_jobs_are_read_in_a_few_statements(scheduler: Scheduler) -> None:
    """DESIGN §12: with its default limits it answers in under a second, which no number of statements that grows with
    the jobs would allow."""
    most = 1000 if isinstance(scheduler.store, PostgresStore) else 3000
    few = 25
    scheduler.submit(locks=["hold"])
    _submit_many(
        scheduler,
        [
            {"command": ["true"], "locks": [{"key": f"k{number}"}, {"key": "hold"}]} if number % 10 == 0 else
            {"command": ["true"], "after": [{"job": f"job-{number - 1}"}]}
            for number in range(2, most + 1)
        ],
    )  # fmt: skip
    count, said = _statements(scheduler, adjacency)
    assert (count <= few, len(said["nodes"]), len(said["edges"])) == (True, most, most * 9 // 10 - 1)
    assert said["nodes"][9]["wait"] == "waiting on locks"
    assert said["nodes"][most - 2]["wait"] == f"waiting on job job-{most - 2}"
    count, said = _statements(scheduler, picture)
    lines = said["text"].split("\n")
    assert (count <= few, len(lines)) == (True, 500)
    assert said["left_out"] == most - len({job for line in lines for job in re.findall(r"(job-\d+) [A-Z]", line)})
    count, said = _statements(scheduler, picture, focus=JobId(most // 2 + 5))
    assert (count <= few, said["left_out"]) == (True, 0)

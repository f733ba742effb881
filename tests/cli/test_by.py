"""Jobs under headings."""

from __future__ import annotations

from typing import Any

from rota.cli.by import counts, groups, heading


def job(number: int, status: str = "QUEUED", **fields: Any) -> dict[str, Any]:
    return {"id": f"job-{number}", "status": status, "wait": None, **fields}


POOLS = {
    "pools": {"global": {"size": 2, "used": 1}, "flow/b": {"size": -1, "used": 0}, "flow/a": {"size": 0, "used": 0}},
    "each": {"flow": 3, "type": -1},
}


def ids(found: list[tuple[str | None, list[dict[str, Any]]]]) -> dict[str | None, list[str]]:
    return {key: [each["id"] for each in jobs] for key, jobs in found}


def test_groups_and_their_jobs_keep_the_order_of_the_queue_and_the_rest_comes_last() -> None:
    jobs = [job(4), job(9, target="z"), job(2, target="a"), job(1, target="z"), job(3, target=None)]
    found = ids(groups(jobs, "target"))
    assert list(found.items()) == [("z", ["job-9", "job-1"]), ("a", ["job-2"]), (None, ["job-4", "job-3"])]


def test_by_pool_a_job_stands_under_each_pool_that_has_a_limit() -> None:
    jobs = [
        job(1, pools={"global": 1, "flow/a": 1}),
        job(2, pools={"flow/b": 1}),
        job(3, pools={"flow/c": 1, "type/t": 1, "resource/r": 1}),
    ]
    found = ids(groups(jobs, "pool", POOLS))
    assert found == {"global": ["job-1"], "flow/a": ["job-1"], "flow/c": ["job-3"], None: ["job-2"]}
    assert heading("pool", "global", jobs[:1], POOLS) == "pool global 1/2: 1 job (1 ready)"
    assert heading("pool", "flow/a", jobs[:1], POOLS) == "pool flow/a 0/0: 1 job (1 ready)"
    assert heading("pool", "flow/c", jobs[2:], POOLS) == "pool flow/c 0/3: 1 job (1 ready)"
    assert heading("pool", None, jobs[1:2], POOLS) == "(no pool with a limit): 1 job (1 ready)"


def test_a_heading_counts() -> None:
    jobs = [job(1, "RUNNING"), job(2), job(3, "WAITING_ON_LOCKS"), job(4, "FAILED"), job(5)]
    assert counts(jobs) == {"running": 1, "ready": 2, "not_ready": 1, "ended": 1}
    assert heading("target", "we\033b", jobs) == r"target we\x1bb: 5 jobs (1 running, 2 ready, 1 not ready, 1 ended)"
    assert heading("group", None, jobs[:1]) == "(no group): 1 job (1 running)"

"""Jobs grouped under headings."""

from __future__ import annotations

import tracemalloc
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from rota.cli.terminal import OutputError
from rota.jobs.cli.list import JobGrouping


def job(number: int, status: str = "QUEUED", **fields: Any) -> dict[str, Any]:
    return {"id": f"job-{number}", "status": status, "wait": None, **fields}


POOLS = {
    "pools": {"global": {"size": 2, "used": 1}, "flow/b": {"size": -1, "used": 0}, "flow/a": {"size": 0, "used": 0}},
    "defaults": {"flow": 3, "type": -1},
}


def grouped(jobs: list[dict[str, Any]], by: str, pools: dict[str, Any] | None = None) -> dict[str, list[str]]:
    """Return the jobs under each heading."""
    grouping = JobGrouping(by, pools, BytesIO())
    for record in jobs:
        grouping.add(record, record["id"])
    return {grouping.heading(group): list(grouping.rendered_jobs(group)) for group in grouping.groups()}


def test_groups_and_jobs_keep_queue_order_with_ungrouped_jobs_last() -> None:
    jobs = [job(4), job(9, target="z"), job(2, target="a"), job(1, target="z"), job(3, target=None)]
    assert list(grouped(jobs, "target").items()) == [
        ("target z: 2 jobs (2 ready)", ["job-9", "job-1"]),
        ("target a: 1 job (1 ready)", ["job-2"]),
        ("(no target): 2 jobs (2 ready)", ["job-4", "job-3"]),
    ]


def test_job_is_listed_under_each_limited_pool() -> None:
    jobs = [
        job(1, pools={"global": 1, "flow/a": 1}),
        job(2, pools={"flow/b": 1}),
        job(3, pools={"flow/c": 1, "type/t": 1, "resource/r": 1}),
    ]
    assert grouped(jobs, "pool", POOLS) == {
        "pool global 1/2: 1 job (1 ready)": ["job-1"],
        "pool flow/a 0/0: 1 job (1 ready)": ["job-1"],
        "pool flow/c 0/3: 1 job (1 ready)": ["job-3"],
        "(no pool with a limit): 1 job (1 ready)": ["job-2"],
    }


def test_heading_counts_jobs_by_mark() -> None:
    jobs = [job(1, "RUNNING"), job(2), job(3, "WAITING_ON_LOCKS"), job(4, "FAILED"), job(5)]
    (heading,) = grouped([{**record, "target": "we\033b"} for record in jobs], "target")
    assert heading == r"target we\x1bb: 5 jobs (1 running, 2 ready, 1 not ready, 1 ended)"
    assert list(grouped(jobs[:1], "group")) == ["(no group): 1 job (1 running)"]


def test_grouped_jobs_are_stored_in_the_file(tmp_path: Path) -> None:
    with (tmp_path / "rendered").open("w+b") as file:
        grouping = JobGrouping("target", None, file)
        tracemalloc.start()
        for number in range(2000):
            grouping.add(job(number, target=f"t{number % 3}"), f"{number} {'x' * 10_000}")
        read = [text.split()[0] for group in grouping.groups() for text in grouping.rendered_jobs(group)]
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert read == [str(number) for rest in range(3) for number in range(rest, 2000, 3)]
    assert peak < 1_000_000, "twenty million bytes were printed"


def test_full_temporary_directory_is_reported() -> None:
    with Path("/dev/full").open("wb", buffering=0) as file, pytest.raises(OutputError, match=r"No space .* set TMPDIR"):
        JobGrouping("target", None, file).add(job(1), "job-1")

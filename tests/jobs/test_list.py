"""Long lists of jobs in pages."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from rota.ids import JobId, format_job_id
from rota.jobs.queries import render_jobs
from rota.kernel.status import Status
from tests.harness import Scheduler

PAGE = 50


def test_cost_of_a_page_does_not_depend_on_its_depth(scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each page takes about the same number of statements and rows. Jobs are ready or delayed, contend for locks, or
    depend on others."""
    first = scheduler.submit()
    kinds: list[dict[str, Any]] = [{}, {"delay": "1h"}, {"locks": [{"key": "a"}]}, {"after": [format_job_id(first)]}]
    scheduler.submit_group(*(kinds[number % 4] for number in range(6 * PAGE - 1)))
    costs, listed = list[tuple[int, int]](), list[JobId]()
    database = scheduler.reader._db
    read_rows = database.rows

    def count_rows(name: str, /, **values: Any) -> Any:
        rows = read_rows(name, **values)
        cost.update(statements=1, rows=len(rows))
        return rows

    monkeypatch.setattr(database, "rows", count_rows)
    cursor = None
    while True:
        cost = Counter[str]()
        ids = scheduler.reader.jobs.list_ids(Status, limit=PAGE, cursor=cursor)
        jobs = scheduler.reader.jobs.find_all(ids)
        assert len(render_jobs(scheduler.reader, jobs, scheduler.view_context)) == len(ids)
        if not ids:
            break
        listed += ids
        cursor = scheduler.reader.jobs.cursor_of(ids[-1])
        costs.append((cost["statements"], cost["rows"]))
    assert listed == list(range(1, 6 * PAGE + 1))
    statements, rows = zip(*costs[1:], strict=True)
    assert max(statements) <= min(statements) + 2, costs
    assert max(rows) <= 10 * PAGE, costs

"""The search for a job that can probe costs by lanes, not by parked jobs."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from rota.db.sqlite.database import translate_statement
from rota.db.sqlite.store import SqliteStore
from rota.db.statements import load_statements


@pytest.mark.parametrize(("name", "lists"), [("idle_lanes", {"keys": '["type/x"]'}), ("wake_parked", {"lanes": "[1]"})])
def test_parked_jobs_are_read_by_lane_index(tmp_path: Path, name: str, lists: dict[str, str]) -> None:
    SqliteStore(tmp_path / "rota.db").session().close()
    with closing(sqlite3.connect(tmp_path / "rota.db")) as connection:
        values = {**lists, "limit": 1}
        steps = [
            row[3]
            for row in connection.execute(f"EXPLAIN QUERY PLAN {load_statements(translate_statement)[name]}", values)
        ]
    assert any("job_held (not_before=? AND lane=?)" in step for step in steps)

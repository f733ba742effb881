"""The hot statements walk an index, never the table of jobs: a tick costs what happened, not what is queued."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from rota.store.sqlite.database import translate
from rota.store.sqlite.store import SqliteStore
from rota.store.statement import load

STATEMENTS = load(translate)
HOT = (
    "heads", "stirred", "first_stirred", "next_due", "stir_due", "front_held", "front_first",
    "front_first_exclusive", "exclusive_behind", "running", "lanes", "chains", "speaking_edges", "active_ids",
    "active_ids_of", "ended_ids_of",
    "newest_active_ids", "list_ended_runs", "list_open_runs",
    "ended_ids", "standing", "claim", "place", "unstir", "open_run", "open_run_of", "open_runs", "last_of_chain",
    "awaited", "stir_successors", "count_down_successors", "close_edges", "stir_job", "stir_contenders",
    "leave_locks", "hold_locks", "finish_job", "finish_run", "request_stop", "end_waiting", "jobs", "edges_of",
    "locks_of", "latest_runs", "orders", "events_since", "events_of_job", "find_answer",
    "entries", "entries_of_kinds", "entries_of_group", "entries_of_job", "members_of_chains",
    "add_retry", "mark_retried", "mark_spent", "unretried", "hurry", "patience_of", "count_up_successors",
    "reopen_edges", "blocked_successors", "job_of_run", "active_of_keys",
    "find_lane", "find_surroundings", "count_waiting", "count_held", "count_started", "count_ready_now",
    "add_failure", "stir_contending", "stir_parked", "count_parked", "half_open_breaker", "close_breaker",
    "first_queued", "first_due", "first_waiting", "clearable",
    "find_artifact", "needs_of", "producers_of", "pins_of", "named_by", "watched_artifacts", "watched_heads",
    "stir_needing", "stir_pinned", "made_by", "made_anew", "take_back_put", "needed", "makers_of", "open_edges_of",
    "active_vertices", "blocked_vertices", "edges_out", "last_makers", "consumers", "captions", "fronts_of",
    "old_chains", "chain_members", "chain_referrers", "named_chains", "touched_since", "count_runs_of",
    "count_events_of", "remove_events", "remove_runs", "remove_edges", "remove_locks", "remove_jobs", "remove_specs",
    "last_event", "jobless_events", "remove_jobless_events", "answers_from", "answers_of_status", "answers_among",
    "remove_answers", "remove_old_answers", "fresh_slots", "uses_from",
    "queued", "line_behind", "line_before", "count_before", "waiting_line", "waiting_at", "set_rank", "set_lock_rank",
    "respace", "respace_locks", "spec_of", "own_spec", "edit_spec", "set_delay", "lock_keys", "lock_owners",
    "lock_line", "count_lock_line", "ended_since", "running_in", "templates_by_id", "remove_templates",
    "any_hook", "hooks_of", "receivers", "pending_tries", "pending_of", "count_pending", "deliveries",
    "latest_deliveries", "deliveries_of_job", "deliveries_of_webhook", "tries_of", "end_delivery", "give_up_deliveries",
    "old_deliveries", "stale_deliveries", "give_up_stale",
    "schedule", "schedule_named", "due_schedules", "first_due_schedule", "set_next_fire",
    "active_of_schedule", "has_fire", "fires_of", "count_fires", "old_fires",
)  # fmt: skip
SORTED_BY_AN_INDEX = (
    "heads", "stirred", "first_stirred", "next_due", "front_first", "front_first_exclusive", "exclusive_behind",
    "active_ids", "active_ids_of", "events_since", "events_of_job", "last_of_chain", "last_dispatch",
    "entries", "entries_of_kinds", "entries_of_group", "entries_of_job",
    "old_chains", "jobless_events", "answers_from", "answers_of_status", "uses_from", "line_behind", "line_before",
    "waiting_line", "respace", "lock_line", "first_queued", "first_due", "first_waiting", "clearable", "ended_since",
    "running_in", "pending_of", "count_pending", "latest_deliveries", "deliveries_of_job", "deliveries_of_webhook",
    "tries_of", "old_deliveries", "due_schedules", "first_due_schedule", "fires_of", "active_of_schedule",
)  # fmt: skip
LISTS = ("artifacts", "chains", "ids", "keys", "kinds", "lanes", "names", "policies", "seqs", "statuses")


@pytest.fixture(scope="module")
def connection(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sqlite3.Connection]:
    path: Path = tmp_path_factory.mktemp("plan") / "rota.db"
    SqliteStore(path).session().close()
    with closing(sqlite3.connect(path)) as connection:
        yield connection


def plan_of(connection: sqlite3.Connection, name: str) -> list[str]:
    sql = STATEMENTS[name]
    values = {word: "[1, 2]" if word in LISTS else 1 for word in re.findall(r":(\w+)", sql)}
    return [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", values)]


@pytest.mark.parametrize("name", HOT)
def test_a_hot_statement_uses_an_index(connection: sqlite3.Connection, name: str) -> None:
    steps = plan_of(connection, name)
    assert steps
    whole = [
        step
        for step in steps
        if re.match(r"SCAN (?!json_each|speaking|met|wanted|walked|.subquery|CONSTANT)", step) and "INDEX" not in step
    ]
    assert whole == []
    assert not any("AUTOMATIC" in step for step in steps)


def test_recovery_finds_missing_retries_without_a_walk_through_history(connection: sqlite3.Connection) -> None:
    """LESSONS: every restart "recovered" all of history. The index holds only what is missing: nothing."""
    assert any("job_unretried" in step for step in plan_of(connection, "unretried"))


@pytest.mark.parametrize(
    ("name", "index"),
    [("list_ended_runs", "run_ended"), ("ended_ids", "job_ended"), ("newest_active_ids", "_active")],
)
def test_who_asks_for_one_status_walks_over_no_other(connection: sqlite3.Connection, name: str, index: str) -> None:
    assert any(index in step for step in plan_of(connection, name))


@pytest.mark.parametrize("name", SORTED_BY_AN_INDEX)
def test_and_the_order_of_the_queue_is_the_order_of_an_index(connection: sqlite3.Connection, name: str) -> None:
    assert not any("TEMP B-TREE" in step for step in plan_of(connection, name))

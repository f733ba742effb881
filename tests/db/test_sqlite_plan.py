"""Query plans on SQLite: hot statements use indexes, so the cost of a tick does not grow with the queue."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from rota.db.sqlite.database import translate_statement
from rota.db.sqlite.store import SqliteStore
from rota.db.statements import load_statements

STATEMENTS = load_statements(translate_statement)
HOT = (
    "heads",
    "dirty_jobs",
    "first_dirty",
    "next_due",
    "wake_due",
    "front_held",
    "front_first",
    "front_first_exclusive",
    "next_exclusive_waiter",
    "pool_usage",
    "lanes",
    "chain_states",
    "blocking_edges",
    "waiting_ids",
    "waiting_ids_of",
    "ended_ids_of",
    "started_ids",
    "started_ids_of",
    "started_ids_in",
    "list_cursor_of",
    "newest_active_ids",
    "list_ended_runs",
    "list_open_runs",
    "ended_ids",
    "candidates",
    "claim",
    "place_job",
    "clear_dirty",
    "open_run",
    "open_run_of",
    "open_runs",
    "last_of_chain",
    "chain_dependents",
    "unreadable_edges",
    "unreadable_locks",
    "repair_lock",
    "wake_successors",
    "decrement_unmet_of_successors",
    "close_edges",
    "wake_job",
    "wake_contenders",
    "release_locks",
    "hold_locks",
    "finish_job",
    "finish_run",
    "request_stop",
    "end_waiting",
    "jobs",
    "edges_of",
    "locks_of",
    "latest_runs",
    "dispatches",
    "events_since",
    "events_of_job",
    "find_response",
    "entries",
    "entries_of_kinds",
    "entries_of_group",
    "entries_of_job",
    "jobs_of_chains",
    "add_retry",
    "mark_retried",
    "mark_permanently_failed",
    "unretried_failures",
    "reset_backoff",
    "backoff_of",
    "increment_unmet_of_successors",
    "reopen_edges",
    "blocked_successors",
    "job_of_run",
    "key_holders",
    "find_lane",
    "find_environment",
    "count_waiting",
    "count_held",
    "count_started",
    "count_ready_now",
    "add_failure",
    "wake_contending",
    "wake_parked",
    "count_parked",
    "half_open_breaker",
    "close_breaker",
    "first_queued",
    "first_due",
    "first_waiting",
    "clearable",
    "find_artifact",
    "needs_of",
    "producer_states",
    "pins_of",
    "artifacts_of_chains",
    "watched_artifacts",
    "watched_heads",
    "wake_needing",
    "wake_pinned",
    "products_of",
    "clear_rewound_products",
    "withdraw_artifacts_of_job",
    "needed_artifacts",
    "active_producers",
    "open_edges_of",
    "active_vertices",
    "blocked_vertices",
    "predecessor_edges",
    "last_producers",
    "consumers",
    "vertex_details",
    "fronts_of",
    "old_chains",
    "chain_members",
    "chain_referrers",
    "referenced_chains",
    "jobs_touched_since",
    "count_runs_of",
    "count_events_of",
    "remove_events",
    "remove_runs",
    "remove_edges",
    "remove_locks",
    "remove_jobs",
    "remove_specs",
    "last_event",
    "jobless_events",
    "remove_jobless_events",
    "response_keys",
    "responses_with_status",
    "responses_for_keys",
    "remove_responses",
    "remove_old_responses",
    "recent_reservations",
    "lane_and_environment_uses",
    "queued_ranks",
    "next_waiting",
    "previous_waiting",
    "count_before",
    "waiting_ranks",
    "count_waiting_at",
    "set_rank",
    "set_lock_rank",
    "respace",
    "respace_locks",
    "spec_of",
    "detach_spec",
    "edit_spec",
    "set_delay",
    "lock_keys",
    "lock_owners",
    "lock_queue",
    "count_lock_queue",
    "ended_members",
    "running_members",
    "templates_by_id",
    "remove_templates",
    "find_job_webhook",
    "job_webhooks",
    "pending_receivers",
    "pending_attempt_counts",
    "pending_deliveries",
    "count_pending_by_receiver",
    "deliveries",
    "latest_deliveries",
    "deliveries_of_job",
    "deliveries_of_webhook",
    "attempts_of",
    "end_delivery",
    "abandon_deliveries",
    "old_deliveries",
    "stale_deliveries",
    "abandon_stale_deliveries",
    "schedule",
    "schedule_named",
    "due_schedules",
    "first_due_schedule",
    "set_next_fire",
    "active_of_schedule",
    "has_fire",
    "fires_of",
    "count_fires",
    "old_fires",
)
SORTED_BY_AN_INDEX = (
    "heads",
    "dirty_jobs",
    "first_dirty",
    "next_due",
    "front_first",
    "front_first_exclusive",
    "next_exclusive_waiter",
    "waiting_ids",
    "waiting_ids_of",
    "events_since",
    "events_of_job",
    "last_of_chain",
    "last_dispatch",
    "entries",
    "entries_of_kinds",
    "entries_of_group",
    "entries_of_job",
    "old_chains",
    "jobless_events",
    "response_keys",
    "responses_with_status",
    "lane_and_environment_uses",
    "next_waiting",
    "previous_waiting",
    "waiting_ranks",
    "respace",
    "lock_queue",
    "first_queued",
    "first_due",
    "first_waiting",
    "clearable",
    "ended_members",
    "running_members",
    "pending_deliveries",
    "count_pending_by_receiver",
    "latest_deliveries",
    "deliveries_of_job",
    "deliveries_of_webhook",
    "attempts_of",
    "old_deliveries",
    "due_schedules",
    "first_due_schedule",
    "fires_of",
    "active_of_schedule",
)
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
def test_hot_statement_uses_an_index(connection: sqlite3.Connection, name: str) -> None:
    steps = plan_of(connection, name)
    assert steps
    whole = [
        step
        for step in steps
        if re.match(r"SCAN (?!json_each|blocking|failed_key|met|requested|respaced|walked|.subquery|CONSTANT)", step)
        and "INDEX" not in step
    ]
    assert whole == []
    assert not any("AUTOMATIC" in step for step in steps)


def test_recovery_reads_missing_retries_from_their_index(connection: sqlite3.Connection) -> None:
    """LESSONS: every restart "recovered" all of history. The index contains only the missing retries."""
    assert any("job_unretried" in step for step in plan_of(connection, "unretried_failures"))


@pytest.mark.parametrize(
    ("name", "index"),
    [
        ("list_ended_runs", "run_ended"),
        ("started_ids", "run_one_open_of_job"),
        ("waiting_ids", "job_active"),
        ("ended_ids", "job_ended"),
        ("newest_active_ids", "_active"),
    ],
)
def test_filter_by_status_uses_its_index(connection: sqlite3.Connection, name: str, index: str) -> None:
    assert any(index in step for step in plan_of(connection, name))


@pytest.mark.parametrize("name", SORTED_BY_AN_INDEX)
def test_ordered_statement_needs_no_sort(connection: sqlite3.Connection, name: str) -> None:
    assert not any("TEMP B-TREE" in step for step in plan_of(connection, name))

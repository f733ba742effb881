"""`gc`: remove jobs and other records that ended long ago, and show the result of the last collection."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from rota.db.decoding import from_micros
from rota.db.session import Reader
from rota.errors import InvalidInput
from rota.ids import format_job_id
from rota.retention.collector import RetentionCollector, RetentionResult
from rota.retention.model import KeptReason
from rota.retention.repository import LAST_RUN_KEY
from rota.retention.schemas import (
    KeptCounts,
    KeptJobView,
    LastRetention,
    RetentionCounts,
    RetentionProgress,
    RetentionResultView,
)

_MAX_DAYS = 36_500
DAYS_SCHEMA = {"minimum": 0, "maximum": _MAX_DAYS}
"""Limits of `days` in the OpenAPI document."""


def collect_garbage(collector: RetentionCollector, days: int, *, is_dry_run: bool, actor: str) -> RetentionResult:
    """Collect records that ended at least `days` ago. The duration is unbounded, so never call it on the engine's
    thread."""
    if not 0 <= days <= _MAX_DAYS:
        raise InvalidInput(f"days {days} is out of range; use 0 (everything that ended) to {_MAX_DAYS}").at_path(
            ".days"
        )
    return collector.collect(timedelta(days=days), cause="gc", is_dry_run=is_dry_run, actor=actor)


def render_result(result: RetentionResult) -> RetentionResultView:
    return RetentionResultView(
        dry_run=result.is_dry_run,
        older_than=result.until,
        removed=RetentionCounts(**msgspec.structs.asdict(result.rows), bytes=result.bytes),
        abandoned=result.abandoned,
        kept_counts=KeptCounts(**{reason.value: result.kept.get(reason, 0) for reason in KeptReason}),
        jobs=[format_job_id(job) for job in result.jobs],
        kept=[
            KeptJobView(job=format_job_id(kept.job), reason=kept.reason, detail=kept.detail)
            for kept in result.kept_jobs
        ],
        remaining=result.remaining,
    )


def render_progress(result: RetentionResult | None) -> RetentionProgress | None:
    return None if result is None else RetentionProgress(jobs=result.rows.jobs, bytes=result.bytes)


def last_retention(reader: Reader) -> LastRetention | None:
    """Return the last collection, or `None` before the first. Counts that an older version did not store are zero."""
    stored = reader.meta.get(LAST_RUN_KEY)
    if stored is None:
        return None
    record = msgspec.json.decode(stored, type=dict[str, int])
    counts = {name: record.get(name, 0) for name in LastRetention.__struct_fields__ if name != "at"}
    return LastRetention(at=from_micros(record["at"]), **counts)

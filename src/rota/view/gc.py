"""Results of retention as the API shows them."""

from __future__ import annotations

import msgspec

from rota.core.gc import KeptReason
from rota.engine.retention import RetentionResult
from rota.ids import format_job_id
from rota.store.gc import LAST_RUN_KEY
from rota.store.session import Reader
from rota.store.timestamp import from_micros
from rota.wire.gc import KeptCounts, KeptJobView, LastRetention, RetentionCounts, RetentionProgress, RetentionResultView


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

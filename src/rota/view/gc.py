"""What was collected, for people and programs."""

from __future__ import annotations

from typing import Any

import msgspec

from rota.core.gc import Kept
from rota.engine.gc import Collection
from rota.ids import show_job
from rota.store.gc import LAST
from rota.store.moment import from_stored
from rota.store.session import Reader


def report(found: Collection) -> dict[str, Any]:
    """`jobs` are the first of them, if many; `stays` are kept for a reason that somebody can do something about;
    `given_up` are messages that were to be sent for so long."""
    return {
        "dry_run": found.is_dry,
        "older_than": found.until,
        "removed": {**msgspec.structs.asdict(found.rows), "bytes": found.bytes},
        "given_up": found.given_up,
        "kept": {why.value: found.kept.get(why, 0) for why in Kept},
        "jobs": [show_job(job) for job in found.jobs],
        "stays": [{"job": show_job(each.job), "why": each.why, "detail": each.detail} for each in found.stays],
        "left": found.left,
    }


def progress(found: Collection | None) -> dict[str, Any] | None:
    return None if found is None else {"jobs": found.rows.jobs, "bytes": found.bytes}


def last_gc(reader: Reader) -> dict[str, Any] | None:
    """When it was last done, and what came of it; none before the first time."""
    stored = reader.meta(LAST)
    if stored is None:
        return None
    said = msgspec.json.decode(stored, type=dict[str, int])
    return {**said, "at": from_stored(said["at"])}

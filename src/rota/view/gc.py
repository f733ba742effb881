"""What was collected, for people and programs."""

from __future__ import annotations

import msgspec

from rota.core.gc import Kept
from rota.engine.gc import Collection
from rota.ids import show_job
from rota.store.gc import LAST
from rota.store.moment import from_stored
from rota.store.session import Reader
from rota.wire.gc import CollectionForm, KeptForm, LastGcForm, RemovedForm, StaysForm, UnderWayForm


def report(found: Collection) -> CollectionForm:
    return CollectionForm(
        dry_run=found.is_dry,
        older_than=found.until,
        removed=RemovedForm(**msgspec.structs.asdict(found.rows), bytes=found.bytes),
        given_up=found.given_up,
        kept=KeptForm(**{why.value: found.kept.get(why, 0) for why in Kept}),
        jobs=[show_job(job) for job in found.jobs],
        stays=[StaysForm(job=show_job(each.job), why=each.why, detail=each.detail) for each in found.stays],
        left=found.left,
    )


def progress(found: Collection | None) -> UnderWayForm | None:
    return None if found is None else UnderWayForm(jobs=found.rows.jobs, bytes=found.bytes)


def last_gc(reader: Reader) -> LastGcForm | None:
    """None before the first time. What an older version did not count is nought."""
    stored = reader.meta(LAST)
    if stored is None:
        return None
    said = msgspec.json.decode(stored, type=dict[str, int])
    counts = {name: said.get(name, 0) for name in LastGcForm.__struct_fields__ if name != "at"}
    return LastGcForm(at=from_stored(said["at"]), **counts)

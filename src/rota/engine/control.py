"""Pauses and clear operations, inside a transaction."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import msgspec

from rota.db.session import AnyReader
from rota.engine.clear_operation import ClearOperation, ClearProgress, ClearRecord
from rota.engine.finish import cancel_waiting
from rota.engine.transaction import Transaction
from rota.ids import JobId
from rota.kernel.gates import Candidate
from rota.kernel.pools import PoolSizes
from rota.kernel.queue import FIRST_RANK
from rota.naming import GLOBAL

log = logging.getLogger("rota.engine")

CLEARED_REASON = "cleared"
MAX_CLEARED_PER_TURN = 200
"""Jobs that clear operations cancel in one turn. Bounds the delay of other requests."""

_META_KEY = "clear_operations"
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(list[ClearRecord]).decode


def hold_scope(tx: Transaction, scope: str) -> None:
    """Mark the jobs of a held scope that contend for locks dirty: they leave the queues of their locks."""
    tx.lanes.wake_contending(tx.lanes.under(scope))


def release_scope(tx: Transaction, scope: str) -> None:
    """Mark the parked jobs of a released scope dirty."""
    tx.lanes.wake_parked(tx.lanes.under(scope))


def apply_pool_sizes(tx: Transaction, previous: PoolSizes | None) -> None:
    """After a change of pool sizes, take jobs that cannot start out of the queues of their locks, and let jobs that can
    start join them again."""
    if tx.settings.pool_sizes == previous:
        return
    oversized = tx.lanes.oversized(tx.settings.pool_sizes)
    tx.lanes.wake_contending(list(oversized))
    tx.lanes.wake_parked([scope.lane for scope in tx.lanes.scopes() if scope.lane not in oversized])


def apply_hold_file(tx: Transaction, *, was_held: bool) -> None:
    """Hold or release everything when the hold file appears or disappears."""
    if (tx.hold_text is not None) != was_held:
        release_scope(tx, GLOBAL) if was_held else hold_scope(tx, GLOBAL)


def begin_clear(tx: Transaction, record: ClearRecord) -> ClearOperation:
    """Begin a clear operation, or return the operation in progress that would clear the same jobs."""
    for operation in tx.effects.clear_operations:
        if (operation.record.scope, operation.record.max_job) == (record.scope, record.max_job):
            return operation
    operation = ClearOperation(record)
    tx.effects.clear_operations.append(operation)
    return operation


def load_clear_operations(reader: AnyReader) -> list[ClearOperation]:
    """Load the clear operations that an earlier scheduler left unfinished."""
    stored = reader.meta.get(_META_KEY)
    try:
        return [ClearOperation(record) for record in _decode(stored)] if stored else []
    except msgspec.DecodeError as error:
        log.error("abandoned the clear operations in progress: cannot read their record: %s", error)
        return []


def continue_clears(tx: Transaction) -> None:
    """Cancel the next jobs of each clear operation. Dependents that are not among them are cleared when evaluated."""
    for operation in list(tx.effects.clear_operations):
        record = operation.record
        lanes = tx.lanes.under(record.scope)
        jobs = tx.lanes.clearable_jobs(lanes, max_id=record.max_job, after=operation.cursor, limit=MAX_CLEARED_PER_TURN)
        for job in jobs:
            _clear_job(tx, operation, job.rank.job, job.chain)
        if len(jobs) == MAX_CLEARED_PER_TURN:
            _update_progress(tx, operation, cursor=tuple(jobs[-1].rank))
        elif operation.cursor != FIRST_RANK:
            # Scan again: jobs may have been moved to the front meanwhile.
            _update_progress(tx, operation, cursor=FIRST_RANK)
        else:
            progress = _update_progress(tx, operation, is_finished=True)
            tx.effects.clear_operations.remove(operation)
            total = record.cleared + progress.cleared
            tx.pauses.emit_cleared(record.scope, total, actor=record.by, now=tx.now)
            release_scope(tx, record.scope)


def clear_matching(tx: Transaction, candidates: Sequence[Candidate]) -> list[Candidate]:
    """Clear the candidates that a clear operation covers, and return the others.

    Thus a dependent of a cleared job that is to be cleared itself does not end as blocked."""
    remaining = []
    for candidate in candidates:
        operation = _find_clear_operation(tx, candidate)
        if operation is None:
            remaining.append(candidate)
        else:
            _clear_job(tx, operation, candidate.rank.job, candidate.chain)
    return remaining


def is_clear_limit_reached(tx: Transaction) -> bool:
    """Return whether this turn has cleared as many jobs as one turn may."""
    return sum(progress.cleared for progress in tx.effects.clear_progress.values()) >= MAX_CLEARED_PER_TURN


def _find_clear_operation(tx: Transaction, candidate: Candidate) -> ClearOperation | None:
    return next(
        (
            operation
            for operation in tx.effects.clear_operations
            if candidate.rank.job <= operation.record.max_job and operation.record.scope in candidate.scopes
        ),
        None,
    )


def _clear_job(tx: Transaction, operation: ClearOperation, job: JobId, chain: JobId) -> None:
    if cancel_waiting(tx, job, chain, reason=CLEARED_REASON, actor=operation.record.by, cause="control"):
        _update_progress(tx, operation, cleared=_progress_of(tx, operation).cleared + 1)


def _progress_of(tx: Transaction, operation: ClearOperation) -> ClearProgress:
    return tx.effects.clear_progress.get(operation, ClearProgress())


def _update_progress(tx: Transaction, operation: ClearOperation, **changes: Any) -> ClearProgress:
    progress = msgspec.structs.replace(_progress_of(tx, operation), **changes)
    tx.effects.clear_progress[operation] = progress
    return progress


def store_clear_operations(tx: Transaction) -> None:
    """Store the clear operations with the progress of this turn."""
    operations, progress = tx.effects.clear_operations, tx.effects.clear_progress
    if not progress and not operations:
        return
    records = [_updated_record(operation, progress.get(operation)) for operation in operations]
    tx.meta.set(_META_KEY, _encode(records).decode())


def commit_clear_operations(tx: Transaction) -> list[ClearOperation]:
    """Apply the progress after the commit, and return the operations still in progress."""
    for operation, progress in tx.effects.clear_progress.items():
        operation.record = _updated_record(operation, progress)
        operation.cursor = operation.cursor if progress.cursor is None else progress.cursor
        if progress.is_finished:
            operation.completion.set_result(operation.record.cleared)
    return tx.effects.clear_operations


def _updated_record(operation: ClearOperation, progress: ClearProgress | None) -> ClearRecord:
    cleared = 0 if progress is None else progress.cleared
    return msgspec.structs.replace(operation.record, cleared=operation.record.cleared + cleared)

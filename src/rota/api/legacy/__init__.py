"""The endpoints that were there before `/api`, on the same commands and views (CON-004). `docs/migration.md` has the
table from old to new."""

from __future__ import annotations

from rota.api.legacy import batch, job, scheduler, submit

ENDPOINTS = [*submit.ENDPOINTS, *batch.ENDPOINTS, *job.ENDPOINTS, *scheduler.ENDPOINTS]

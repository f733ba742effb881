"""Legacy endpoints, on the same commands and views as those in `/api` (CON-004). The table in
`docs/how-to/migrate-from-legacy-endpoints.md` has their replacements."""

from __future__ import annotations

from rota.api.legacy import batch, job, scheduler, submit

ENDPOINTS = [*submit.ENDPOINTS, *batch.ENDPOINTS, *job.ENDPOINTS, *scheduler.ENDPOINTS]

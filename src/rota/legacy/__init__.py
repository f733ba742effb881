"""Legacy endpoints, on the same commands and views as those in `/api` (CON-004). The table in
`docs/how-to/migrate-from-legacy-endpoints.md` has their replacements."""

from __future__ import annotations

from rota.legacy import jobs, scheduler

ENDPOINTS = [*jobs.ENDPOINTS, *scheduler.ENDPOINTS]

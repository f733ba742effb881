"""The jobs and the run that examples show, as forms."""

from __future__ import annotations

import msgspec

from rota.api import example
from rota.wire.job import JobForm, RunForm

WAITING = msgspec.convert(example.WAITING_JOB, JobForm)
ENDED = msgspec.convert(example.ENDED_JOB, JobForm)
CANCELLED = msgspec.convert(example.CANCELLED_JOB, JobForm)
RUN = msgspec.convert(example.RUN, RunForm)

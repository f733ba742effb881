"""The load of prefetched jobs: many similar jobs of a few milliseconds, and hardly anything else.

The supervisor never prefetches if jobs differ or requests arrive all the time (`rota/kernel/prefetch.py`). With this
load it does most of the time. Occasional events end a series: a failure, a retry, a cancel, a job with a higher
priority.
"""

from __future__ import annotations

from typing import Any

from rota.client.requests.jobs import ACTIVE_STATUSES, get_job, submit_batch, submit_job
from tests.crash.load import Client

BATCH_SIZE = 12
_EXIT_CODES = (*["0"] * 46, "3", "flaky")
_EVENT_PROBABILITY = 0.1


class ShortJobClient(Client):
    letter = "b"

    def act(self) -> None:
        """Submit a batch and wait until all of it has ended, sometimes with an event in between."""
        self._submit()
        if self._random.random() < _EVENT_PROBABILITY:
            self._cancel(self._random.choice(self._active))
        if self._random.random() < _EVENT_PROBABILITY:
            self._submit_urgent()
        self._wait()

    def _make_job(self) -> tuple[str, dict[str, Any]]:
        label, code = self._make_label(), self._random.choice(_EXIT_CODES)
        return label, {"command": [self._program, label, "0.01", code], "retries": 2 if code == "flaky" else 0}

    def _submit(self) -> None:
        batch = [self._make_job() for _ in range(BATCH_SIZE)]
        jobs: Any = [job for _, job in batch]
        response = self._request_with_repeat(submit_batch(jobs, key=batch[0][0]))
        for (label, job), job_id in zip(batch, response["jobs"], strict=True):
            self._record(label, job, job_id)

    def _submit_urgent(self) -> None:
        label, job = self._make_job()
        self._record(label, job, self._request_with_repeat(submit_job(key=label, priority=9, **job))["job"]["id"])

    def _wait(self) -> None:
        """Wait for the last job first: by then most others have ended and need no wait."""
        while self._active and not self._stop.is_set():
            if self._request(get_job(self._active[-1], wait=1))["status"] not in ACTIVE_STATUSES:
                self._active.pop()

"""The load that is given ahead: many jobs that are over in a moment, one like the other, and hardly anything else.

Where jobs differ, or somebody asks for something all the time, the supervisor never starts one by itself
(`rota/core/ahead.py`). Here it does nearly always; what ends that comes now and then: a failure, a retry, a cancel, one
that goes before all others.
"""

from __future__ import annotations

from typing import Any

from crash.load import Client
from rota.client.ask.job import ACTIVE, get_job, submit_batch, submit_job

BATCH = 12
_CODES = (*["0"] * 46, "3", "flaky")
_NOW_AND_THEN = 0.1


class Brief(Client):
    letter = "b"

    def act(self) -> None:
        """A batch, and perhaps something that comes between, until all of it has ended."""
        self._submit()
        if self._random.random() < _NOW_AND_THEN:
            self._cancel(self._random.choice(self._open))
        if self._random.random() < _NOW_AND_THEN:
            self._hurry()
        self._wait()

    def _wanted(self) -> tuple[str, dict[str, Any]]:
        label, code = self._label(), self._random.choice(_CODES)
        return label, {"command": [self._program, label, "0.01", code], "retries": 2 if code == "flaky" else 0}

    def _submit(self) -> None:
        asked = [self._wanted() for _ in range(BATCH)]
        jobs: Any = [wanted for _, wanted in asked]
        answer = self._ask_twice(submit_batch(jobs, key=asked[0][0]))
        for (label, wanted), job in zip(asked, answer["jobs"], strict=True):
            self._remember(label, wanted, job)

    def _hurry(self) -> None:
        label, wanted = self._wanted()
        self._remember(label, wanted, self._ask_twice(submit_job(key=label, priority=9, **wanted))["job"]["id"])

    def _wait(self) -> None:
        """For the last first: by then most others have ended, and nobody is asked of them in vain."""
        while self._open and not self._stop.is_set():
            if self._ask(get_job(self._open[-1], wait=1))["status"] not in ACTIVE:
                self._open.pop()

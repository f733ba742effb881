"""Log of read failures: once when a failure starts and once when it ends, not on every observation."""

from __future__ import annotations

import logging

log = logging.getLogger("rota.probe")

_MAX_SUBJECTS = 1000


class Failures:
    def __init__(self) -> None:
        self._reported: dict[str, str] = {}

    def report(self, subject: str, error: str) -> None:
        if self._reported.get(subject) == error:
            return
        if len(self._reported) >= _MAX_SUBJECTS:  # logging again is better than growing without bound
            self._reported.clear()
        self._reported[subject] = error
        log.warning("%s cannot be read: %s", subject, error)

    def clear(self, subject: str) -> None:
        if self._reported.pop(subject, None) is not None:
            log.info("%s can be read again", subject)

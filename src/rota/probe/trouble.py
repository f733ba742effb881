"""What cannot be read is said once, when it begins, and not each second for as long as it lasts."""

from __future__ import annotations

import logging

log = logging.getLogger("rota.probe")

_MOST = 1000


class Troubles:
    def __init__(self) -> None:
        self._told: dict[str, str] = {}

    def tell(self, subject: str, trouble: str) -> None:
        if self._told.get(subject) == trouble:
            return
        if len(self._told) >= _MOST:  # said again rather than kept for ever
            self._told.clear()
        self._told[subject] = trouble
        log.warning("%s cannot be read: %s", subject, trouble)

    def is_over(self, subject: str) -> None:
        if self._told.pop(subject, None) is not None:
            log.info("%s can be read again", subject)

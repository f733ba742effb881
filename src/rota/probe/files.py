"""Existence of files on disk. One `stat` per file is cheap enough to check all awaited files every second."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable

from rota.core.fact import UNREADABLE, Fact, FactValue, FileExists, ProbeFailure
from rota.probe.failures import Failures

_NOT_FOUND = frozenset({errno.ENOENT, errno.ENOTDIR})


class FileProbe:
    def __init__(self, failures: Failures) -> None:
        self._failures = failures

    def observe(self, facts: Iterable[FileExists]) -> dict[Fact, FactValue]:
        return {fact: self._exists(fact.path) for fact in facts}

    def _exists(self, path: str) -> bool | ProbeFailure:
        try:
            os.stat(path)  # noqa: PTH116 - Path.exists hides the error
        except ValueError as error:  # a NUL, or a character outside the encoding of the file system
            self._failures.report(f"file {path!r}", str(error))
            return False
        except OSError as error:
            if error.errno not in _NOT_FOUND:
                self._failures.report(f"file {path!r}", str(error.strerror))
                return UNREADABLE
            self._failures.clear(f"file {path!r}")
            return False
        self._failures.clear(f"file {path!r}")
        return True

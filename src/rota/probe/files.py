"""Is there a file? One `stat` each: cheap enough to ask every second for every file that anybody waits on."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable

from rota.core.fact import UNREADABLE, Fact, File, Seen, Trouble
from rota.probe.trouble import Troubles

_NOT_THERE = frozenset({errno.ENOENT, errno.ENOTDIR})


class FileProbe:
    def __init__(self, troubles: Troubles) -> None:
        self._troubles = troubles

    def look(self, facts: Iterable[File]) -> dict[Fact, Seen]:
        return {fact: self._is_there(fact.path) for fact in facts}

    def _is_there(self, path: str) -> bool | Trouble:
        try:
            os.stat(path)  # noqa: PTH116 - what Path.exists leaves out: why not
        except ValueError as error:  # NUL, or what the file system's encoding cannot say
            self._troubles.tell(f"file {path!r}", str(error))
            return False
        except OSError as error:
            if error.errno not in _NOT_THERE:
                self._troubles.tell(f"file {path!r}", str(error.strerror))
                return UNREADABLE
            self._troubles.is_over(f"file {path!r}")
            return False
        self._troubles.is_over(f"file {path!r}")
        return True

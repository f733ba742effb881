"""What a child reported in the file that `ROTA_SESSION_FILE` names.

The child owns that path and may put anything there: a fifo, a link to a device. So it is opened without waiting
and without following links, and only a little of a plain file is read.
"""

from __future__ import annotations

import os
import stat

FILE = "session"
_MOST = 4096


def session_path(directory: str) -> str | None:
    try:
        descriptor = os.open(f"{directory}/{FILE}", os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        return os.read(descriptor, _MOST).decode("utf-8", "replace").strip() or None
    except OSError:
        return None
    finally:
        os.close(descriptor)

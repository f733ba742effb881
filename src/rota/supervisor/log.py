"""Log lines with a timestamp on standard error, which is `supervisor.log`. The logging package would cost a
megabyte."""

from __future__ import annotations

import os
import time


def write_log(text: str) -> None:
    now = time.time()
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now))
    line = f"{stamp}.{int(now * 1000) % 1000:03d}Z supervisor[{os.getpid()}] {text}\n"
    try:
        os.write(2, line.encode("utf-8", "backslashreplace"))
    except OSError:
        return  # a full disk must not end the process that guards the children

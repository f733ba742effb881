"""Who has a home: one scheduler, or whoever works on its store while there is none.

The kernel frees the lock with its holder, so a dead one never wedges the next.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from rota.errors import Conflict
from rota.home import Home


@contextmanager
def sole_occupant(home: Home) -> Iterator[None]:
    home.lock.touch(mode=0o600)
    with home.lock.open("r+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = lock.read().strip() or "?"
            raise Conflict(f"another scheduler (pid {holder}) has {home.root}; use it, or `rota down` first") from None
        with suppress(OSError):  # on a full disk nobody can read whose it is; it is held all the same
            lock.truncate(0)
            lock.write(f"{os.getpid()}\n")
            lock.flush()
        yield

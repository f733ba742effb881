"""Whose a store on a server is: a file lies in its home, but any home can name a server.

What runs is known to the supervisor of the home that started it. Another home would take it for lost and run it again
beside itself, so it does not get the store before all of that has ended, or somebody says that it is gone for good.
"""

from __future__ import annotations

import errno
import os
import secrets
import socket

from rota.errors import Conflict, HomeError, StorageFull
from rota.home import Home
from rota.store.session import Session

OWNER = "home"
"""The row of `meta` that says which home it is; `PLACE` says it for people."""
PLACE = "home_place"


def claim(session: Session, home: Home, where: str) -> None:
    """In a transaction that is open: it is this home's from now on."""
    owner = session.meta(OWNER)
    if owner not in (None, _identity(home)) and _is_in_use(session):
        said = f"{where} is the store of the home {session.meta(PLACE)}, where jobs of it may still run"
        raise Conflict(f"{said}; start its scheduler there, or, if it is gone for good, `rota store adopt` here")
    adopt(session, home)


def adopt(session: Session, home: Home) -> None:
    wanted = {OWNER: _identity(home), PLACE: f"{home.directory} on {socket.gethostname()}"}
    for key, value in wanted.items():
        if session.meta(key) != value:
            session.set_meta(key, value)


def _is_in_use(session: Session) -> bool:
    return bool(session.open_runs() or session.given_ahead() or session.running_slots())


def _identity(home: Home) -> str:
    """Of its own making: a path can be another machine's too, and a container's name is another each time. It is on the
    disk before a store is told of it."""
    try:
        home.identity.touch(mode=0o600)
        with home.identity.open("r+") as file:
            if not (found := file.read().strip()):
                found = secrets.token_hex(16)
                file.write(f"{found}\n")
                file.flush()
                os.fsync(file.fileno())
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StorageFull(f"the disk is full: there is no room left for {home.identity}") from None
        raise HomeError(f"{home.identity} cannot be made: {error.strerror}") from None
    return found

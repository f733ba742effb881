"""Ownership of a store on a server. A database file lies in its home, but any home can name a server.

Only the supervisor of the home that started a run knows whether it still runs. A scheduler of another home would take
the run for lost and start it a second time. It therefore gets the store only after all runs have ended, or after the
user adopts the store because the old home is gone.
"""

from __future__ import annotations

import errno
import os
import secrets
import socket

from rota.errors import Conflict, HomeError, StorageFull
from rota.home import Home
from rota.store.session import Session

OWNER_KEY = "home"
"""Key in `meta` of the owner's identity. `LOCATION_KEY` has the same for messages to users."""
LOCATION_KEY = "home_location"


def claim_ownership(session: Session, home: Home, store_name: str) -> None:
    """Make this home the owner of the store, in the open transaction. Refuse while another home may have running
    jobs."""
    owner = session.meta.get(OWNER_KEY)
    if owner not in (None, _home_identity(home)) and _is_in_use(session):
        message = f"{store_name} is the store of the home {session.meta.get(LOCATION_KEY)}, which may have running jobs"
        raise Conflict(f"{message}; start the scheduler there or, if that home is gone, run `rota store adopt` here")
    adopt_store(session, home)


def adopt_store(session: Session, home: Home) -> None:
    identity = {OWNER_KEY: _home_identity(home), LOCATION_KEY: f"{home.directory} on {socket.gethostname()}"}
    for key, value in identity.items():
        if session.meta.get(key) != value:
            session.meta.set(key, value)


def _is_in_use(session: Session) -> bool:
    return bool(session.runs.list_open() or session.prefetch.offered_runs() or session.reservations.running())


def _home_identity(home: Home) -> str:
    """Return the random identity of a home. A path or a host name can occur on other machines too. The identity is
    synced to disk before a store contains it."""
    try:
        home.identity.touch(mode=0o600)
        with home.identity.open("r+") as file:
            if not (identity := file.read().strip()):
                identity = secrets.token_hex(16)
                file.write(f"{identity}\n")
                file.flush()
                os.fsync(file.fileno())
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StorageFull(f"the disk is full: there is no room left for {home.identity}") from None
        raise HomeError(f"{home.identity} cannot be created: {error.strerror}") from None
    return identity

"""Whose a store on a server is: a file lies in its home, but any home can name a server.

What runs is known to the supervisor of the home that started it. Another home would take it for lost and run it again
beside itself, so it does not get the store before all of that has ended, or somebody says that it is gone for good.
"""

from __future__ import annotations

import secrets
import socket

from rota.errors import Conflict, HomeError
from rota.home import Home
from rota.store.session import Session

OWNER = "home"
"""The row of `meta` that says which home it is; `PLACE` says it for people."""
PLACE = "home_place"


def claim(session: Session, home: Home, where: str) -> None:
    """In a transaction that is open: it is this home's from now on."""
    if not _is_ours(session, home) and _is_in_use(session):
        said = f"{where} is the store of the home {session.meta(PLACE)}, where jobs of it may still run"
        raise Conflict(f"{said}; start its scheduler there, or, if it is gone for good, `rota store adopt` here")
    adopt(session, home)


def adopt(session: Session, home: Home) -> None:
    if not _is_ours(session, home):
        session.set_meta(OWNER, _identity(home))
        session.set_meta(PLACE, f"{home.directory} on {socket.gethostname()}")


def _is_ours(session: Session, home: Home) -> bool:
    return session.meta(OWNER) == _identity(home)


def _is_in_use(session: Session) -> bool:
    if session.meta(OWNER) is None:
        return False
    return bool(session.open_runs() or session.given_ahead() or session.open_slots())


def _identity(home: Home) -> str:
    """Of its own making: a path can be another machine's too, and a container's name is another each time."""
    try:
        home.identity.touch(mode=0o600)
        if not (found := home.identity.read_text().strip()):
            found = secrets.token_hex(16)
            home.identity.write_text(f"{found}\n")
    except OSError as error:
        raise HomeError(f"{home.identity} cannot be made: {error.strerror}") from None
    return found

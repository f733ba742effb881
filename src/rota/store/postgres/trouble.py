"""What the server's errors mean to the store."""

from __future__ import annotations

import psycopg
from psycopg import errors, pq

from rota.errors import StorageFull, StoreAway, StoreError

_SESSION_ENDED = ("57P01", "57P02", "57P03", "57P05")
"""Shut down, crashed, starting up, idle for too long."""
_NO_ROOM = "53300"
"""Too many are connected: some of them leave."""


def meaning(error: psycopg.Error, where: str) -> Exception:
    if isinstance(error, (errors.IntegrityError, errors.DataError)):
        return error  # a broken invariant is a defect of the caller, not trouble with the database
    if isinstance(error, errors.DiskFull):
        return StorageFull(f"the disk of {where} is full; nothing was stored: free some space and try again")
    text = " ".join(str(error).split()) or type(error).__name__
    if is_lost(error) or error.sqlstate == _NO_ROOM:
        return StoreAway(f"the database {where} is away: {text}")
    return StoreError(f"the database {where} cannot be used: {text}")


def is_lost(error: psycopg.Error) -> bool:
    """Whether the session is over, or was never begun: for that libpq has no code."""
    code = error.sqlstate
    return isinstance(error, psycopg.OperationalError) and (code is None or code[:2] == "08" or code in _SESSION_ENDED)


def error_of(result: pq.abc.PGresult) -> psycopg.Error:
    """Without a code it is libpq that speaks: the connection is gone."""
    code = result.error_field(pq.DiagnosticField.SQLSTATE)
    message = result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY) or result.error_message
    kind = errors.OperationalError if code is None else _kind(code.decode())
    return kind(message.decode(errors="replace"))


def _kind(code: str) -> type[psycopg.Error]:
    try:
        return errors.lookup(code)
    except KeyError:
        return _CLASSES.get(code[:2], psycopg.DatabaseError)


_CLASSES: dict[str, type[psycopg.Error]] = {
    "08": psycopg.OperationalError,
    "22": psycopg.DataError,
    "23": psycopg.IntegrityError,
    "53": psycopg.OperationalError,
    "57": psycopg.OperationalError,
}

"""Translation of the server's errors to errors of the store."""

from __future__ import annotations

import psycopg
from psycopg import errors, pq

from rota.errors import StorageFull, StoreError, StoreUnavailable

_SESSION_ENDED_CODES = ("57P01", "57P02", "57P03", "57P05")
"""Codes of a session that ended: shutdown, crash, startup, idle timeout."""
_TOO_MANY_CONNECTIONS = "53300"
"""Code of a refused connection. It is temporary: other clients disconnect."""


def translate_error(error: psycopg.Error, server_name: str) -> Exception:
    if isinstance(error, (errors.IntegrityError, errors.DataError)):
        return error  # a broken invariant is a defect of the caller, not a failure of the database
    if isinstance(error, errors.DiskFull):
        return StorageFull(f"the disk of {server_name} is full; nothing was stored: free some space and try again")
    text = " ".join(str(error).split()) or type(error).__name__
    if is_connection_lost(error) or error.sqlstate == _TOO_MANY_CONNECTIONS:
        return StoreUnavailable(f"the database {server_name} is unavailable: {text}")
    return StoreError(f"the database {server_name} cannot be used: {text}")


def is_connection_lost(error: psycopg.Error) -> bool:
    """Return whether the session ended or never started. libpq reports both without a code."""
    code = error.sqlstate
    return isinstance(error, psycopg.OperationalError) and (
        code is None or code[:2] == "08" or code in _SESSION_ENDED_CODES
    )


def error_from_result(result: pq.abc.PGresult) -> psycopg.Error:
    """Return the exception for a result. A result without a code comes from libpq and means a lost connection."""
    code = result.error_field(pq.DiagnosticField.SQLSTATE)
    message = result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY) or result.error_message
    kind = errors.OperationalError if code is None else _error_class(code.decode())
    return kind(message.decode(errors="replace"))


def _error_class(code: str) -> type[psycopg.Error]:
    try:
        return errors.lookup(code)
    except KeyError:
        return _ERROR_CLASSES.get(code[:2], psycopg.DatabaseError)


_ERROR_CLASSES: dict[str, type[psycopg.Error]] = {
    "08": psycopg.OperationalError,
    "22": psycopg.DataError,
    "23": psycopg.IntegrityError,
    "53": psycopg.OperationalError,
    "57": psycopg.OperationalError,
}

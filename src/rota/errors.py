"""Error classes: one class and one stable code for every refusal and failure.

    RotaError
    ├── BadRequest              the request is not valid HTTP                   400, exit 1
    ├── Unauthorized            the token is missing or wrong                   401, exit 1
    ├── OriginNotAllowed        the request comes from a page of another origin 403, exit 1
    ├── NotFound                no object has this id                           404, exit 3
    ├── MethodNotAllowed        the path does not support this method           405, exit 1
    ├── RequestTimeout          the request did not arrive in time              408, exit 1
    ├── Conflict                the current state does not allow the operation  409, exit 4
    │   └── RequestInProgress   the same request is still in progress           409, exit 4
    ├── BodyTooLarge            the request body is too large                   413, exit 2
    ├── TargetTooLong           the path and query are too long                 414, exit 2
    ├── UnsupportedMediaType    the request body is not declared as plain JSON  415, exit 1
    ├── RangeNotSatisfiable     the requested range is outside the file         416, exit 2
    ├── MisdirectedRequest      the request names another host                  421, exit 1
    ├── InvalidInput            the request is invalid                          422, exit 2
    │   └── IdempotencyKeyReused  the key belongs to a different request        422, exit 2
    ├── ConfigError             `rota.toml` is invalid                          422, exit 1
    ├── QueueFull               the queue is full; nothing was stored           429, exit 75
    ├── HeadersTooLarge         the request headers are too large               431, exit 1
    ├── HomeError               the home directory cannot be used               500, exit 1
    ├── StoreError              the database cannot be used                     500, exit 1
    │   └── StoreUnavailable    see below; it is both                           503, exit 1
    ├── ServiceUnavailable      the scheduler is stopping or unreachable        503, exit 1
    │   ├── TooManyConnections  the connection limit is reached                 503, exit 1
    │   └── StoreUnavailable    the database is temporarily unavailable         503, exit 1
    ├── ReservationTimeout      the direct execution did not start in time      503, exit 75
    └── StorageFull             the disk is full; nothing was stored            507, exit 1

The docstring of a class is its default message, so it is written for users. A message says what is wrong and what to
do next. The classes below have the order of this tree.

Problem documents carry the code, so that a client in another process raises the same class and exits with the same exit
code. `/problems` and the table in docs/reference/problems.md are generated from this module. A published code never
changes its meaning. Every command imports this module, so it imports only cheap parts of the standard library.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:  # `typing` costs a command more than the rest of this module
    from collections.abc import Iterable, Mapping
    from typing import ClassVar, Self


_MAX_MESSAGE_LENGTH = 1000
_MAX_TAIL_LENGTH = 300


def shorten(text: str) -> str:
    """Cut the middle out of a very long message or path. The end stays, because it says what to do."""
    if len(text) <= _MAX_MESSAGE_LENGTH:
        return text
    return f"{text[: _MAX_MESSAGE_LENGTH - _MAX_TAIL_LENGTH - 1]}…{text[-_MAX_TAIL_LENGTH:]}"


def escape_unprintable(text: str) -> str:
    """Return the text with escapes for line breaks and other unprintable characters."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)


class RotaError(Exception):
    """An unexpected error occurred."""

    code: ClassVar[str] = "error"
    title: ClassVar[str] = "Internal error"
    """Summary of the error class; `message` describes the occurrence."""
    remedy: ClassVar[str] = "Check the end of `rota.log` in the home directory, and run `rota doctor`."
    """Advice on how to fix the error."""
    http_status: ClassVar[int] = 500
    exit_code: ClassVar[int] = 1
    path: str = ""
    """Path of the invalid part of the request, if known: `.jobs[3].locks[0]`."""
    retry_after: float | None = None
    """Seconds to wait before the next attempt, if the scheduler gives them."""
    response_status: int | None = None
    """Status of the HTTP response that carried the error; None for an error raised in this process."""

    def at_path(self, path: str) -> Self:
        """Prefix the path of the error with `path` and return the error."""
        self.path = path + self.path
        return self

    @property
    def message(self) -> str:
        return str(self.args[0]) if self.args else self.__class__.__doc__ or self.code

    @property
    def status(self) -> int:
        """Status of the HTTP response that carried the error, or the default status of the class."""
        return self.http_status if self.response_status is None else self.response_status

    @property
    def detail(self) -> str:
        """The message under its name in problem documents."""
        return self.message


class error_path:  # noqa: N801 - reads as a statement: with error_path(".job"):
    """Context manager that prefixes the path of a refusal with `path`.

    With `replaced_prefix`, only paths that start with it are kept, with `path` in its place; any other path is cleared,
    because it is not a path of the request. An instance holds no state of a block, so that it can be reused and shared.
    """

    def __init__(self, path: str, replaced_prefix: str = "") -> None:
        self._path = path
        self._replaced_prefix = replaced_prefix

    def __enter__(self) -> None: ...

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if not isinstance(error, RotaError) or error.http_status >= 500:  # the request did not cause it
            return
        if error.path.startswith(self._replaced_prefix):
            error.path = self._path + error.path.removeprefix(self._replaced_prefix)
        else:
            error.path = ""


class BadRequest(RotaError):
    """The request is not valid HTTP."""

    code = "bad-request"
    title = "Malformed HTTP request"
    remedy = "Check the request line, the headers and the chunk framing of the body."
    http_status = 400


class Unauthorized(RotaError):
    """The token is missing or wrong."""

    code = "unauthorized"
    title = "Authentication required"
    remedy = "Send `Authorization: Bearer TOKEN` or `X-API-Key: TOKEN`; `rota token` prints it."
    http_status = 401


class OriginNotAllowed(RotaError):
    """The request comes from a page of another origin."""

    code = "origin-not-allowed"
    title = "Cross-origin request refused"
    remedy = (
        "Send the request from a program or from a page of the scheduler itself. If a proxy serves the pages, add its "
        "name to `server.allowed_hosts`."
    )
    http_status = 403


class NotFound(RotaError):
    """No object has this id."""

    code = "not-found"
    title = "Not found"
    remedy = "List the objects to find the right id. `rota gc` removes jobs that ended long ago."
    http_status = 404
    exit_code = 3


class MethodNotAllowed(RotaError):
    """The path exists, but does not support this method."""

    code = "method-not-allowed"
    title = "Method not allowed"
    remedy = "Use a method that the header `Allow` lists."
    http_status = 405


class RequestTimeout(RotaError):
    """The request did not arrive in time."""

    code = "request-timeout"
    title = "Request timeout"
    remedy = "Send the request again without pauses: the scheduler waits only a short time for the rest of a request."
    http_status = 408


class Conflict(RotaError):
    """The current state does not allow the operation."""

    code = "conflict"
    title = "Conflict with the current state"
    remedy = "Check the current state of the object. The same request fails again until that state changes."
    http_status = 409
    exit_code = 4


class RequestInProgress(Conflict):
    """A request with this idempotency key is in progress."""

    code = "request-in-progress"
    title = "Request in progress"
    remedy = "Send the request again after `Retry-After` with the same key to get the response of the first one."


class BodyTooLarge(RotaError):
    """The request body is too large."""

    code = "body-too-large"
    title = "Request body too large"
    remedy = "Send less data at once: split a batch into several requests."
    http_status = 413
    exit_code = 2


class TargetTooLong(RotaError):
    """The path and query of the request are too long."""

    code = "target-too-long"
    title = "Request target too long"
    remedy = "Request fewer items at once."
    http_status = 414
    exit_code = 2


class UnsupportedMediaType(RotaError):
    """The request body is not declared as plain JSON."""

    code = "unsupported-media-type"
    title = "Content-Type must be application/json"
    remedy = "Send uncompressed JSON with the header `Content-Type: application/json`."
    http_status = 415


class RangeNotSatisfiable(RotaError):
    """The requested range is outside the file."""

    code = "range"
    title = "Range not satisfiable"
    remedy = "Request a range within the size that the header `Content-Range` gives."
    http_status = 416
    exit_code = 2


class MisdirectedRequest(RotaError):
    """The request names a host that is not this scheduler."""

    code = "misdirected-request"
    title = "Unknown host name"
    remedy = "Use the address that `rota status` shows, or allow the name: `rota config set server.allowed_hosts NAME`."
    http_status = 421


class InvalidInput(RotaError):
    """The request is invalid."""

    code = "invalid-input"
    title = "Invalid request"
    remedy = "Read `detail`; `path`, if present, names the invalid part of the request."
    http_status = 422
    exit_code = 2


class IdempotencyKeyReused(InvalidInput):
    """The idempotency key belongs to a different request."""

    code = "idempotency-key-reused"
    title = "Idempotency key reused"
    remedy = "Send this request with a new key, or repeat the original request to get its response again."


class ConfigError(RotaError):
    """`rota.toml` is invalid."""

    code = "config-error"
    title = "Invalid configuration"
    remedy = "Fix the line of `rota.toml` that `detail` names; `rota doctor` checks the whole file."
    http_status = 422


class QueueFull(RotaError):
    """The queue is full; nothing was stored."""

    code = "deferred"
    title = "The queue is full"
    remedy = "Submit the job again after `Retry-After`, or raise `queue.hard_limit`."
    http_status = 429
    exit_code = 75
    depth: Mapping[str, object] | None = None
    """Number of ready jobs, if the scheduler gives it."""


class HeadersTooLarge(RotaError):
    """The request headers are too large."""

    code = "headers-too-large"
    title = "Request headers too large"
    remedy = "Send fewer or shorter headers; Rota needs no cookies."
    http_status = 431


class HomeError(RotaError):
    """The home directory cannot be used."""

    code = "home-error"
    title = "The home directory cannot be used"
    remedy = "Check the directory that `detail` names; `rota doctor` says what is wrong with it."


class StoreError(RotaError):
    """The database cannot be used."""

    code = "store-error"
    title = "The database cannot be used"
    remedy = "Run `rota doctor` to find the cause; `rota restore` restores a backup."


class ServiceUnavailable(RotaError):
    """The scheduler is stopping or unreachable."""

    code = "unavailable"
    title = "Scheduler unavailable"
    remedy = "Try again after `Retry-After`, with the same Idempotency-Key if the request changes something."
    http_status = 503


class TooManyConnections(ServiceUnavailable):
    """The connection limit is reached."""

    code = "too-many-connections"
    title = "Too many connections"
    remedy = "Try again after `Retry-After`. Close connections and streams that are not in use."


class StoreUnavailable(ServiceUnavailable, StoreError):
    """The database is temporarily unavailable; nothing was stored."""

    code = "store-unavailable"
    title = "Database unavailable"
    remedy = (
        "Try again after `Retry-After`, with the same Idempotency-Key if the request changes something. If the error "
        "persists, check that the server of `store.url` runs and accepts connections."
    )


class ReservationTimeout(RotaError):
    """The direct execution did not start in time; nothing ran."""

    code = "reservation-timeout"
    title = "Reservation timeout"
    remedy = "Try again later, wait longer, or free capacity: `rota reservation list` shows the reservations."
    http_status = 503
    exit_code = 75


class StorageFull(RotaError):
    """The disk is full; nothing was stored."""

    code = "storage-full"
    title = "The disk is full"
    remedy = "Free space on the disk of the home directory, then send the request again."
    http_status = 507


BY_CODE: dict[str, type[RotaError]] = {
    kind.code: kind for kind in list(globals().values()) if isinstance(kind, type) and issubclass(kind, RotaError)
}


def find_nearest(name: str, candidates: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """Return the candidate that is most similar to a misspelled name, or None if none is similar."""
    from difflib import get_close_matches

    return next(iter(get_close_matches(name, list(candidates), n=1, cutoff=cutoff)), None)

"""Everything Rota refuses or fails at, with one stable code each.

    RotaError
    ├── BadRequest          it is no HTTP request                          400, exit 1
    ├── Unauthorized        the token is missing or wrong                  401, exit 1
    ├── ForeignOrigin       a page from elsewhere asks                     403, exit 1
    ├── TooSlow             the request did not come in time               408, exit 1
    ├── TooLarge            its body is too large                          413, exit 2
    ├── TargetTooLong       its path and query are too long                414, exit 2
    ├── UnsupportedMedia    its body is not said to be plain JSON          415, exit 1
    ├── Misdirected         it asks for a host that is not this one        421, exit 1
    ├── HeadersTooLarge     its headers are too large                      431, exit 1
    ├── InvalidInput        what was asked cannot be understood            422, exit 2
    │   └── KeyReused       its key came with another request before       422, exit 2
    ├── NotFound            nothing has that id                            404, exit 3
    ├── MethodNotAllowed    it is there, but not to be asked like this     405, exit 1
    ├── Conflict            it is there, but not in a state that allows it 409, exit 4
    │   └── InFlight        the same request is being carried out          409, exit 4
    ├── OutOfRange          the file has no such part                      416, exit 2
    ├── Deferred            the queue is full; nothing was stored          429, exit 75
    ├── Unavailable         the scheduler is stopping or cannot be reached 503, exit 1
    │   ├── Busy            too many are connected                         503, exit 1
    │   └── StoreAway       the database is away, and comes back           503, exit 1
    ├── WaitOver            a direct execution did not get its turn        503, exit 75
    ├── StorageFull         the disk is full; nothing was stored           507, exit 1
    ├── ConfigError         `rota.toml` cannot be used                     422, exit 1
    ├── HomeError           the home directory cannot be used              500, exit 1
    └── StoreError          the database cannot be used                    500, exit 1
        └── StoreAway       the same as above: it is both                  503, exit 1

A message says what is wrong and what to do next. The code travels in problem documents, so that a
client in another process raises the same class and leaves with the same exit code. This is the one
table of them: `/problems` and docs/problems.md are made from it. A code, once given out, keeps its
meaning. This module is imported by every command: the standard library's cheap parts only.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:  # `typing` costs a command more than the rest of this module
    from collections.abc import Mapping
    from typing import ClassVar, Self


_MOST_SAID = 1000
_MOST_OF_END = 300


def shortened(text: str) -> str:
    """A message, or where in a request it is, without the middle of what it quotes where that is very long. What to do
    stands at its end, and stays."""
    if len(text) <= _MOST_SAID:
        return text
    return f"{text[: _MOST_SAID - _MOST_OF_END - 1]}…{text[-_MOST_OF_END:]}"


class RotaError(Exception):
    """Something went wrong that Rota did not foresee."""

    code: ClassVar[str] = "error"
    title: ClassVar[str] = "Something went wrong"
    """The same for all of its kind: `message` says what it is this time."""
    remedy: ClassVar[str] = "Look at the end of `rota.log` in the home, and at `rota doctor`."
    """What to do about it."""
    http_status: ClassVar[int] = 500
    exit_code: ClassVar[int] = 1
    path: str = ""
    """Where in a request it is, if that can be said: `.jobs[3].locks[0]`."""
    retry_after: float | None = None
    """Seconds after which it may be worth another try, where the scheduler says so."""
    came_with: int | None = None
    """The status of the HTTP answer that it came with, if it did."""

    def under(self, path: str) -> Self:
        """The same, of a part of what is at `path`."""
        self.path = path + self.path
        return self

    @property
    def message(self) -> str:
        return str(self.args[0]) if self.args else self.__class__.__doc__ or self.code

    @property
    def status(self) -> int:
        """Of the HTTP answer that it came with, or would come with."""
        return self.http_status if self.came_with is None else self.came_with

    @property
    def detail(self) -> str:
        """The message, by the name that a problem document has for it."""
        return self.message


class within:  # noqa: N801 - used as a word: with within(…)
    """`with within(".job"): …` What is refused there is of a part of what is at this path.

    With `instead_of` it is of what whoever refuses it calls so; what is wrong elsewhere is then nowhere in the request.
    One that is made can be used again, and by many.
    """

    def __init__(self, path: str, instead_of: str = "") -> None:
        self._path = path
        self._instead_of = instead_of

    def __enter__(self) -> None: ...

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if not isinstance(error, RotaError) or error.http_status >= 500:  # that is no fault of the request
            return
        if error.path.startswith(self._instead_of):
            error.path = self._path + error.path.removeprefix(self._instead_of)
        else:
            error.path = ""


class BadRequest(RotaError):
    """What came is no HTTP request."""

    code = "bad-request"
    title = "Not an HTTP request"
    remedy = (
        "Look at how the request is made: its first line, its headers, and the signs between the pieces of its body."
    )
    http_status = 400


class Unauthorized(RotaError):
    """The token is missing or wrong."""

    code = "unauthorized"
    title = "Not without the token"
    remedy = "Send `Authorization: Bearer TOKEN` or `X-API-Key: TOKEN`; `rota token` prints it."
    http_status = 401


class ForeignOrigin(RotaError):
    """A page from elsewhere asks."""

    code = "foreign-origin"
    title = "Not for pages of other sites"
    remedy = (
        "Ask from a program, or from a page of the scheduler's own. A proxy's name goes into `server.allowed_hosts`."
    )
    http_status = 403


class TooSlow(RotaError):
    """The request did not come in time."""

    code = "too-slow"
    title = "It took too long to come"
    remedy = "Send it again, whole: the scheduler does not wait for long for the rest of a request."
    http_status = 408


class TooLarge(RotaError):
    """The request's body is too large."""

    code = "too-large"
    title = "Too large"
    remedy = "Send less at once: a batch can be submitted in several parts."
    http_status = 413
    exit_code = 2


class TargetTooLong(RotaError):
    """The request's path and query are too long."""

    code = "target-too-long"
    title = "The path is too long"
    remedy = "Ask for fewer things at once."
    http_status = 414
    exit_code = 2


class UnsupportedMedia(RotaError):
    """The request's body is not said to be plain JSON."""

    code = "unsupported-media"
    title = "The body is not said to be plain JSON"
    remedy = "Send JSON that is not compressed, and the header `Content-Type: application/json`."
    http_status = 415


class Misdirected(RotaError):
    """The request asks for a host that is not this one."""

    code = "misdirected"
    title = "Not the name of this scheduler"
    remedy = (
        "Ask by the address that `rota status` shows, or add the name: `rota config set server.allowed_hosts NAME`."
    )
    http_status = 421


class HeadersTooLarge(RotaError):
    """The request's headers are too large."""

    code = "headers-too-large"
    title = "The headers are too large"
    remedy = "Send fewer or shorter headers; cookies are not needed."
    http_status = 431


class InvalidInput(RotaError):
    """The request cannot be understood."""

    code = "invalid-input"
    title = "The request cannot be understood"
    remedy = "Read `detail`, and `path` where there is one: it says which part of the request is meant."
    http_status = 422
    exit_code = 2


class KeyReused(InvalidInput):
    """The idempotency key came with another request before."""

    code = "key-reused"
    title = "The key came with another request"
    remedy = "Send this request with a key of its own, or the request of before to have its answer again."


class NotFound(RotaError):
    """Nothing has that id."""

    code = "not-found"
    title = "Nothing has that id"
    remedy = "Look at the list of them. What ended long ago has been removed by `rota gc`."
    http_status = 404
    exit_code = 3


class Conflict(RotaError):
    """The thing is not in a state that allows this."""

    code = "conflict"
    title = "Not in this state"
    remedy = "Look at the thing as it is now. The same request again has the same answer until that changes."
    http_status = 409
    exit_code = 4


class InFlight(Conflict):
    """A request with this idempotency key is being carried out."""

    code = "in-flight"
    title = "The same request is being carried out"
    remedy = "Ask again after `Retry-After` with the same key: the answer is that of the first."


class MethodNotAllowed(RotaError):
    """There is something at this path, but it cannot be asked with this method."""

    code = "method-not-allowed"
    title = "Not with this method"
    remedy = "The header `Allow` has the methods that can be used."
    http_status = 405


class OutOfRange(RotaError):
    """The file has no such part."""

    code = "range"
    title = "Not a part of it"
    remedy = "The header `Content-Range` says how many bytes there are."
    http_status = 416
    exit_code = 2


class Deferred(RotaError):
    """The queue is full; nothing was stored."""

    code = "deferred"
    title = "The queue is full"
    remedy = "Submit it again after `Retry-After`, or raise `queue.hard_limit`."
    http_status = 429
    exit_code = 75
    depth: Mapping[str, object] | None = None
    """How many jobs are ready, where the scheduler says so."""


class Unavailable(RotaError):
    """The scheduler is stopping or cannot be reached."""

    code = "unavailable"
    title = "Not now"
    remedy = "Ask again after `Retry-After`, with the same Idempotency-Key if the request changes something."
    http_status = 503


class Busy(Unavailable):
    """As many are connected as there may be."""

    code = "busy"
    title = "Too many at once"
    remedy = "Ask again after `Retry-After`. Close connections and streams that nobody reads."


class WaitOver(RotaError):
    """The turn of a direct execution did not come in time; nothing of it ran."""

    code = "wait-over"
    title = "Its turn did not come in time"
    remedy = "Ask again later, wait longer, or make room: `rota slot list` shows who has the places."
    http_status = 503
    exit_code = 75


class StorageFull(RotaError):
    """The disk is full; nothing was stored."""

    code = "storage-full"
    title = "The disk is full"
    remedy = "Make room on the disk of the home. Nothing of this request was stored, so send it again then."
    http_status = 507


class ConfigError(RotaError):
    """`rota.toml` cannot be used as it is."""

    code = "config-error"
    title = "The configuration cannot be used"
    remedy = "Mend the line of `rota.toml` that `detail` names; `rota doctor` looks at it whole."
    http_status = 422


class HomeError(RotaError):
    """The home directory cannot be used."""

    code = "home-error"
    title = "The home cannot be used"
    remedy = "Look at the directory that `detail` names: `rota doctor` says what is wrong with it."


class StoreError(RotaError):
    """The database cannot be used."""

    code = "store-error"
    title = "The database cannot be used"
    remedy = "Look at `rota doctor`; `rota restore` brings back a backup."


class StoreAway(Unavailable, StoreError):
    """The database does not answer now, as while its server is restarted; nothing was stored."""

    code = "store-away"
    title = "The database is away"
    remedy = (
        "Ask again after `Retry-After`, with the same Idempotency-Key if the request changes something. If it stays "
        "away, look whether the server of `store.url` runs and takes connections."
    )


BY_CODE: dict[str, type[RotaError]] = {
    kind.code: kind
    for kind in (
        RotaError, BadRequest, Unauthorized, ForeignOrigin, TooSlow, TooLarge, TargetTooLong, UnsupportedMedia,
        Misdirected, HeadersTooLarge, InvalidInput, KeyReused, NotFound, MethodNotAllowed, Conflict, InFlight,
        OutOfRange, Deferred, Unavailable, Busy, WaitOver, StorageFull, ConfigError, HomeError, StoreError,
        StoreAway,
    )
}  # fmt: skip

"""Everything Rota refuses or fails at, with one stable code each.

    RotaError
    ├── InvalidInput        what was asked cannot be understood            422, exit 2
    │   └── KeyReused       its key came with another request before       422, exit 2
    ├── NotFound            nothing has that id                            404, exit 3
    ├── Conflict            it is there, but not in a state that allows it 409, exit 4
    │   └── InFlight        the same request is being carried out          409, exit 4
    ├── Unavailable         the scheduler is stopping or cannot be reached 503, exit 1
    ├── WaitOver            a direct execution did not get its turn        503, exit 75
    ├── Deferred            the queue is full; nothing was stored          429, exit 75
    ├── StorageFull         the disk is full; nothing was stored           507, exit 1
    ├── ConfigError         `rota.toml` cannot be used                     500, exit 1
    ├── HomeError           the home directory cannot be used              500, exit 1
    └── StoreError          the database cannot be used                    500, exit 1

A message says what is wrong and what to do next. The code travels in problem documents, so that a
client in another process raises the same class and leaves with the same exit code. This module is
imported by every command: the standard library's cheap parts only.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:  # `typing` costs a command more than the rest of this module
    from collections.abc import Mapping
    from typing import ClassVar, Self


class RotaError(Exception):
    """Something Rota says no to, in words a person can act on."""

    code: ClassVar[str] = "error"
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


class InvalidInput(RotaError):
    """The request cannot be understood."""

    code = "invalid-input"
    http_status = 422
    exit_code = 2


class KeyReused(InvalidInput):
    """The idempotency key came with another request before."""

    code = "key-reused"


class NotFound(RotaError):
    """Nothing has that id."""

    code = "not-found"
    http_status = 404
    exit_code = 3


class Conflict(RotaError):
    """The thing is not in a state that allows this."""

    code = "conflict"
    http_status = 409
    exit_code = 4


class InFlight(Conflict):
    """A request with this idempotency key is being carried out."""

    code = "in-flight"


class Unavailable(RotaError):
    """The scheduler is stopping or cannot be reached."""

    code = "unavailable"
    http_status = 503


class WaitOver(RotaError):
    """The turn of a direct execution did not come in time; nothing of it ran."""

    code = "wait-over"
    http_status = 503
    exit_code = 75


class Deferred(RotaError):
    """The queue is full; nothing was stored."""

    code = "deferred"
    http_status = 429
    exit_code = 75
    depth: Mapping[str, object] | None = None
    """How many jobs are ready, where the scheduler says so."""


class StorageFull(RotaError):
    """The disk is full; nothing was stored."""

    code = "storage-full"
    http_status = 507


class ConfigError(RotaError):
    """`rota.toml` cannot be used as it is."""

    code = "config-error"


class HomeError(RotaError):
    """The home directory cannot be used."""

    code = "home-error"


class StoreError(RotaError):
    """The database cannot be used."""

    code = "store-error"


BY_CODE: dict[str, type[RotaError]] = {
    kind.code: kind
    for kind in (
        RotaError, InvalidInput, KeyReused, NotFound, Conflict, InFlight, Unavailable, WaitOver, Deferred,
        StorageFull, ConfigError, HomeError, StoreError,
    )
}  # fmt: skip

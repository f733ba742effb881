"""How a method of both clients is made.

The two differ only in how they wait, so each method is written once: as a builder and the form of its answer, or as a
coroutine, or as an asynchronous generator, always over a `Line`. `Client` gives back what they come to, `AsyncClient`
something to await or to iterate over. Type checkers see the signature and the result of each as if it stood there
twice.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator, Sequence
from inspect import Signature, signature
from types import NoneType
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, overload

import msgspec

from rota.client.ask import MOST_LISTED, Ask
from rota.client.carry import Carrier, each, run
from rota.client.problem import BadAnswer
from rota.errors import InvalidInput
from rota.sdk.around import directory, here

P = ParamSpec("P")
T = TypeVar("T")
F = TypeVar("F", bound="Page")


class Line:
    """What a method speaks over."""

    def __init__(self, carrier: Carrier, *, is_here: bool) -> None:
        self.carrier = carrier
        self.is_here = is_here
        """Else the scheduler may be on another machine, with other directories."""

    def placed(self, ask: Ask) -> Ask:
        """Says where the command of a request is to run, if it does not itself."""
        return here(ask) if self.is_here else ask

    async def ask(self, ask: Ask, form: type[T]) -> T:
        """Its answer, decoded. What a newer scheduler says beyond the form is passed over."""
        answer = await self.carrier.ask(ask)
        if form is NoneType:
            return None  # type: ignore[return-value]
        try:
            return msgspec.json.decode(answer.body, type=form)
        except (msgspec.ValidationError, msgspec.DecodeError) as error:
            raise BadAnswer(f"the answer to {ask.method} {ask.target} cannot be read: {error}") from None


class Blocking:
    """A client whose methods return when they are done."""

    _line: Line


class Awaiting:
    """A client whose methods are awaited."""

    _line: Line


class _Method:
    """Shows itself to `help` as what it was made of."""

    def __init__(self, made_of: Callable[..., Any]) -> None:
        self.__doc__ = made_of.__doc__
        self._made_of = made_of

    def __set_name__(self, owner: type, name: str) -> None:
        self.__name__ = name
        self.__qualname__ = f"{owner.__name__}.{name}"

    @property
    def __signature__(self) -> Signature:
        found = signature(self._made_of)
        return found.replace(parameters=[each for each in found.parameters.values() if each.name != "line"])

    def _bound(self, call: Callable[..., Any]) -> Callable[..., Any]:
        call.__name__, call.__qualname__, call.__doc__ = self.__name__, self.__qualname__, self.__doc__
        call.__wrapped__ = self  # type: ignore[attr-defined]
        return call


class Deed(_Method, Generic[P, T]):
    """A method with one result."""

    def __init__(self, do: Callable[Concatenate[Line, P], Coroutine[Any, Any, T]]) -> None:
        super().__init__(do)
        self._do = do

    @overload
    def __get__(self, client: None, owner: type) -> Deed[P, T]: ...
    @overload
    def __get__(self, client: Blocking, owner: type) -> Callable[P, T]: ...
    @overload
    def __get__(self, client: Awaiting, owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, client: Any, owner: type) -> Any:
        if client is None:
            return self

        def call(*args: P.args, **given: P.kwargs) -> Any:
            work = self._do(client._line, *args, **given)
            return run(work) if isinstance(client, Blocking) else work

        return self._bound(call)


class Verb(Deed[P, T]):
    """The same of one request: what builds it, and the form of its answer."""

    def __init__(
        self, build: Callable[P, Ask], form: type[T], *, has_place: bool = False, has_cwd: bool = False
    ) -> None:
        """`has_place`: it asks for a command to be run somewhere. `has_cwd`: it speaks of what is in a directory."""

        async def do(line: Line, /, *args: P.args, **given: P.kwargs) -> T:
            if has_cwd and line.is_here and given.get("cwd") is None:
                given["cwd"] = directory()
            ask = build(*args, **given)
            return await line.ask(line.placed(ask) if has_place else ask, form)

        super().__init__(do)
        self.build, self.form = build, form
        self.__doc__, self._made_of = build.__doc__, build


class Course(_Method, Generic[P, T]):
    """A method with results one after the other."""

    def __init__(self, go: Callable[Concatenate[Line, P], AsyncGenerator[T, None]]) -> None:
        super().__init__(go)
        self._go = go

    @overload
    def __get__(self, client: None, owner: type) -> Course[P, T]: ...
    @overload
    def __get__(self, client: Blocking, owner: type) -> Callable[P, Iterator[T]]: ...
    @overload
    def __get__(self, client: Awaiting, owner: type) -> Callable[P, AsyncIterator[T]]: ...
    def __get__(self, client: Any, owner: type) -> Any:
        if client is None:
            return self

        def call(*args: P.args, **given: P.kwargs) -> Any:
            items = self._go(client._line, *args, **given)
            return each(items) if isinstance(client, Blocking) else items

        return self._bound(call)


class Page(Protocol):
    """Of a list."""

    @property
    def next(self) -> str | None:
        """The cursor of the page after this."""


class Pages(Course[P, T]):
    """All of a list, page by page. `limit` is how many of it at most, `cursor` where to begin."""

    def __init__(self, build: Callable[P, Ask], form: type[F], of: Callable[[F], Sequence[T]]) -> None:
        async def go(line: Line, /, *args: P.args, **given: P.kwargs) -> AsyncGenerator[T, None]:
            asked: Any = dict(given)
            left = _most(asked.pop("limit", None))
            seen: set[object] = set()
            while left is None or left > 0:
                asked["limit"] = MOST_LISTED if left is None else min(left, MOST_LISTED)
                page = await line.ask(build(*args, **asked), form)
                items = [item for item in of(page) if _is_new(item, seen)]
                for item in items:
                    yield item
                if page.next is None:
                    return
                left = None if left is None else left - len(items)
                asked["cursor"] = page.next

        super().__init__(go)
        self.build, self.form = build, form
        self.__doc__, self._made_of = build.__doc__, build


def _is_new(item: object, seen: set[object]) -> bool:
    """What has taken another place between two pages, as a job that has ended, is on both of them."""
    name = getattr(item, "id", None)
    if name is None:
        return True
    is_new = name not in seen
    seen.add(name)
    return is_new


def _most(limit: object) -> int | None:
    if limit is None or (isinstance(limit, int) and not isinstance(limit, bool) and limit >= 0):
        return limit
    raise InvalidInput(f"limit is how many at most, as 100, not {limit!r}")

"""Operation contracts: each operation of the API is declared once, as the signature of a function.

    @operation("GET /api/work/{item}", cli="work show", help={"item": "Id of the work item."})
    def show_item(item: ItemId) -> WorkItemDetail:
        \"\"\"Show a work item.\"\"\"                      operations.py: the contract, without a body

    @ops.show_item.reads
    def show_item(reader: AnyReader, item: str) -> WorkItemDetail: ...      queries.py: the implementation

Everything else comes from the contract:

    http.bind               endpoint, decoder, OpenAPI entry
    client.operations       requests; client.sdk.operations: the methods of both clients
    cli.operations          verb, options, shell completion, reference documentation

A parameter that the path names is a path parameter. The others are the query of a GET or DELETE, and the fields of the
JSON body of any other method. On the command line, parameters before the `*` of the signature are positional
arguments, and those after it are options.

| type                                   | JSON       | query       | command line                          |
|----------------------------------------|------------|-------------|---------------------------------------|
| `str`, an enum, an alias of `str`      | string     | text        | `--name NAME`                         |
| `Literal["a", "b"]`                    | string     | text        | one of the choices                    |
| `JobIdText` and the other ids          | string     | text        | `job-24`, or `24` for short           |
| `int`, `float` and aliases in NUMBERS  | number     | text        | `--name N`                            |
| `bool`                                 | boolean    | `1` or `0`  | `--name`; `--no-name` if true by default |
| `timedelta`                            | `"1m30s"`  | `1m30s`     | `--name DURATION`                     |
| `Sequence[T]`                          | array      | repeatable  | repeatable                            |
| `Mapping[str, T]`                      | object     | -           | `--name KEY=VALUE`, repeatable        |
| `T | None`                             | null       | left out    | left out                              |

The result is a struct, or `AsyncIterator[T]` for a stream of server-sent events, which has no command.

A contract is imported by every command of its package, so it costs little: types are imported for type checkers only,
and `Operation.types` resolves them late. Type checkers hold the implementation to the contract: `reads`, `writes` and
`streams` accept only a function with the parameters and the result of the contract.
"""

from __future__ import annotations

import sys
from functools import cache, cached_property

from rota.errors import RotaError

TYPE_CHECKING = False
if TYPE_CHECKING:  # Importing `typing` takes a third of the start time of a bare interpreter.
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from types import ModuleType
    from typing import Any, Concatenate, Generic, Literal, ParamSpec, TypeVar

    from rota.client.requests import Json
    from rota.db.session import AnyReader
    from rota.engine.transaction import Transaction
    from rota.http.context import Context

    P = ParamSpec("P")
    R = TypeVar("R")
    T = TypeVar("T")
    Kind = Literal["reads", "writes", "streams"]
else:

    class Generic:
        """Stand-in for `typing.Generic`."""

        def __class_getitem__(cls, _: object) -> type:
            return cls

    P = R = T = None

REQUIRED: Any = object()
"""Marks a required parameter."""
NUMBERS = {"int": int, "float": float, "PageSize": int}
"""Types of numbers by their names in a contract. Commands know the names only, because resolving them is slow."""
_METHODS_WITH_QUERY = ("GET", "DELETE")


class Parameter:
    """Parameter of a contract. The properties are derived from the text of its annotation."""

    __slots__ = ("default", "description", "is_in_path", "is_positional", "name", "option", "type_name")

    def __init__(
        self,
        name: str,
        annotation: str,
        default: Any,
        *,
        is_positional: bool,
        is_in_path: bool,
        description: str,
        option: str,
    ) -> None:
        self.name = name
        self.type_name = annotation.removesuffix(" | None")
        self.default = default
        self.is_positional = is_positional
        """Whether commands take it as an argument instead of an option."""
        self.is_in_path = is_in_path
        self.description = description
        """Help of the commands, and description in the OpenAPI document."""
        self.option = option
        """Names of the option, separated by spaces."""

    @property
    def is_required(self) -> bool:
        return self.default is REQUIRED

    @property
    def is_sequence(self) -> bool:
        return self.type_name.startswith("Sequence[")

    @property
    def is_mapping(self) -> bool:
        return self.type_name.startswith("Mapping[")

    @property
    def is_flag(self) -> bool:
        return self.type_name == "bool"

    @property
    def item_type_name(self) -> str:
        """Name of the type of a single value: `int` for `Sequence[int]`."""
        return self.type_name[len("Sequence[") : -1] if self.is_sequence else self.type_name

    @property
    def is_duration(self) -> bool:
        return self.item_type_name == "timedelta"

    @property
    def number_type(self) -> Callable[[str], float] | None:
        return NUMBERS.get(self.item_type_name)

    @property
    def id_kind(self) -> str | None:
        """Kind of the ids that the parameter takes: `job` for `JobIdText`."""
        kind = self.item_type_name.removesuffix("IdText")
        return kind.lower() if kind != self.item_type_name else None

    @property
    def choices(self) -> tuple[str, ...]:
        """Values of a `Literal`; empty for any other type."""
        name = self.item_type_name
        if not name.startswith("Literal["):
            return ()
        return tuple(choice.strip().strip("\"'") for choice in name[len("Literal[") : -1].split(","))


class Implementation:
    """Function that carries out an operation in the scheduler."""

    __slots__ = ("function", "kind", "prepare")

    def __init__(self, kind: Kind, function: Callable[..., Any], prepare: Callable[..., Awaitable[Any]] | None) -> None:
        self.kind = kind
        self.function = function
        self.prepare = prepare


class Operation(Generic[P, R]):
    """Contract of an operation, and the functions that are registered for it."""

    def __init__(
        self,
        contract: Callable[P, R],
        route: str,
        *,
        cli: str | None,
        status: int,
        is_idempotent: bool,
        errors: Sequence[int | type[RotaError]],
        guards: Sequence[str],
        pages: str | None,
        help: Mapping[str, str],  # noqa: A002
        options: Mapping[str, str],
        example: Mapping[str, object],
    ) -> None:
        self.contract = contract
        self.name = contract.__name__
        self.method, self.path = route.split(" ")
        self.cli = cli
        self.status = status
        self.is_idempotent = is_idempotent
        self.errors = errors
        self.guards = guards
        self.pages = pages
        self.example = example
        self.parameters = _read_parameters(contract, self.path, help, options)
        self.implementation: Implementation | None = None
        self.printer: Callable[[Json], None] | None = None
        names = [parameter.name for parameter in self.parameters]
        if pages is not None and not {"limit", "cursor"} <= {*names}:
            raise TypeError(f"{self.name} has pages, so it needs the parameters limit and cursor")
        if self.has_query and any(parameter.is_mapping for parameter in self.parameters):
            raise TypeError(f"{self.name} has a Mapping, which a query cannot contain")
        if self.is_stream and cli is not None:
            raise TypeError(f"{self.name} is a stream, which needs a command of its own")

    def __repr__(self) -> str:
        return f"Operation({self.name}: {self.method} {self.path})"

    @property
    def has_query(self) -> bool:
        """Whether parameters that are not in the path are a query instead of a body."""
        return self.method in _METHODS_WITH_QUERY

    @property
    def is_stream(self) -> bool:
        """Whether the response is a stream of messages."""
        result: str = self.contract.__annotations__["return"]
        return result.startswith("AsyncIterator[")

    @property
    def summary(self) -> str:
        """First sentence of the documentation."""
        text = " ".join((self.contract.__doc__ or "").split())
        return f"{text.partition('. ')[0].removesuffix('.')}."

    @cached_property
    def types(self) -> dict[str, Any]:
        """Types of the parameters by name, and of the result as `return`. Resolving them is slow."""
        from typing import get_type_hints

        return get_type_hints(self.contract, globalns=_type_names(self.contract.__module__), include_extras=True)

    # Registration of functions. They are returned unchanged.

    def reads(self, function: Callable[Concatenate[AnyReader, P], R]) -> Callable[Concatenate[AnyReader, P], R]:
        """Register a function that runs in a reader's thread, in a read transaction."""
        return self._implement("reads", function, None)

    def writes(self, function: Callable[Concatenate[Transaction, P], R]) -> Callable[Concatenate[Transaction, P], R]:
        """Register a function that runs in the engine's turn, in its transaction."""
        return self._implement("writes", function, None)

    def streams(self, function: Callable[Concatenate[Context, P], R]) -> Callable[Concatenate[Context, P], R]:
        """Register a function that returns an asynchronous generator of messages. It runs on the event loop."""
        return self._implement("streams", function, None)

    def prepared_by(self, prepare: Callable[Concatenate[Context, P], Awaitable[T]]) -> PreparedOperation[P, R, T]:
        """Run `prepare` on the event loop before the transaction: it may await files, git or DNS. The implementation
        gets its result as the second argument."""
        return PreparedOperation(self, prepare)

    def prints(self, function: Callable[[Json], None]) -> Callable[[Json], None]:
        """Register the function that prints the response of the command without `--json`."""
        self.printer = function
        return function

    def _implement(self, kind: Kind, function: T, prepare: Callable[..., Awaitable[Any]] | None) -> T:
        if self.implementation is not None:
            raise TypeError(f"{self.name} has two implementations")
        if self.is_idempotent and kind != "writes":
            raise TypeError(f"{self.name} is idempotent, so it needs an implementation that writes")
        if self.is_stream != (kind == "streams"):
            raise TypeError(f"{self.name} has the result AsyncIterator if, and only if, its implementation streams")
        self.implementation = Implementation(kind, function, prepare)  # type: ignore[arg-type]
        return function


class PreparedOperation(Generic[P, R, T]):
    """Operation whose implementation gets the result of `prepare`."""

    def __init__(self, operation: Operation[P, R], prepare: Callable[Concatenate[Context, P], Awaitable[T]]) -> None:
        self._operation = operation
        self._prepare = prepare

    def reads(self, function: Callable[Concatenate[AnyReader, T, P], R]) -> Callable[Concatenate[AnyReader, T, P], R]:
        return self._operation._implement("reads", function, self._prepare)

    def writes(
        self, function: Callable[Concatenate[Transaction, T, P], R]
    ) -> Callable[Concatenate[Transaction, T, P], R]:
        return self._operation._implement("writes", function, self._prepare)


def operation(
    route: str,
    *,
    cli: str | None = None,
    status: int = 200,
    idempotent: bool = False,
    errors: Sequence[int | type[RotaError]] = (),
    guards: Sequence[str] = (),
    pages: str | None = None,
    help: Mapping[str, str] = {},  # noqa: A002
    options: Mapping[str, str] = {},
    example: Mapping[str, object] = {},
) -> Callable[[Callable[P, R]], Operation[P, R]]:
    """Declare an operation: `route` is its method and path.

    `cli` is its command, `status` the status of its successful response. A request to an `idempotent` operation takes
    effect once for each idempotency key. `errors` are refusals, as classes or statuses, in addition to those that every
    endpoint can send. `guards` are the entries of docs/dev/guards.md that the operation upholds. `pages` names the
    field of the response with the items of a page; the operation then has the parameters `limit` and `cursor`, and
    commands and clients read page after page. `help` describes the parameters, `options` gives a parameter another
    option than its name, such as `{"events": "--event"}`, and `example` has arguments for the OpenAPI document.
    """

    def declare(contract: Callable[P, R]) -> Operation[P, R]:
        return Operation(
            contract,
            route,
            cli=cli,
            status=status,
            is_idempotent=idempotent,
            errors=errors,
            guards=guards,
            pages=pages,
            help=help,
            options=options,
            example=example,
        )

    return declare


def operations_in(module: ModuleType) -> list[Operation[..., Any]]:
    """Return the operations that a module declares, in order."""
    return [value for value in vars(module).values() if isinstance(value, Operation)]


def _read_parameters(
    contract: Callable[..., Any], path: str, descriptions: Mapping[str, str], options: Mapping[str, str]
) -> tuple[Parameter, ...]:
    """Read the parameters of a function. `inspect.signature` does the same, but the import of `inspect` would slow down
    every command."""
    code, annotations = contract.__code__, contract.__annotations__
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    positional = names[: code.co_argcount]
    values = contract.__defaults__ or ()
    with_default = positional[len(positional) - len(values) :]
    defaults = {**dict(zip(with_default, values, strict=True)), **(contract.__kwdefaults__ or {})}
    in_path = {part.strip("{}").partition(":")[0] for part in path.split("/") if part.startswith("{")}
    if unknown := ({*descriptions, *options} | in_path) - {*names}:
        raise TypeError(f"{contract.__name__} has no parameter {', '.join(sorted(unknown))}")
    if required := in_path & defaults.keys():
        raise TypeError(f"{contract.__name__} has a default for {', '.join(sorted(required))}, which is in the path")
    return tuple(
        Parameter(
            name,
            annotations[name],
            defaults.get(name, REQUIRED),
            is_positional=name in positional,
            is_in_path=name in in_path,
            description=descriptions.get(name, ""),
            option=options.get(name, f"--{name.replace('_', '-')}"),
        )
        for name in names
    )


@cache
def _type_names(contracts: str) -> dict[str, Any]:
    """Return the names that the annotations of a module use. The module imports types for type checkers only, so these
    imports are read from its source and carried out here."""
    import ast
    from importlib import import_module
    from inspect import getsource

    module = sys.modules[contracts]
    names = dict(vars(module))
    for node in ast.walk(ast.parse(getsource(module))):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            source = import_module(node.module)
            names.update({alias.asname or alias.name: getattr(source, alias.name) for alias in node.names})
    return names

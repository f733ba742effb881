"""Verbs of operation contracts: their arguments, and the request that a command makes of them."""

from __future__ import annotations

import argparse
from functools import partial

from rota.cli.parser import UsageError, add_actions, parse_pairs, with_id_prefix
from rota.cli.terminal import print_json
from rota.client.operations import build_request
from rota.client.requests import MAX_PAGE_SIZE
from rota.client.session import SchedulerSession
from rota.home import find_home
from rota.operation import operations_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

    from rota.client.requests import Json
    from rota.operation import Operation, Parameter


def make_verb(
    contracts: ModuleType, verb: str
) -> tuple[Callable[[argparse.ArgumentParser], None], Callable[[argparse.Namespace], int]]:
    """Return `add_VERB_arguments` and `run_VERB` for the operations of a module whose `cli` is `VERB` or `VERB
    ACTION`. The first action is the default if it needs no arguments."""
    actions = {
        action: operation
        for operation in operations_in(contracts)
        for name, _, action in [(operation.cli or "").partition(" ")]
        if name == verb
    }

    def add_arguments(parser: argparse.ArgumentParser) -> None:
        if "" in actions:
            add_operation_arguments(parser, actions[""])
            return
        children = add_actions(parser, {action: operation.summary for action, operation in actions.items()})
        for action, operation in actions.items():
            add_operation_arguments(children[action], operation)

    def run(args: argparse.Namespace) -> int:
        if "" in actions or args.action is not None:
            return run_operation(actions[getattr(args, "action", "")], args)
        default = next(iter(actions.values()))
        if any(parameter.is_required for parameter in default.parameters):
            raise UsageError(f"missing action; actions: {', '.join(actions)}; see `rota {verb} --help`")
        return run_operation(default, args)

    return add_arguments, run


def add_operation_arguments(parser: argparse.ArgumentParser, operation: Operation[..., Any]) -> None:
    for parameter in operation.parameters:
        if operation.pages is None or parameter.name != "cursor":  # the command reads page after page itself
            _add_parameter(parser, parameter)


def _add_parameter(parser: argparse.ArgumentParser, parameter: Parameter) -> None:
    keywords: dict[str, Any] = {"help": parameter.description}
    if parameter.is_flag:
        has_true_default = parameter.default is True
        names = [f"--no-{parameter.option.removeprefix('--')}"] if has_true_default else parameter.option.split()
        action = "store_false" if has_true_default else "store_true"
        parser.add_argument(*names, dest=parameter.name, action=action, default=None, **keywords)
        return
    keywords |= {"metavar": _metavar(parameter), "type": _type(parameter)}
    if parameter.choices:
        keywords["choices"] = parameter.choices
    is_repeatable = parameter.is_sequence or parameter.is_mapping
    if parameter.is_positional:
        if is_repeatable or not parameter.is_required:
            keywords["nargs"] = "?" if not is_repeatable else "+" if parameter.is_required else "*"
        parser.add_argument(parameter.name, **keywords)
        return
    keywords |= {"dest": parameter.name, "required": parameter.is_required}
    parser.add_argument(*parameter.option.split(), action="append" if is_repeatable else "store", **keywords)


def _metavar(parameter: Parameter) -> str:
    if parameter.is_mapping:
        return "KEY=VALUE"
    if parameter.is_duration:
        return "DURATION"
    if parameter.choices:
        return "|".join(parameter.choices)
    return "N" if parameter.number_type is not None else parameter.option.split()[-1].lstrip("-").upper()


def _type(parameter: Parameter) -> Callable[[str], Any]:
    if parameter.id_kind is not None:
        return partial(with_id_prefix, parameter.id_kind)
    return parameter.number_type or str


def run_operation(operation: Operation[..., Any], args: argparse.Namespace) -> int:
    """Send the request of a command, and print the response."""
    session = SchedulerSession(find_home(args.home), is_read_only=operation.method == "GET")
    arguments = read_arguments(operation, args)
    response = (
        session.request_json(build_request(operation, arguments))
        if operation.pages is None
        else _read_pages(session, operation, operation.pages, arguments)
    )
    if args.json or operation.printer is None:
        print_json(response)
    else:
        operation.printer(response)
    return 0


def read_arguments(operation: Operation[..., Any], args: argparse.Namespace) -> Json:
    """Return the arguments that were given."""
    given: Json = {}
    for parameter in operation.parameters:
        value = getattr(args, parameter.name, None)  # the default action has no arguments
        if value in (None, []):
            continue
        given[parameter.name] = parse_pairs(value, parameter.option) if parameter.is_mapping else value
    return given


def _read_pages(session: SchedulerSession, operation: Operation[..., Any], field: str, arguments: Json) -> Json:
    """Return a page with all items, or with the first `limit` items."""
    limit = arguments.get("limit")
    items: list[Json] = []
    while True:
        size = MAX_PAGE_SIZE if limit is None else min(limit - len(items), MAX_PAGE_SIZE)
        page: Json = session.request_json(build_request(operation, {**arguments, "limit": size}))
        items += page[field]
        if page["next"] is None or len(items) == limit:
            return {**page, field: items}
        arguments = {**arguments, "cursor": page["next"]}

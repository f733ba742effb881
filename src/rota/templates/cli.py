"""`rota template`: manage named defaults for jobs of one kind."""

from __future__ import annotations

import argparse
import json
import shlex
import sys

from rota.cli.parser import UsageError, add_actions, add_command_argument, parse_pairs
from rota.cli.table import render
from rota.cli.terminal import print_json, print_notice, print_text, terminal_width
from rota.client.requests.definitions import (
    add_template,
    archive_template,
    change_template,
    get_template,
    list_templates,
    replace_template,
    unarchive_template,
)
from rota.client.session import SchedulerSession
from rota.errors import escape_unprintable
from rota.home import find_home
from rota.jobs.cli.options import PARAM_SYNTAX, parse_lock, parse_params, parse_pool, require_utf8

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from rota.client.requests import Json

EXAMPLES = ("agent", "pipeline")
_HEADERS = ("NAME", "ID", "TYPE", "PARAMS", "COMMAND")
_PLAIN_OPTIONS = (
    "type",
    "retry",
    "retries",
    "priority",
    "flow",
    "phase",
    "unique",
    "target",
    "timeout",
    "idle_timeout",
    "skip_if",
    "base",
    "job_name",
    "description",
    "parallelizable",
    "worktree",
    "patch",
)
_ACTIONS = {
    "list": "List templates.",
    "add": "Add a template from a file (TOML, YAML or JSON; - is stdin), or as NAME [options] -- COMMAND.",
    "show": "Show all fields of a template.",
    "change": "Replace a template by a file, or change the given options. Existing jobs do not change.",
    "archive": "Archive a template, so that no new jobs use it. Existing jobs continue.",
    "unarchive": "Restore an archived template.",
    "example": "Print a complete example file.",
}


def add_template_arguments(parser: argparse.ArgumentParser) -> None:
    actions = add_actions(parser, _ACTIONS)
    # `rota template` without an action is `list`, but its parser has no `--all`.
    parser.set_defaults(all=False)
    actions["list"].add_argument("--all", action="store_true", help="Include archived templates.")
    _add_options(
        actions["add"],
        "FILE|NAME",
        "The file, or the name of a template from the options and a command, which can have {param} placeholders.",
    )
    _add_options(actions["change"], "NAME", "The template, by name or ID.")
    actions["change"].add_argument("file", nargs="?", metavar="FILE", help="The file that replaces the template.")
    for action in ("show", "archive", "unarchive"):
        actions[action].add_argument("name", metavar="NAME", help="The template, by name or ID.")
    text = "The example. agent: a CLI agent in its own worktree; pipeline: a step that calls a model, one at a time."
    actions["example"].add_argument("which", nargs="?", choices=EXAMPLES, default=EXAMPLES[0], help=text)


def _add_options(parser: argparse.ArgumentParser, metavar: str, text: str) -> None:
    add = parser.add_argument
    add("name", metavar=metavar, help=text)
    add("--description", metavar="TEXT", help="Set the description.")
    add("--param", action="append", metavar="K=V", help=f"Set the default of a param: {PARAM_SYNTAX}.")
    add("--schema", metavar="FILE", help="Validate the params of each job with the JSON Schema in FILE.")
    add("--job-name", metavar="NAME", help="Set the name of the jobs, with {param} placeholders.")
    add("--type", help="Set the job type; jobs draw from the pool type/TYPE.")
    add("--priority", type=int, metavar="N", help="Set the priority; higher priorities start first.")
    add("--needs", action="append", metavar="ARTIFACT", help="Wait for this artifact.")
    add("--produces", action="append", metavar="ARTIFACT", help="Declare an artifact that the jobs produce.")
    add("--webhook", action="append", metavar="URL", help="Notify this URL when a job ends.")
    add(
        "--webhook-event",
        action="append",
        metavar="EVENT",
        help="Notify of this event only (default: completed, failed and skipped).",
    )
    add("--lock", action="append", metavar="KEY[:shared]", help="Hold this lock while a job runs.")
    add("--pool", action="append", metavar="NAME[=W]", help="Draw W units (default: 1) from this pool.")
    add("--flow", help="Set the flow.")
    add("--phase", metavar="PHASE", help="Set the phase of the flow.")
    add(
        "--parallelizable",
        action="store_true",
        default=None,
        help="Allow jobs to run next to others of their flow and phase.",
    )
    add("--unique", metavar="KEY", help="Allow one active job with this key.")
    add("--target", help="Set the target.")
    add("--timeout", metavar="DURATION", help="Kill a job after DURATION.")
    add("--idle-timeout", metavar="DURATION", help="Kill a job after DURATION without output.")
    add("--retries", type=int, metavar="N", help="Retry a job up to N times if it fails (default: 3).")
    add("--retry", metavar="NAME", help="Set the retry policy.")
    add("--skip-if", metavar="CMD", help="Skip a job if this shell command exits with 0.")
    add("--worktree", action="store_true", default=None, help="Run each job in its own git worktree and branch.")
    add("--base", metavar="REF", help="Create the worktree from REF.")
    add("--patch", action="store_true", default=None, help="Save the changes of each job as command.patch.")
    add("--env", action="append", metavar="K=V", help="Set an environment variable.")
    add_command_argument(parser)


def run_template(args: argparse.Namespace) -> int:
    if args.action == "example":
        return _print_example(args)
    if args.action in (None, "list"):
        return _list(args)
    handler = {"add": _add, "change": _change, "show": _show, "archive": _archive, "unarchive": _archive}[args.action]
    return handler(args, SchedulerSession(find_home(args.home), is_read_only=args.action == "show"))


def _print_example(args: argparse.Namespace) -> int:
    from pathlib import Path

    text = (Path(__file__).parent / "example" / f"{args.which}.toml").read_text("utf-8")
    if args.json:
        print_json({"example": args.which, "format": "toml", "text": text})
    else:
        print_text(text.rstrip("\n"))
    return 0


def _list(args: argparse.Namespace) -> int:
    templates = SchedulerSession(find_home(args.home), is_read_only=True).pages(
        list_templates, "templates", all=args.all
    )
    response = {"templates": _sorted_by_name(templates)}
    if args.json:
        print_json(response)
    elif response["templates"]:
        rows = [list(_HEADERS), *(_row(template) for template in response["templates"])]
        print_text("\n".join(render(rows, width=terminal_width(sys.stdout), flexible=(((3, 4), 12),))))
    else:
        print_notice("there are no templates; `rota template example > agent.toml` writes an example")
    return 0


def _sorted_by_name(templates: Iterable[Json]) -> list[Json]:
    """Sort by name, with the active template before the archived ones, and those with the newest first."""
    newest_first = reversed(list(templates))
    return sorted(newest_first, key=lambda template: (template["name"], template["archived_at"] is not None))


def _row(template: Json) -> list[str]:
    name = template["name"] + (" (archived)" if template["archived_at"] else "")
    command = shlex.join(template["command"])
    return [name, template["id"], template["type"] or "", ", ".join(param_names(template)), command]


def param_names(template: Json) -> list[str]:
    """Return the names of the params. Required params come first and are marked by a star."""
    properties = (template["params_schema"] or {}).get("properties") or {}
    defaults = template["default_params"]
    required = [name for name in properties if name not in defaults]
    return [*(f"{name}*" for name in required), *defaults]


def _show(args: argparse.Namespace, session: SchedulerSession) -> int:
    template = session.request_json(get_template(args.name))
    if args.json:
        print_json(template)
    else:
        print_text("\n".join(_template_lines(template)))
    return 0


def _template_lines(template: Json) -> list[str]:
    fields = {name: value for name, value in template.items() if value not in (None, [], {})}
    return [f"{name:<16} {escape_unprintable(_format_value(name, value))}" for name, value in fields.items()]


def _format_value(name: str, value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and name == "command":
        return shlex.join(value)
    if isinstance(value, list) and name == "env":
        return ", ".join(value)
    return json.dumps(value, ensure_ascii=False)


def _archive(args: argparse.Namespace, session: SchedulerSession) -> int:
    template = session.request_json((unarchive_template if args.action == "unarchive" else archive_template)(args.name))
    if args.json:
        print_json(template)
    else:
        print_text(f"{template['id']} {template['name']} {args.action}d")
    return 0


def _add(args: argparse.Namespace, session: SchedulerSession) -> int:
    options = _read_options(args)
    if args.command is None:
        if options:
            raise UsageError(
                f"options need a command: rota template add {args.name} … -- COMMAND; a file takes no options"
            )
        return _print_result(args, session.request_json(add_template(read_document(args.name))))
    return _print_result(args, session.request_json(add_template({**options, "name": args.name})))


def _change(args: argparse.Namespace, session: SchedulerSession) -> int:
    options = _read_options(args)
    if args.file is not None:
        if options:
            raise UsageError(
                "a file replaces the whole template, so it takes no options; remove the options or the file"
            )
        return _print_result(args, session.request_json(replace_template(args.name, read_document(args.file))))
    if not options:
        raise UsageError("no change given; add a FILE or options: see `rota template change --help`")
    if "default_params" in options:
        options["set_default_params"] = options.pop("default_params")
    return _print_result(args, session.request_json(change_template(args.name, **options)))


def _print_result(args: argparse.Namespace, result: Json) -> int:
    if result["warning"]:
        print_notice(f"warning: {result['warning']}")
    template = result["template"]
    if args.json:
        print_json(result)
    elif args.action == "add":
        print_text(template["id"])
    elif result["fields"]:
        print_text(f"{template['id']} {', '.join(result['fields'])}")
    else:
        print_notice(f"nothing changed: {template['name']} already has these values")
    return 0


def _read_options(args: argparse.Namespace) -> Json:
    """Return the given options as fields of the request."""
    request: Json = {name: getattr(args, name) for name in _PLAIN_OPTIONS}
    request |= {
        "command": args.command,
        "default_params": parse_params(args.param) or None,
        "params_schema": None if args.schema is None else read_document(args.schema),
        "locks": [parse_lock(text) for text in args.lock or ()] or None,
        "pools": dict(parse_pool(text) for text in args.pool or ()) or None,
        "needs": args.needs,
        "produces": args.produces,
        "webhooks": args.webhook,
        "webhook_events": args.webhook_event,
        "env": parse_pairs(args.env, "--env") or None,
    }
    options = {name: value for name, value in request.items() if value is not None}
    require_utf8(options)
    return options


def read_document(path: str) -> Json:
    """Read a TOML, YAML or JSON file. Its suffix tells the format; for stdin, the content does."""
    from rota.workflows.document import WorkflowDocument, decode_text, guess_syntax
    from rota.workflows.scalars import Fault, as_json, format_faults

    source = "<stdin>" if path == "-" else path
    try:
        text = decode_text(_read_bytes(path))
        format_name = {"toml": "toml", "yaml": "yaml", "yml": "yaml", "json": "yaml"}.get(path.rpartition(".")[2])
        document = as_json(WorkflowDocument(text, format_name or guess_syntax(text)).data)
    except Fault as fault:
        raise UsageError(format_faults(source, [fault], {})) from None
    except ValueError as error:
        raise UsageError(f"{source}: {error}") from None
    if not isinstance(document, dict):
        raise UsageError(f"{source} has no fields; `rota template example` prints a valid file")
    return document


def _read_bytes(path: str) -> bytes:
    try:
        with sys.stdin.buffer if path == "-" else open(path, "rb") as file:  # noqa: PTH123
            return file.read()
    except OSError as error:
        is_file = path.endswith((".toml", ".yaml", ".yml", ".json"))
        hint = "" if is_file else f"; to add a template from options: rota template add {path} -- COMMAND"
        raise UsageError(f"{path} cannot be read: {error.strerror}{hint}") from None

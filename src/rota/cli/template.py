"""`rota template`: named defaults for jobs of one kind."""

from __future__ import annotations

import argparse
import json
import shlex
import sys

from rota.cli.asked import draw, lock, refuse_bytes
from rota.cli.param import PARAM_HELP, params
from rota.cli.parser import Usage, add_actions, pairs, take_command
from rota.cli.table import printable, render
from rota.cli.terminal import say, say_json, talk, width_of
from rota.client.ask.template import (
    add_template,
    archive_template,
    change_template,
    get_template,
    list_templates,
    replace_template,
    unarchive_template,
)
from rota.client.session import Session
from rota.home import find_home

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from rota.client.ask import Json

EXAMPLES = ("agent", "pipeline")
_HEADS = ("NAME", "ID", "TYPE", "PARAMS", "COMMAND")
_PLAIN = ("type", "retry", "retries", "priority", "flow", "phase", "unique", "target", "timeout", "idle_timeout",
          "skip_if", "base", "job_name", "description", "parallelizable", "worktree", "patch")  # fmt: skip
_ACTIONS = {
    "list": "those in use",
    "add": "add one, from a file (TOML, YAML or JSON; - for stdin) or as NAME [options] -- COMMAND with {param} places",
    "show": "all of one",
    "change": "change one, from a file as a whole, or what the options say; jobs that exist keep what they have",
    "archive": "make no more jobs of one; those that exist go on",
    "unarchive": "take one back into use",
    "example": "print a complete file to start from",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = add_actions(parser, _ACTIONS)
    # `rota template` by itself is the list, and has no `--all` to look at.
    parser.set_defaults(all=False)
    actions["list"].add_argument("--all", action="store_true", help="archived ones too")
    _add_options(actions["add"], "FILE|NAME", "a file that has the template, or the name of one made of the options")
    _add_options(actions["change"], "NAME", "its name or id")
    actions["change"].add_argument("file", nargs="?", metavar="FILE", help="what it is to be, as a whole")
    for action in ("show", "archive", "unarchive"):
        actions[action].add_argument("name", metavar="NAME", help="its name or id")
    what = "agent: a CLI agent in a worktree of its own; pipeline: a step that asks a model, one at a time"
    actions["example"].add_argument("which", nargs="?", choices=EXAMPLES, default=EXAMPLES[0], help=what)


def _add_options(parser: argparse.ArgumentParser, metavar: str, text: str) -> None:
    add = parser.add_argument
    add("name", metavar=metavar, help=text)
    add("--description", metavar="S", help="what it is for")
    add("--param", action="append", metavar="K=V", help=f"a default of {PARAM_HELP}")
    add("--schema", metavar="FILE", help="a JSON Schema that the params of each job must meet")
    add("--job-name", metavar="S", help="what its jobs are called, with {param} places")
    add("--type", help="their kind; they draw from the pool type/TYPE")
    add("--priority", type=int, metavar="N", help="higher goes first")
    add("--needs", action="append", metavar="ARTIFACT", help="what they wait for")
    add("--produces", action="append", metavar="ARTIFACT", help="what they make")
    add("--webhook", action="append", metavar="URL", help="tell this URL how they end")
    add("--webhook-event", action="append", metavar="E", help="of what; completed, failed and skipped unless given")
    add("--lock", action="append", metavar="KEY[:shared]", help="what they hold while they run")
    add("--pool", action="append", metavar="NAME[=W]", help="what they draw from")
    add("--flow", help="their flow")
    add("--phase", metavar="P", help="their phase of the flow")
    add("--parallelizable", action="store_true", default=None, help="they may run beside others of phase and flow")
    add("--unique", metavar="KEY", help="one with this key at a time")
    add("--target", help="where their work belongs")
    add("--timeout", metavar="D", help="end them after so long")
    add("--idle-timeout", metavar="D", help="end them when they have written nothing for so long")
    add("--retries", type=int, metavar="N", help="try them again up to N times; 3 unless given")
    add("--retry", metavar="NAME", help="their retry policy")
    add("--skip-if", metavar="CMD", help="skip them if this shell command exits 0")
    add("--worktree", action="store_true", default=None, help="run each in a git worktree and branch of its own")
    add("--base", metavar="REF", help="what to make the worktree from")
    add("--patch", action="store_true", default=None, help="keep what each changes as command.patch")
    add("--env", action="append", metavar="K=V", help="set in their environment")
    take_command(parser)


def run(args: argparse.Namespace) -> int:
    if args.action == "example":
        return _example(args)
    if args.action in (None, "list"):
        return _list(args)
    act = {"add": _add, "change": _change, "show": _show, "archive": _archive, "unarchive": _archive}[args.action]
    return act(args, Session(find_home(args.home)))


def _example(args: argparse.Namespace) -> int:
    from pathlib import Path

    text = (Path(__file__).parent / "example" / f"{args.which}.toml").read_text("utf-8")
    if args.json:
        say_json({"example": args.which, "format": "toml", "text": text})
    else:
        say(text.rstrip("\n"))
    return 0


def _list(args: argparse.Namespace) -> int:
    found = Session(find_home(args.home)).pages(list_templates, "templates", all=args.all)
    answer = {"templates": _by_name(found)}
    if args.json:
        say_json(answer)
    elif answer["templates"]:
        rows = [list(_HEADS), *(_row(template) for template in answer["templates"])]
        say("\n".join(render(rows, width=width_of(sys.stdout), flexible=(((3, 4), 12),))))
    else:
        talk("there are no templates; `rota template example > agent.toml` writes one to start from")
    return 0


def _by_name(templates: Iterable[Json]) -> list[Json]:
    """Archived ones behind the one in use that has their name now, the newest first."""
    newest_first = reversed(list(templates))
    return sorted(newest_first, key=lambda each: (each["name"], each["archived_at"] is not None))


def _row(template: Json) -> list[str]:
    name = template["name"] + (" (archived)" if template["archived_at"] else "")
    command = shlex.join(template["command"])
    return [name, template["id"], template["type"] or "", ", ".join(declared(template)), command]


def declared(template: Json) -> list[str]:
    """The params that it knows; one that has to be given stands first, and has a star."""
    properties = (template["params_schema"] or {}).get("properties") or {}
    defaults = template["default_params"]
    needed = [name for name in properties if name not in defaults]
    return [*(f"{name}*" for name in needed), *defaults]


def _show(args: argparse.Namespace, session: Session) -> int:
    template = session.ask(get_template(args.name))
    if args.json:
        say_json(template)
    else:
        say("\n".join(_lines(template)))
    return 0


def _lines(template: Json) -> list[str]:
    filled = {name: value for name, value in template.items() if value not in (None, [], {})}
    return [f"{name:<16} {printable(_text(name, value))}" for name, value in filled.items()]


def _text(name: str, value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and name == "command":
        return shlex.join(value)
    if isinstance(value, list) and name == "env":
        return ", ".join(value)
    return json.dumps(value, ensure_ascii=False)


def _archive(args: argparse.Namespace, session: Session) -> int:
    template = session.ask((unarchive_template if args.action == "unarchive" else archive_template)(args.name))
    if args.json:
        say_json(template)
    else:
        say(f"{template['id']} {template['name']} {args.action}d")
    return 0


def _add(args: argparse.Namespace, session: Session) -> int:
    options = _options(args)
    if args.command is None:
        if options:
            raise Usage(
                f"options go with a command: rota template add {args.name} … -- COMMAND; a file has all it needs in it"
            )
        return _told(args, session.ask(add_template(read(args.name))))
    return _told(args, session.ask(add_template({**options, "name": args.name})))


def _change(args: argparse.Namespace, session: Session) -> int:
    options = _options(args)
    if args.file is not None:
        if options:
            raise Usage("a file says all there is to say of a template: leave the options out, or the file")
        return _told(args, session.ask(replace_template(args.name, read(args.file))))
    if not options:
        raise Usage("nothing is to be changed; name a FILE, or options: `rota template change --help`")
    if "default_params" in options:
        options["set_default_params"] = options.pop("default_params")
    return _told(args, session.ask(change_template(args.name, **options)))


def _told(args: argparse.Namespace, answer: Json) -> int:
    if answer["warning"]:
        talk(f"warning: {answer['warning']}")
    template = answer["template"]
    if args.json:
        say_json(answer)
    elif args.action == "add":
        say(template["id"])
    elif answer["fields"]:
        say(f"{template['id']} {', '.join(answer['fields'])}")
    else:
        talk(f"{template['name']} was so already; nothing was changed")
    return 0


def _options(args: argparse.Namespace) -> Json:
    """What was asked for, as the API takes it."""
    asked: Json = {name: getattr(args, name) for name in _PLAIN}
    asked |= {
        "command": args.command,
        "default_params": params(args.param) or None,
        "params_schema": None if args.schema is None else read(args.schema),
        "locks": [lock(text) for text in args.lock or ()] or None,
        "pools": dict(draw(text) for text in args.pool or ()) or None,
        "needs": args.needs,
        "produces": args.produces,
        "webhooks": args.webhook,
        "webhook_events": args.webhook_event,
        "env": pairs(args.env, "--env") or None,
    }
    options = {name: value for name, value in asked.items() if value is not None}
    refuse_bytes(options)
    return options


def read(path: str) -> Json:
    """A file of TOML, YAML or JSON, by its name; what comes through stdin by how it looks."""
    from rota.workflow.document import Document, decode, guess
    from rota.workflow.fault import Fault, show_faults
    from rota.workflow.scalar import value_of

    source = "<stdin>" if path == "-" else path
    try:
        text = decode(_bytes(path))
        form = {"toml": "toml", "yaml": "yaml", "yml": "yaml", "json": "yaml"}.get(path.rpartition(".")[2])
        found = value_of(Document(text, form or guess(text)).data)
    except Fault as fault:
        raise Usage(show_faults(source, [fault], {})) from None
    except ValueError as error:
        raise Usage(f"{source}: {error}") from None
    if not isinstance(found, dict):
        raise Usage(f"{source} has no fields; `rota template example` prints a file that has")
    return found


def _bytes(path: str) -> bytes:
    try:
        with sys.stdin.buffer if path == "-" else open(path, "rb") as file:  # noqa: PTH123
            return file.read()
    except OSError as error:
        is_file = path.endswith((".toml", ".yaml", ".yml", ".json"))
        hint = "" if is_file else f"; to add one by options: rota template add {path} -- COMMAND"
        raise Usage(f"{path} cannot be read: {error.strerror}{hint}") from None

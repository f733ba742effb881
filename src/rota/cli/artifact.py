"""`rota artifact`: declare, from inside a job or by hand, that something is there; or look at what was declared."""

from __future__ import annotations

import argparse
import os
import sys

from rota.cli.parser import Usage, add_actions
from rota.cli.table import render
from rota.cli.terminal import say, say_json, talk, width_of
from rota.client.ask.artifact import get_artifact, list_artifacts, put_artifact, remove_artifact
from rota.client.session import Session
from rota.home import find_home

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rota.client.ask import Json
    from rota.home import Home

_MOST_BYTES = 1 << 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = add_actions(
        parser,
        {
            "list": "what was put",
            "put": "say that it is there; from inside a job, once the job is over",
            "show": "print the payload it was put with",
            "remove": "take back what was put",
        },
    )
    for action in ("put", "show", "remove"):
        actions[action].add_argument("artifact", metavar="ARTIFACT", help="custom:<type>:<key>, or file:<path>")
    what = actions["put"].add_mutually_exclusive_group()
    what.add_argument("--payload", metavar="TEXT", help="kept with it, for whoever needs it")
    what.add_argument("--from", dest="source", metavar="FILE", help="the same from a file, or from stdin with -")


def run(args: argparse.Namespace) -> int:
    home = find_home(args.home)
    session, cwd = Session(home), os.getcwd()  # noqa: PTH109 - as the shell names it
    match args.action:
        case "put":
            answer = session.ask(put_artifact(**_wanted(args, home, cwd)))
            say_json(answer) if args.json else say(answer["artifact"])
        case "show":
            answer = session.ask(get_artifact(args.artifact, cwd=cwd))
            say_json(answer) if args.json else _say_payload(answer)
        case "remove":
            answer = session.ask(remove_artifact(args.artifact, cwd=cwd))
            say_json(answer) if args.json else talk(f"removed {answer['artifact']}")
        case _:
            _list({"artifacts": [*session.pages(list_artifacts, "artifacts")]}, as_json=args.json)
    return 0


def _wanted(args: argparse.Namespace, home: Home, cwd: str) -> Json:
    payload = args.payload if args.source is None else _read(args.source)
    # A job of another home is nobody here.
    job = os.environ.get("ROTA_JOB") if os.environ.get("ROTA_HOME") == str(home.root) else None
    wanted = {"artifact": args.artifact, "payload": payload, "job": job, "cwd": cwd}
    return {name: value for name, value in wanted.items() if value is not None}


def _read(source: str) -> str:
    try:
        if source == "-":
            held = sys.stdin.buffer.read(_MOST_BYTES + 1)
        else:
            with open(source, "rb") as file:  # noqa: PTH123 - pathlib costs every command its import
                held = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise Usage(f"--from {source}: {error.strerror}") from None
    if len(held) > _MOST_BYTES:
        raise Usage(f"--from {source}: a payload has at most {_MOST_BYTES} bytes; put larger things as file:<path>")
    try:
        return held.decode()
    except UnicodeDecodeError:
        raise Usage(f"--from {source}: a payload is text in UTF-8; put other things as file:<path>") from None


def _say_payload(answer: Json) -> None:
    if answer["payload"] is None:
        talk(f"{answer['artifact']} was put without a payload")
    else:
        say(answer["payload"].removesuffix("\n"))


def _list(answer: Json, *, as_json: bool) -> None:
    if as_json:
        say_json(answer)
    elif not answer["artifacts"]:
        talk("nobody has put anything")
    else:
        puts = answer["artifacts"]
        rows = [[each["artifact"], each["job"] or "-", each["put_at"], each["scope"] or ""] for each in puts]
        say(
            "\n".join(
                render(
                    [["ARTIFACT", "BY", "PUT", "REPOSITORY"], *rows], width=width_of(sys.stdout), flexible=[((3, 0), 8)]
                )
            )
        )

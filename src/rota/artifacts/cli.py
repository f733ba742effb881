"""`rota artifact`: declare artifacts, from inside a job or by hand, and inspect them."""

from __future__ import annotations

import argparse
import os
import sys

from rota.cli.parser import UsageError, add_actions
from rota.cli.table import render
from rota.cli.terminal import print_json, print_notice, print_text, terminal_width
from rota.client.requests.jobs import get_artifact, list_artifacts, put_artifact, remove_artifact
from rota.client.session import SchedulerSession
from rota.home import find_home

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rota.client.requests import Json
    from rota.home import Home

_MAX_PAYLOAD_BYTES = 1 << 20


def add_artifact_arguments(parser: argparse.ArgumentParser) -> None:
    actions = add_actions(
        parser,
        {
            "list": "List the declared artifacts.",
            "put": "Declare an artifact as available. Inside a job, it becomes available when the job ends.",
            "show": "Print the payload of an artifact.",
            "remove": "Withdraw a declared artifact.",
        },
    )
    for action in ("put", "show", "remove"):
        actions[action].add_argument(
            "artifact", metavar="ARTIFACT", help="The artifact: custom:<type>:<key>, or file:<path>."
        )
    payload = actions["put"].add_mutually_exclusive_group()
    payload.add_argument("--payload", metavar="TEXT", help="Store TEXT with the artifact.")
    payload.add_argument(
        "--from", dest="source", metavar="FILE", help="Store the content of FILE with the artifact; - is stdin."
    )


def run_artifact(args: argparse.Namespace) -> int:
    home = find_home(args.home)
    session, cwd = SchedulerSession(home, is_read_only=args.action in (None, "list", "show")), os.getcwd()  # noqa: PTH109 - keeps the path as the shell writes it
    match args.action:
        case "put":
            response = session.request_json(put_artifact(**_build_request(args, home, cwd)))
            print_json(response) if args.json else print_text(response["artifact"])
        case "show":
            response = session.request_json(get_artifact(args.artifact, cwd=cwd))
            print_json(response) if args.json else _print_payload(response)
        case "remove":
            response = session.request_json(remove_artifact(args.artifact, cwd=cwd))
            print_json(response) if args.json else print_notice(f"removed {response['artifact']}")
        case _:
            _print_list({"artifacts": [*session.pages(list_artifacts, "artifacts")]}, as_json=args.json)
    return 0


def _build_request(args: argparse.Namespace, home: Home, cwd: str) -> Json:
    payload = args.payload if args.source is None else _read_payload(args.source)
    # A job of another home is unknown to this one.
    job = os.environ.get("ROTA_JOB") if os.environ.get("ROTA_HOME") == str(home.root) else None
    request = {"artifact": args.artifact, "payload": payload, "job": job, "cwd": cwd}
    return {name: value for name, value in request.items() if value is not None}


def _read_payload(source: str) -> str:
    try:
        if source == "-":
            content = sys.stdin.buffer.read(_MAX_PAYLOAD_BYTES + 1)
        else:
            with open(source, "rb") as file:  # noqa: PTH123 - importing pathlib slows down every command
                content = file.read(_MAX_PAYLOAD_BYTES + 1)
    except OSError as error:
        raise UsageError(f"--from {source}: {error.strerror}") from None
    if len(content) > _MAX_PAYLOAD_BYTES:
        raise UsageError(
            f"--from {source}: a payload has at most {_MAX_PAYLOAD_BYTES} bytes; put larger things as file:<path>"
        )
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise UsageError(f"--from {source}: a payload is text in UTF-8; put other things as file:<path>") from None


def _print_payload(artifact: Json) -> None:
    if artifact["payload"] is None:
        print_notice(f"{artifact['artifact']} was put without a payload")
    else:
        print_text(artifact["payload"].removesuffix("\n"))


def _print_list(page: Json, *, as_json: bool) -> None:
    if as_json:
        print_json(page)
    elif not page["artifacts"]:
        print_notice("no artifact is declared")
    else:
        rows = [
            [artifact["artifact"], artifact["job"] or "-", artifact["created_at"], artifact["scope"] or ""]
            for artifact in page["artifacts"]
        ]
        print_text(
            "\n".join(
                render(
                    [["ARTIFACT", "BY", "CREATED", "REPOSITORY"], *rows],
                    width=terminal_width(sys.stdout),
                    flexible=[((3, 0), 8)],
                )
            )
        )

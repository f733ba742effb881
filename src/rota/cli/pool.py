"""`rota pool`: list pools and set their sizes."""

from __future__ import annotations

import argparse
import sys

from rota.cli.parser import add_actions
from rota.cli.render import pool_table
from rota.cli.terminal import print_json, print_text, terminal_width
from rota.client.requests.scheduler import list_pools, set_pool
from rota.client.session import SchedulerSession
from rota.home import find_home


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = add_actions(
        parser, {"list": "List every pool that has a limit or is in use.", "set": "Set the size of a pool."}
    )
    actions["set"].add_argument(
        "name", metavar="NAME", help="The pool: global, type/…, flow/…, target/… or resource/…."
    )
    actions["set"].add_argument("size", metavar="N", type=int, help="The size; -1 is unlimited, 0 starts no new jobs.")


def run(args: argparse.Namespace) -> int:
    session = SchedulerSession(find_home(args.home), is_read_only=args.action != "set")
    if args.action == "set":
        session.request_json(set_pool(args.name, args.size))
        if args.json:
            print_json({"name": args.name, "size": args.size})
        return 0
    response = session.request_json(list_pools())
    if args.json:
        print_json(response)
    else:
        print_text("\n".join(pool_table(response["pools"], response.get("defaults"), width=terminal_width(sys.stdout))))
    return 0

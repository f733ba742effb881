"""`rota pool`: the capacities that running jobs draw from."""

from __future__ import annotations

import argparse
import sys

from rota.cli.parser import add_actions
from rota.cli.render import pool_table
from rota.cli.terminal import say, say_json, width_of
from rota.client.ask.scheduler import list_pools, set_pool
from rota.client.session import Session
from rota.home import find_home


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = add_actions(parser, {"list": "every pool with a limit, or in use", "set": "change a pool's size"})
    actions["set"].add_argument("name", metavar="NAME", help="global, or type/…, flow/…, target/…, resource/…")
    actions["set"].add_argument("size", metavar="N", type=int, help="-1 is no limit, 0 lets nothing new start")


def run(args: argparse.Namespace) -> int:
    session = Session(find_home(args.home))
    if args.action == "set":
        session.ask(set_pool(args.name, args.size))
        if args.json:
            say_json({"name": args.name, "size": args.size})
        return 0
    answer = session.ask(list_pools())
    if args.json:
        say_json(answer)
    else:
        say("\n".join(pool_table(answer["pools"], answer.get("each"), width=width_of(sys.stdout))))
    return 0

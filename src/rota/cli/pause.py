"""`rota pause`: pause everything, or one pool, flow or target. Running jobs continue; no new jobs start."""

from __future__ import annotations

import argparse

from rota.cli.scope import add_scope, scope_of, scope_text
from rota.cli.terminal import print_json, print_notice, print_text
from rota.client.requests.scheduler import pause
from rota.client.session import SchedulerSession
from rota.home import find_home


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_scope(parser)


def run(args: argparse.Namespace) -> int:
    response = SchedulerSession(find_home(args.home)).request_json(pause(scope_of(args)))
    if args.json:
        print_json(response)
        return 0
    print_text(f"{scope_text(response['scope'])} is paused by {response['paused_by']} since {response['paused_at']}")
    if not response["has_changed"]:
        print_notice("nothing changed: it is already paused")
    if response.get("warning"):
        print_notice(response["warning"])
    return 0

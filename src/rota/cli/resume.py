"""`rota resume`: resume paused work."""

from __future__ import annotations

import argparse

from rota.cli.scope import add_scope, scope_of, scope_text
from rota.cli.terminal import print_json, print_notice, print_text
from rota.client.requests.scheduler import resume
from rota.client.session import SchedulerSession
from rota.home import find_home


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_scope(parser)


def run(args: argparse.Namespace) -> int:
    response = SchedulerSession(find_home(args.home)).request_json(resume(scope_of(args)))
    if args.json:
        print_json(response)
    elif response["has_changed"]:
        pause = f"paused by {response['paused_by']} at {response['paused_at']}"
        print_text(f"{scope_text(response['scope'])} resumed; it was {pause}")
    else:
        print_notice(
            f"{scope_text(response['scope'])} is not paused; nothing was changed (`rota status` lists the pauses)"
        )
    return 0

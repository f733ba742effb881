"""`rota clear`: cancel waiting jobs, all or of one pool, flow or target. Running jobs continue."""

from __future__ import annotations

import argparse

from rota.cli.confirm import DECLINED, MAX_SHOWN, add_confirmation, confirm_cancel, preview_or_confirm, should_confirm
from rota.cli.scope import GLOBAL, add_scope, scope_of
from rota.cli.terminal import print_json, print_text
from rota.client.requests.scheduler import clear, preview_clear
from rota.client.session import SchedulerSession
from rota.home import find_home

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rota.client.requests import Json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_scope(parser)
    add_confirmation(parser)


def run(args: argparse.Namespace) -> int:
    session, scope = SchedulerSession(find_home(args.home), is_read_only=args.dry_run), scope_of(args)
    up_to = None
    if should_confirm(args) and not args.dry_run:
        plan = session.request_json(preview_clear(scope, limit=MAX_SHOWN))
        if not confirm_cancel(plan):
            return DECLINED
        up_to = plan["up_to"]  # jobs that were submitted after the preview were not confirmed
        if up_to is None:
            return _print_cleared(args, {"scope": scope, "cleared": 0})
    elif (code := preview_or_confirm(args, session, preview_clear(scope))) is not None:
        return code
    return _print_cleared(args, session.request_json(clear(scope, up_to=up_to)))


def _print_cleared(args: argparse.Namespace, result: Json) -> int:
    if args.json:
        print_json(result)
    else:
        count = result["cleared"]
        of = "" if result["scope"] == GLOBAL else f" of {result['scope']}"
        print_text(f"{count} {'job' if count == 1 else 'jobs'}{of} cancelled")
    return 0

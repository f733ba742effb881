"""Verbs of the scheduler: `rota pause`, `resume`, `clear`, `status`, `tick`, `pool`, `breaker` and `lock`.

`pause`, `resume` and `clear` apply to everything, or to one pool, flow or target. Running jobs continue.
"""

from __future__ import annotations

import argparse
import sys

from rota.cli.parser import add_actions, job_id
from rota.cli.terminal import print_json, print_notice, print_text, terminal_width
from rota.client.requests.control import (
    clear,
    get_scheduler,
    list_breakers,
    list_pools,
    pause,
    preview_clear,
    reset_breaker,
    resume,
    set_pool,
    tick,
)
from rota.client.requests.jobs import TERMINAL_STATUSES, list_locks
from rota.client.session import SchedulerSession
from rota.errors import escape_unprintable
from rota.home import find_home

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from rota.client.requests import Json

_GLOBAL = "global"
_TICK_REASON_TEXTS = {
    "none": "nothing is ready",
    "ready": "no more jobs are ready",
    "batch": "the batch limit is reached",
    "capacity": "there is no free capacity",
}


def add_pause_arguments(parser: argparse.ArgumentParser) -> None:
    _add_scope(parser)


def run_pause(args: argparse.Namespace) -> int:
    response = SchedulerSession(find_home(args.home)).request_json(pause(_scope_of(args)))
    if args.json:
        print_json(response)
        return 0
    print_text(f"{_scope_text(response['scope'])} is paused by {response['paused_by']} since {response['paused_at']}")
    if not response["has_changed"]:
        print_notice("nothing changed: it is already paused")
    if response.get("warning"):
        print_notice(response["warning"])
    return 0


def add_resume_arguments(parser: argparse.ArgumentParser) -> None:
    _add_scope(parser)


def run_resume(args: argparse.Namespace) -> int:
    response = SchedulerSession(find_home(args.home)).request_json(resume(_scope_of(args)))
    if args.json:
        print_json(response)
    elif response["has_changed"]:
        pause = f"paused by {response['paused_by']} at {response['paused_at']}"
        print_text(f"{_scope_text(response['scope'])} resumed; it was {pause}")
    else:
        print_notice(
            f"{_scope_text(response['scope'])} is not paused; nothing was changed (`rota status` lists the pauses)"
        )
    return 0


def add_clear_arguments(parser: argparse.ArgumentParser) -> None:
    _add_scope(parser)
    from rota.cli.confirm import add_confirmation

    add_confirmation(parser)


def run_clear(args: argparse.Namespace) -> int:
    from rota.cli.confirm import DECLINED, MAX_SHOWN, confirm_cancel, preview_or_confirm, should_confirm

    session, scope = SchedulerSession(find_home(args.home), is_read_only=args.dry_run), _scope_of(args)
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
        of = "" if result["scope"] == _GLOBAL else f" of {result['scope']}"
        print_text(f"{count} {'job' if count == 1 else 'jobs'}{of} cancelled")
    return 0


def _add_scope(parser: argparse.ArgumentParser) -> None:
    scopes = parser.add_mutually_exclusive_group()
    scopes.add_argument(
        "--pool", metavar="NAME", help="Apply only to this pool: type/…, flow/…, target/… or resource/…."
    )
    scopes.add_argument("--flow", metavar="FLOW", help="Apply only to this flow.")
    scopes.add_argument("--target", metavar="TARGET", help="Apply only to this target.")


def _scope_of(args: argparse.Namespace) -> str:
    if args.flow is not None:
        return f"flow/{args.flow}"
    if args.target is not None:
        return f"target/{args.target}"
    return _GLOBAL if args.pool is None else args.pool


def _scope_text(scope: str) -> str:
    return "everything" if scope == _GLOBAL else scope


def add_status_arguments(parser: argparse.ArgumentParser) -> None:
    """Add no options."""


def run_status(args: argparse.Namespace) -> int:
    status = SchedulerSession(find_home(args.home), is_read_only=True).request_json(get_scheduler())
    if args.json:
        print_json(status)
    else:
        from datetime import UTC, datetime

        from rota.cli.rendering import status_block

        print_text("\n".join(status_block(status, now=datetime.now(UTC))))
    return 0


def add_tick_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--dry-run", action="store_true", help="Print the jobs that would start without changing anything."
    )
    parser.add_argument("--batch", type=_parse_batch_size, metavar="N", help="Start at most N jobs.")


def _parse_batch_size(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) < 2**31:
        raise argparse.ArgumentTypeError(f"{text} is not a valid number of jobs; use a number from 1 to 2147483647")
    return int(text)


def run_tick(args: argparse.Namespace) -> int:
    response = SchedulerSession(find_home(args.home), is_read_only=args.dry_run).request_json(
        tick(dry_run=args.dry_run, batch=args.batch)
    )
    if args.json:
        print_json(response)
        return 0
    for job in response["would_dispatch" if args.dry_run else "dispatched"]:
        print_text(job)
    print_notice(_format_tick(response, is_dry_run=args.dry_run))
    return 0


def _format_tick(result: dict[str, object], *, is_dry_run: bool) -> str:
    started, would = result["dispatched"], result["would_dispatch"]
    assert isinstance(started, list)  # noqa: S101 - the API guarantees it
    assert isinstance(would, list)  # noqa: S101
    text = f"would start {len(would)}" if is_dry_run else f"started {len(started)}"
    later = f", {len(would)} to follow" if would and not is_dry_run else ""
    skipped = f"; ready but not started: {result['skipped']}" if result["skipped"] else ""
    bound = "ready" if (started or would) and not result["skipped"] else str(result["reason"])
    reason = result.get("blocker") or _TICK_REASON_TEXTS[bound]
    return f"{text}{later}: {reason}{skipped}"


def add_pool_arguments(parser: argparse.ArgumentParser) -> None:
    actions = add_actions(
        parser, {"list": "List every pool that has a limit or is in use.", "set": "Set the size of a pool."}
    )
    actions["set"].add_argument(
        "name", metavar="NAME", help="The pool: global, type/…, flow/…, target/… or resource/…."
    )
    actions["set"].add_argument("size", metavar="N", type=int, help="The size; -1 is unlimited, 0 starts no new jobs.")


def run_pool(args: argparse.Namespace) -> int:
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
        from rota.cli.rendering import pool_table

        print_text("\n".join(pool_table(response["pools"], response.get("defaults"), width=terminal_width(sys.stdout))))
    return 0


def add_breaker_arguments(parser: argparse.ArgumentParser) -> None:
    actions = add_actions(
        parser,
        {
            "list": "List every type and target with recent failures.",
            "reset": "Close a breaker, or clear the failed starts of a job.",
        },
    )
    actions["reset"].add_argument(
        "key", metavar="KEY|JOB", help="The breaker, type/… or target/…, or a job that could not start."
    )


def run_breaker(args: argparse.Namespace) -> int:
    session = SchedulerSession(find_home(args.home), is_read_only=args.action != "reset")
    if args.action == "reset":
        key = job_id(args.key) if args.key.isdecimal() else args.key
        response = session.request_json(reset_breaker(key))
        print_json(response) if args.json else _print_reset(response)
        return 0
    response = {"breakers": [*session.pages(list_breakers, "breakers")]}
    if args.json:
        print_json(response)
    elif response["breakers"]:
        from rota.cli.rendering import breaker_table

        print_text("\n".join(breaker_table(response["breakers"], width=terminal_width(sys.stdout))))
    else:
        print_notice("all breakers are closed, without recent failures")
    return 0


def _print_reset(result: Json) -> None:
    """Print the new state to stdout and its consequences to stderr."""
    count = result["failures_cleared"]
    if "job" not in result:
        print_text(f"{result['key']} {result['state']}")
        print_notice(f"failures cleared: {count}; held jobs can start again")
        return
    print_text(f"{result['job']} {result['status']}")
    then = "; the job starts immediately" if result["starts_immediately"] else ""
    if result["status"] in TERMINAL_STATUSES:
        then = f"; the job has ended: `rota retry {result['job']}` retries it"
    print_notice(f"failed starts cleared: {count}{then}")


def add_lock_arguments(parser: argparse.ArgumentParser) -> None:
    actions = add_actions(parser, {"list": "List every lock that is held or waited for."})
    actions["list"].add_argument("key", nargs="?", metavar="KEY", help="List only this lock.")


def run_lock(args: argparse.Namespace) -> int:
    key = getattr(args, "key", None)
    locks = list(SchedulerSession(find_home(args.home), is_read_only=True).pages(list_locks, "locks", key=key))
    if args.json:
        print_json({"locks": locks})
        return 0
    shown = [lock for lock in locks if lock["holders"] or lock["waiters"]]
    if shown:
        print_text("\n".join(_lock_table(shown, width=terminal_width(sys.stdout))))
    else:
        lock = None if key is None else f"lock {escape_unprintable(key)}"
        print_notice("no lock is held or waited for" if lock is None else f"{lock} is not held and has no waiters")
    return 0


def _lock_table(locks: Sequence[Json], *, width: int | None) -> list[str]:
    from rota.cli import table

    rows = [["LOCK", "MODE", "HOLDERS", "WAITERS"]]
    rows += [
        [
            lock["key"],
            lock["mode"] or "free",
            ", ".join(holder["id"] for holder in lock["holders"]),
            _format_waiters(lock),
        ]
        for lock in locks
    ]
    return table.render(rows, width=width, flexible=(((3,), 12), ((0, 2), 8)))


def _format_waiters(lock: Json) -> str:
    """List the waiters in order, with the mode if it is not exclusive."""
    names = [waiter["id"] if waiter["mode"] == "exclusive" else f"{waiter['id']}:shared" for waiter in lock["waiters"]]
    more = lock["waiting"] - len(names)
    return ", ".join(names) + (f" and {more} more" if more else "")

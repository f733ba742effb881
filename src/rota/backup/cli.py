"""`rota backup` and `rota restore`: write a copy of the home to one file while jobs run, and restore a home from it.

A restore keeps existing data aside and deletes nothing.
"""

from __future__ import annotations

import argparse
import os
import time

from rota.cli.confirm import DECLINED, add_confirmation, confirm, format_count, should_confirm
from rota.cli.terminal import print_json, print_notice, print_text
from rota.errors import Conflict
from rota.home import find_home, holder_pid, is_held

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rota.backup.backup import BackupContents
    from rota.backup.restore import RestoreOutcome, RestorePlan
    from rota.home import Home

_PROGRESS_INTERVAL = 2.0
"""Seconds between two progress messages."""


def add_backup_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="The file to write.")
    parser.add_argument("--logs", action="store_true", help="Include the output of jobs, not only the records.")
    parser.add_argument("--force", action="store_true", help="Replace FILE if it exists.")


def run_backup(args: argparse.Namespace) -> int:
    from datetime import UTC, datetime
    from pathlib import Path

    from rota.backup.backup import back_up

    target = Path(os.path.abspath(args.file))  # noqa: PTH100 - keeps the path as it is written
    home = find_home(args.home)
    now = datetime.now(UTC)
    backup = back_up(
        home, target, with_logs=args.logs, force=args.force, now=now, progress=ProgressPrinter("backing up")
    )
    if args.json:
        print_json({name: getattr(backup, name) for name in backup.__struct_fields__})
    else:
        print_text(f"{backup.file}: {_format_counts(backup)}, {backup.bytes:,} bytes")
        if not backup.has_logs:
            print_notice("the output of jobs is not included; --logs includes it")
    return 0


def _format_counts(contents: BackupContents) -> str:
    return f"{format_count(contents.jobs, 'job')}, {format_count(contents.runs, 'run')}"


def add_restore_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="The backup.")
    parser.add_argument(
        "--force", action="store_true", help="Restore even if the home has a database, and keep that database aside."
    )
    add_confirmation(parser)


def run_restore(args: argparse.Namespace) -> int:
    from datetime import UTC, datetime
    from pathlib import Path

    from rota.backup.restore import plan_restore, restore

    file = Path(os.path.abspath(args.file))  # noqa: PTH100 - keeps the path as it is written
    home = find_home(args.home)
    if args.dry_run or should_confirm(args):
        _refuse_running(home)
        plan = plan_restore(home, file, force=args.force)
        if args.dry_run:
            return _print_restore_plan(plan, as_json=args.json)
        replaced = plan.replaced_jobs or 0
        if replaced > 1 and not confirm(f"replace the database with its {replaced:,} jobs?", _restore_plan_lines(plan)):
            return DECLINED
    outcome = restore(home, file, force=args.force, now=datetime.now(UTC), progress=ProgressPrinter("restoring"))
    contents = outcome.contents
    if args.json:
        print_json(
            {
                "file": contents.file,
                "jobs": contents.jobs,
                "runs": contents.runs,
                "made_at": contents.made_at,
                "store": outcome.store,
                "kept": outcome.kept_directory,
                "config": outcome.config_path,
            }
        )
    else:
        as_of = f", as of {contents.made_at}" if contents.made_at else ""
        print_text(f"{outcome.store}: {_format_counts(contents)}{as_of}; `rota up` starts it")
    for line in _restore_notices(outcome, has_supervisor=is_held(home.supervisor_lock)):
        print_notice(line)
    return 0


def _refuse_running(home: Home) -> None:
    """Refuse a restore while a scheduler runs, before the plan and the confirmation."""
    if is_held(home.lock):
        raise Conflict(
            f"a scheduler (pid {holder_pid(home.lock)}) is running for {home.root}; stop it with `rota down` first"
        )


def _print_restore_plan(plan: RestorePlan, *, as_json: bool) -> int:
    contents = plan.contents
    if as_json:
        print_json(
            {
                "dry_run": True,
                "file": contents.file,
                "jobs": contents.jobs,
                "runs": contents.runs,
                "made_at": contents.made_at,
                "store": plan.store,
                "replaced_jobs": plan.replaced_jobs,
            }
        )
    else:
        for line in _restore_plan_lines(plan):
            print_text(line)
    return 0


def _restore_plan_lines(plan: RestorePlan) -> list[str]:
    contents = plan.contents
    as_of = f", as of {contents.made_at}" if contents.made_at else ""
    counts = f"{format_count(contents.jobs, 'job')} and {format_count(contents.runs, 'run')}"
    lines = [f"would restore {counts} to {plan.store}{as_of}"]
    if plan.replaced_jobs is not None:
        lines.append(f"would keep the current database, with {format_count(plan.replaced_jobs, 'job')}, aside")
    return lines


def _restore_notices(result: RestoreOutcome, *, has_supervisor: bool) -> list[str]:
    lines = []
    if result.kept_directory:
        lines.append(f"the previous data is in {result.kept_directory}")
    if result.config_path and result.config_path.endswith(".backup"):
        lines.append(f"rota.toml of the home is unchanged; that of the backup is {result.config_path}")
    if result.is_url_dropped:
        lines.append("store.url was removed from rota.toml, because the records are in rota.db; see `rota store copy`")
    if has_supervisor:
        lines.append("jobs of this home that still run and are not in the backup are killed at the next start")
    return lines


class ProgressPrinter:
    """Callback that prints a progress message at most every two seconds, and none for short work."""

    def __init__(self, activity: str) -> None:
        self._activity = activity
        self._next_print_at = time.monotonic() + _PROGRESS_INTERVAL

    def __call__(self, item: str, done: int, total: int) -> None:
        if total and time.monotonic() >= self._next_print_at:
            self._next_print_at = time.monotonic() + _PROGRESS_INTERVAL
            print_notice(f"{self._activity}: {item} {done * 100 // total} %")

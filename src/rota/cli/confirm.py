"""Confirmation on a terminal before a verb affects more than one job, dry runs of such verbs, and progress messages
while processes end."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rota.cli.terminal import flush, print_json, print_notice, print_text
from rota.errors import InvalidInput, RotaError, escape_unprintable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TextIO

    from rota.client.requests import Json, Request
    from rota.client.session import SchedulerSession

DECLINED = 1
"""The exit code of a verb that was not confirmed."""
MAX_SHOWN = 10
END_WAIT_SECONDS = 8
"""Seconds in which a cancelled process usually exits: `kill_after` and a margin."""


def add_confirmation(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="Print what would be done without changing anything.")
    parser.add_argument("--yes", action="store_true", help="Do not ask for confirmation.")


def should_confirm(args: argparse.Namespace) -> bool:
    """Return whether to ask for confirmation: stdin is a terminal, and `--yes` is not given."""
    return not args.yes and sys.stdin.isatty()


def confirm(question: str, affected: Sequence[str], total: int | None = None) -> bool:
    """Ask on the terminal; every response except yes declines. `affected` can be the first lines of `total`."""
    count = len(affected) if total is None else total
    flush()
    with _open_terminal(question) as screen:
        for line in affected[:MAX_SHOWN]:
            print(f"rota: {line}", file=screen)
        if count > MAX_SHOWN:
            print(f"rota: and {count - MAX_SHOWN:,} more; --dry-run prints all of them", file=screen)
        try:
            print(f"rota: {question} [y/N] ", end="", file=screen, flush=True)
            response = sys.stdin.readline()
        except KeyboardInterrupt:
            print("\nrota: interrupted; nothing was changed", file=screen)
            raise
        if response.strip().lower() in ("y", "yes"):
            return True
        if not response.endswith("\n"):  # end of input
            print(file=screen)
        print("rota: not confirmed; nothing was changed", file=screen)
    return False


@contextmanager
def _open_terminal(question: str) -> Iterator[TextIO]:
    """Yield the terminal to ask on, even if stderr is redirected."""
    if sys.stderr.isatty():
        yield sys.stderr
        return
    from pathlib import Path

    try:
        terminal = Path("/dev/tty").open("w")  # noqa: SIM115 - closed below, so that an OSError of the body is not caught
    except OSError:
        raise InvalidInput(f"cannot ask on a terminal: {question} Nothing was changed; use --yes") from None
    with terminal:
        yield terminal


def preview_or_confirm(args: argparse.Namespace, session: SchedulerSession, preview: Request) -> int | None:
    """Print the dry run of a cancel, or ask for confirmation. Return the exit code, or None to go ahead."""
    if args.dry_run:
        plan = session.request_json(preview)
        print_json(plan) if args.json else print_cancel_plan(plan)
        return 0
    if should_confirm(args) and not confirm_cancel(session.request_json(preview)):
        return DECLINED
    return None


def confirm_cancel(plan: Json) -> bool:
    """Ask for confirmation if more than one job would end. The plan can list only the first of its `total` jobs."""
    total, dependents = plan.get("total", len(plan["jobs"])), plan["dependents"]
    if total + len(dependents) <= 1:
        return True
    consequence = f", which also ends {format_count(len(dependents), 'dependent job')}" if dependents else ""
    lines = [*cancel_lines(plan["jobs"][:MAX_SHOWN]), *dependent_lines(dependents)]
    return confirm(f"cancel {format_count(total, 'job')}{consequence}?", lines, total + len(dependents))


def print_cancel_plan(plan: Json) -> None:
    if not plan["jobs"]:
        print_notice("no job would be cancelled")
    for line in (*cancel_lines(plan["jobs"]), *dependent_lines(plan["dependents"])):
        print_text(line)


def cancel_lines(jobs: Sequence[Json]) -> list[str]:
    from rota.cli.rendering import label

    return [escape_unprintable(f"would cancel {job['id']} ({job['status']}): {label(job)}") for job in jobs]


def dependent_lines(dependents: Sequence[Json]) -> list[str]:
    from rota.cli.rendering import label

    verbs = {"SKIPPED": "skip"}
    return [
        escape_unprintable(f"would {verbs.get(job['outcome'], 'block')} {job['id']} ({job['status']}): {label(job)}")
        for job in dependents
    ]


def format_count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


class EndProgress:
    """Printer of the subject that a command waits for; one message for each change of the supervisor's health."""

    def __init__(self, session: SchedulerSession, subject: str) -> None:
        self._session = session
        self._subject = subject
        self._last_text = ""

    def print_changes(self) -> None:
        silence = silence_notice(self._session)
        text = f"waiting for {self._subject} to end" + (f"; {silence}" if silence else "")
        if text != self._last_text:
            print_notice(text)
        self._last_text = text


def silence_notice(session: SchedulerSession) -> str | None:
    """Return the notice that the supervisor does not respond, empty if it responds, or None without a scheduler."""
    from rota.client.requests.control import get_scheduler

    try:
        status = session.request_json(get_scheduler())
    except RotaError:
        return None
    if not status.get("supervisor_silent_since"):
        return ""
    return next((str(text) for text in status["errors"] if f"(pid {status['supervisor_pid']})" in text), "")

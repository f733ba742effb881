"""`rota rewind`: put a job and everything downstream of it back in the queue."""

from __future__ import annotations

import argparse
from functools import partial

from rota.cli.confirm import DECLINED, add_confirmation, confirm, should_confirm
from rota.cli.parser import job_id
from rota.cli.terminal import print_json, print_notice, print_text
from rota.client.requests.job import rewind_job
from rota.client.session import SchedulerSession
from rota.home import find_home

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from rota.client.requests import Json, Request

_MAX_NAMES = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "job", metavar="JOB", help="The first job to run again; a retried job stands for its last retry."
    )
    add_confirmation(parser)


def run(args: argparse.Namespace) -> int:
    session, job = SchedulerSession(find_home(args.home), is_read_only=args.dry_run), job_id(args.job)
    return rewind(args, session, partial(rewind_job, job))


def rewind(args: argparse.Namespace, session: SchedulerSession, request: Callable[..., Request]) -> int:
    """Rewind a job or a group. On a terminal, ask for confirmation if more than one job is reset."""
    if not args.dry_run and should_confirm(args):
        jobs = session.request_json(request(dry_run=True))["reset"]
        lines = [f"would reset {job}" for job in jobs]
        if len(jobs) > 1 and not confirm(f"rewind {len(jobs):,} jobs?", lines):
            return DECLINED
    report = session.request_json(request(dry_run=args.dry_run))
    if args.json:
        print_json(report)
    elif args.dry_run:
        _print_plan(report)
    else:
        print_report(report)
    return 0


def _print_plan(report: Json) -> None:
    for job in report["reset"]:
        state = " (CANCELLED)" * (job in report["cancelled"])
        print_text(f"would reset {job}{state}" + "; it would start immediately" * (job in report["restarted"]))
    if report["warning"]:
        print_notice(f"warning: {report['warning']}")


def print_report(report: Json) -> None:
    if report["root"] != report["requested_job"]:
        print_notice(f"{report['root']} is the last job of the chain of {report['requested_job']}")
    print_text(f"reset: {_format_names(report['reset'])}")
    if report["cancelled"]:
        print_text(f"were CANCELLED: {_format_names(report['cancelled'])}")
    if report["last_successful_point"]:
        print_text(f"last successful point: {_format_names(report['last_successful_point'])}")
    print_text(f"restarted: {_format_names(report['restarted'])}")
    if not report["restarted"]:
        print_notice(report["warning"] or f"nothing has started yet; `rota why {report['root']}` explains why")
    elif report["warning"]:
        print_notice(f"warning: {report['warning']}")


def _format_names(jobs: list[str]) -> str:
    more = f" and {len(jobs) - _MAX_NAMES} more" if len(jobs) > _MAX_NAMES else ""
    return ", ".join(jobs[:_MAX_NAMES]) + more if jobs else "none"

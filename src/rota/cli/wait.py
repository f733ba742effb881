"""`rota wait`: wait until jobs and groups have ended, and return their exit code."""

from __future__ import annotations

import argparse
import sys
import time

from rota.cli.live import JobLineView, JobScreenView, attempt_name
from rota.cli.outcome import TIMED_OUT, first_failure
from rota.cli.parser import group_not_found, is_job, job_or_group, parse_seconds
from rota.cli.terminal import print_json, print_notice
from rota.cli.watch import StatusWatch
from rota.client.requests.group import get_group
from rota.client.requests.job import get_job
from rota.client.session import SchedulerSession
from rota.errors import NotFound
from rota.home import find_home

_SCREEN_POLL_SECONDS = 2.0
"""Seconds between two reads on a screen: wait details can change without a status change."""
_POLL_SECONDS = 30.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "Exit codes: the exit code of the first job that did not succeed; 124 after the timeout; 125 if the exit code"
        " of a failed job is unknown."
    )
    parser.add_argument(
        "jobs",
        nargs="+",
        metavar="JOB|GROUP",
        help="The jobs by ID, and groups by ID or name. A group returns 0 only if it is COMPLETED.",
    )
    parser.add_argument(
        "--timeout", metavar="DURATION", help="Stop waiting after DURATION and return 124. The jobs continue."
    )


def run(args: argparse.Namespace) -> int:
    limit = parse_seconds(args.timeout)
    names = list(dict.fromkeys(job_or_group(text) for text in args.jobs))
    session = SchedulerSession(find_home(args.home))
    deadline = None if limit is None else time.monotonic() + limit
    jobs = {}
    for name in names:
        if is_job(name):
            # With `wait`, the response for a retried job is the last job of its chain, whose end counts.
            jobs[name] = session.request_json(get_job(name, wait=0))
        else:
            try:
                group = session.request_json(get_group(name))
            except NotFound as error:
                raise group_not_found(name, error) from None
            jobs[group["id"]] = group
    view = JobScreenView(sys.stderr) if sys.stderr.isatty() else JobLineView()
    with StatusWatch(
        session, jobs, poll_seconds=_SCREEN_POLL_SECONDS if isinstance(view, JobScreenView) else _POLL_SECONDS
    ) as watch:
        unfinished_names = _wait_until_ended(watch, view, deadline)
    view.close()
    if unfinished_names:
        unfinished = ", ".join(attempt_name(name, jobs[name]) for name in unfinished_names)
        print_notice(f"stopped waiting after {args.timeout}; not ended: {unfinished}")
    if args.json:
        groups = [job for name, job in jobs.items() if not is_job(name)]
        single_jobs = [job for name, job in jobs.items() if is_job(name)]
        print_json({"jobs": single_jobs, "groups": groups} if groups else {"jobs": single_jobs})
    return TIMED_OUT if unfinished_names else first_failure(jobs.values())


def _wait_until_ended(watch: StatusWatch, view: JobLineView | JobScreenView, deadline: float | None) -> list[str]:
    """Wait until all jobs have ended or the deadline has passed. Return the jobs that have not ended."""
    view.draw(watch.jobs)
    while unfinished := watch.unfinished:
        remaining = view.period if deadline is None else deadline - time.monotonic()
        if remaining <= 0:
            return unfinished
        watch.wait_for_changes(min(remaining, view.period))
        view.draw(watch.jobs)
    return []

"""`rota wait`: stay until jobs and groups have ended, and leave with their exit code."""

from __future__ import annotations

import argparse
import sys
import time

from rota.cli.live import Lines, Screen
from rota.cli.outcome import TIMED_OUT, first_failure
from rota.cli.parser import job_or_group_id, seconds
from rota.cli.terminal import say_json, talk
from rota.cli.watch import Watch
from rota.client.ask.group import get_group, is_group
from rota.client.ask.job import get_job
from rota.client.session import Session
from rota.home import find_home

_POLL_FOR_SCREEN = 2.0
"""A wait's detail can change while the status stays; on a screen it is looked at again so often."""
_POLL = 30.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("jobs", nargs="+", metavar="JOB|GROUP", help="a group gives 0 only if it is COMPLETED")
    parser.add_argument("--timeout", metavar="D", help="give up after so long and return 124; the jobs go on")


def run(args: argparse.Namespace) -> int:
    limit = seconds(args.timeout)
    names = list(dict.fromkeys(job_or_group_id(text) for text in args.jobs))
    session = Session(find_home(args.home))
    deadline = None if limit is None else time.monotonic() + limit
    # With `wait` a retried job is answered by the last of its chain, whose end is the one that counts.
    jobs = {
        name: session.ask(get_group(name) if is_group(name) else get_job(name, wait=0)) for name in names
    }  # fmt: skip
    view = Screen(sys.stderr) if sys.stderr.isatty() else Lines()
    with Watch(session, jobs, poll=_POLL_FOR_SCREEN if isinstance(view, Screen) else _POLL) as watch:
        late = _watch(watch, view, deadline)
    view.close()
    if late:
        talk(f"gave up after {args.timeout}; still not ended: {', '.join(late)}")
    if args.json:
        groups = [job for name, job in jobs.items() if is_group(name)]
        found = [job for name, job in jobs.items() if not is_group(name)]
        say_json({"jobs": found, "groups": groups} if groups else {"jobs": found})
    return TIMED_OUT if late else first_failure(jobs.values())


def _watch(watch: Watch, view: Lines | Screen, deadline: float | None) -> list[str]:
    """Until all have ended, or the deadline: the jobs that then have not."""
    view.draw(watch.jobs)
    while unfinished := watch.unfinished:
        left = view.period if deadline is None else deadline - time.monotonic()
        if left <= 0:
            return unfinished
        watch.step(min(left, view.period))
        view.draw(watch.jobs)
    return []

"""`rota cancel`: end jobs and groups; when this returns they are gone."""

from __future__ import annotations

import argparse

from rota.cli.chain import ended_job
from rota.cli.parser import job_or_group_id
from rota.cli.terminal import say, say_json, talk
from rota.client.ask.group import OVER, cancel_group, get_group, is_group
from rota.client.ask.job import TERMINAL, cancel_job, get_job
from rota.client.session import Session
from rota.errors import Conflict, InvalidInput, NotFound, RotaError
from rota.home import find_home

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from rota.client.ask import Json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("jobs", nargs="+", metavar="JOB|GROUP")


def run(args: argparse.Namespace) -> int:
    session = Session(find_home(args.home))
    cancelled, code = [], 0
    named = list(dict.fromkeys(job_or_group_id(text) for text in args.jobs))
    for job in waiting_first(named, lambda job: session.ask(get_job(job))):
        try:
            cancelled.append(
                cancel_whole_group(session, job) if is_group(job) else _gone(session, session.ask(cancel_job(job)))
            )  # fmt: skip
        except (NotFound, Conflict, InvalidInput) as refused:
            # One job that is not there must not save the others.
            talk(refused.message)
            code = code or refused.exit_code
        else:
            if not args.json:
                say(f"{cancelled[-1]['id']} {cancelled[-1]['status']}")
    if args.json:
        groups = [each for each in cancelled if is_group(each["id"])]
        jobs = [each for each in cancelled if not is_group(each["id"])]
        say_json({"jobs": jobs, "groups": groups} if groups else {"jobs": jobs})
    return code


def waiting_first(named: list[str], look: Callable[[str], Json]) -> list[str]:
    """Those that run come last: what frees a place must not let one begin that is to be cancelled too."""
    return named if len(named) == 1 else sorted(named, key=lambda each: _runs(each, look))


def _runs(each: str, look: Callable[[str], Json]) -> bool:
    try:
        return bool(look(each)["status"] == "RUNNING")
    except RotaError:  # whoever cancels it is told what is wrong with it
        return False


def _gone(session: Session, job: Json) -> Json:
    """The server waits for the end, but not for ever; a tree may take its time to die."""
    return job if job["status"] in TERMINAL else ended_job(session, job["id"])


def cancel_whole_group(session: Session, group: str) -> Json:
    """The same of a group."""
    found: Json = session.ask(cancel_group(group))
    while found["status"] not in OVER:
        found = session.ask(get_group(found["id"], wait=30))
    return found

"""`rota move`: another place in the queue for jobs that wait."""

from __future__ import annotations

import argparse

from rota.cli.parser import Usage, job_id
from rota.cli.terminal import say, say_json, talk
from rota.client.ask.job import move_job
from rota.client.ask.queue import reorder_queue
from rota.client.session import Session
from rota.home import find_home

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rota.client.ask import Json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "rota move JOB --first|--last|--to N|--before J|--after J\n       rota move JOB JOB … --reorder"
    parser.description = "Put waiting jobs at another place in the queue, among those of their priority."
    parser.add_argument("jobs", nargs="+", metavar="JOB")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--first", action="store_true", help="before all that wait")
    where.add_argument("--last", action="store_true", help="behind all that wait, before what is submitted later")
    where.add_argument("--to", type=int, metavar="N", help="the N-th place, counted from 1")
    where.add_argument("--before", metavar="J", help="right before this job")
    where.add_argument("--after", metavar="J", help="right behind this job")
    where.add_argument("--reorder", action="store_true", help="the jobs share out their places in the order named")


def run(args: argparse.Namespace) -> int:
    jobs = [job_id(text) for text in args.jobs]
    session_home = find_home(args.home)
    if args.reorder:
        answer = Session(session_home).ask(reorder_queue(jobs))
        say_json(answer) if args.json else _say_order(answer)
        return 0
    if len(jobs) > 1:
        raise Usage("one job is moved at a time; for several `rota move JOB JOB … --reorder` puts them in that order")
    answer = Session(session_home).ask(move_job(jobs[0], **_where(args)))
    say_json(answer) if args.json else _say_place(answer)
    return 0


def _where(args: argparse.Namespace) -> Json:
    if args.first or args.last:
        return {"first": True} if args.first else {"last": True}
    if args.to is not None:
        return {"to": args.to}
    return {"before": job_id(args.before)} if args.before is not None else {"after": job_id(args.after)}


def _say_order(answer: Json) -> None:
    if not answer["moved"]:
        talk("they stand in that order already")
    for job in answer["order"]:
        say(job)


def _say_place(answer: Json) -> None:
    job = answer["job"]
    if not answer["moved"]:
        talk(f"{job['id']} stands there already")
    if answer["place"] is None:
        say(f"{job['id']} {job['status']}")
    else:
        say(f"{job['id']} place {answer['place']} of priority {job['priority']}")

"""`rota move`: move waiting jobs within the queue."""

from __future__ import annotations

import argparse

from rota.cli.parser import UsageError, job_id
from rota.cli.terminal import print_json, print_notice, print_text
from rota.client.requests.job import move_job
from rota.client.requests.queue import reorder_queue
from rota.client.session import SchedulerSession
from rota.home import find_home

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rota.client.requests import Json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "rota move JOB --first|--last|--to N|--before J|--after J\n       rota move JOB JOB … --reorder"
    parser.description = "Move waiting jobs within the queue, among the jobs of the same priority."
    parser.add_argument("jobs", nargs="+", metavar="JOB", help="The waiting jobs.")
    target = parser.add_mutually_exclusive_group(required=True)
    target.add_argument("--first", action="store_true", help="Move the job before all waiting jobs.")
    target.add_argument(
        "--last", action="store_true", help="Move the job behind all waiting jobs; jobs submitted later follow."
    )
    target.add_argument("--to", type=int, metavar="N", help="Move the job to place N, counted from 1.")
    target.add_argument("--before", metavar="J", help="Move the job directly before job J.")
    target.add_argument("--after", metavar="J", help="Move the job directly behind job J.")
    target.add_argument(
        "--reorder", action="store_true", help="Distribute the places of the jobs among them in the given order."
    )


def run(args: argparse.Namespace) -> int:
    jobs = [job_id(text) for text in args.jobs]
    home = find_home(args.home)
    if args.reorder:
        response = SchedulerSession(home).request_json(reorder_queue(jobs))
        print_json(response) if args.json else _print_order(response)
        return 0
    if len(jobs) > 1:
        raise UsageError("only one job can be moved at a time; to reorder several, use `rota move JOB JOB … --reorder`")
    response = SchedulerSession(home).request_json(move_job(jobs[0], **_target_position(args)))
    print_json(response) if args.json else _print_place(response)
    return 0


def _target_position(args: argparse.Namespace) -> Json:
    if args.first or args.last:
        return {"first": True} if args.first else {"last": True}
    if args.to is not None:
        return {"to": args.to}
    return {"before": job_id(args.before)} if args.before is not None else {"after": job_id(args.after)}


def _print_order(result: Json) -> None:
    if not result["moved"]:
        print_notice("nothing changed: the jobs are already in this order")
    for job in result["order"]:
        print_text(job)


def _print_place(result: Json) -> None:
    job = result["job"]
    if not result["moved"]:
        print_notice(f"nothing changed: {job['id']} is already at this place")
    if result["place"] is None:
        print_text(f"{job['id']} {job['status']}")
    else:
        print_text(f"{job['id']} place {result['place']} of priority {job['priority']}")

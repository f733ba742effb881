"""`rota cancel`: cancel jobs and groups, and wait until their processes have ended."""

from __future__ import annotations

import argparse

from rota.cli.confirm import DECLINED, add_confirmation, confirm_cancel, print_cancel_plan, should_confirm
from rota.cli.end_progress import END_WAIT_SECONDS, EndProgress
from rota.cli.parser import group_not_found, is_job, job_or_group
from rota.cli.terminal import print_json, print_notice, print_text
from rota.client.requests.group import FINISHED_STATUSES, cancel_group, get_group, preview_cancel_group
from rota.client.requests.job import TERMINAL_STATUSES, cancel_job, get_job, preview_cancel
from rota.client.session import SchedulerSession
from rota.errors import Conflict, InvalidInput, NotFound, RotaError
from rota.home import find_home

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from rota.client.requests import Json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "On a terminal, ask for confirmation if more than one job would end. If one of several jobs or groups does not"
        " exist or has already ended, the others are cancelled all the same, and the exit code is not 0."
    )
    parser.add_argument("jobs", nargs="+", metavar="JOB|GROUP", help="The jobs by ID, and groups by ID or name.")
    add_confirmation(parser)


def run(args: argparse.Namespace) -> int:
    session = SchedulerSession(find_home(args.home), is_read_only=args.dry_run)
    cancelled, code = [], 0
    names = list(dict.fromkeys(job_or_group(text) for text in args.jobs))
    if args.dry_run:
        return _dry_run(session, names, as_json=args.json)
    if should_confirm(args) and not confirm_cancel(_plan(session, names)[0]):
        return DECLINED
    for job in waiting_first(names, lambda job: session.request_json(get_job(job))):
        was_cancelled = _is_cancelled(session, job)
        try:
            cancelled.append(_cancel_job(session, job) if is_job(job) else cancel_whole_group(session, job))
        except (NotFound, Conflict, InvalidInput) as error:
            # A job that does not exist must not prevent the cancellation of the others.
            print_notice(_refusal_message(job, error))
            code = code or error.exit_code
        else:
            if was_cancelled:
                print_notice(f"{cancelled[-1]['id']} was already cancelled; nothing was changed")
            if not args.json:
                print_text(f"{cancelled[-1]['id']} {cancelled[-1]['status']}")
    if args.json:
        groups = [group for group in cancelled if not is_job(group["id"])]
        jobs = [job for job in cancelled if is_job(job["id"])]
        print_json({"jobs": jobs, "groups": groups} if groups else {"jobs": jobs})
    return code


def _dry_run(session: SchedulerSession, names: list[str], *, as_json: bool) -> int:
    plan, refusals = _plan(session, names)
    for name, error in refusals:
        print_notice(_refusal_message(name, error))
    print_json({"dry_run": True, **plan}) if as_json else print_cancel_plan(plan)
    return refusals[0][1].exit_code if refusals else 0


def _plan(session: SchedulerSession, names: list[str]) -> tuple[Json, list[tuple[str, RotaError]]]:
    """Return the jobs that would end, without duplicates, and the refusals by name."""
    jobs: dict[str, Json] = {}
    dependents: dict[str, Json] = {}
    refusals: list[tuple[str, RotaError]] = []
    for name in names:
        try:
            plan = session.request_json(preview_cancel(name) if is_job(name) else preview_cancel_group(name))
        except (NotFound, Conflict, InvalidInput) as error:
            refusals.append((name, error))
        else:
            jobs |= {job["id"]: job for job in plan["jobs"]}
            dependents |= {job["id"]: job for job in plan["dependents"]}
    return {
        "jobs": list(jobs.values()),
        "dependents": [job for job in dependents.values() if job["id"] not in jobs],
    }, refusals


def _refusal_message(name: str, error: RotaError) -> str:
    if isinstance(error, NotFound) and name.startswith("schedule-"):
        return f"{name} is not a job or a group; `rota schedule remove {name}` removes a schedule"
    return group_not_found(name, error).message if isinstance(error, NotFound) else error.message


def waiting_first(ids: list[str], fetch: Callable[[str], Json]) -> list[str]:
    """Return the IDs with running jobs last: freed capacity must not let a job start that is cancelled next."""
    return ids if len(ids) == 1 else sorted(ids, key=lambda name: _is_running(name, fetch))


def _is_running(name: str, fetch: Callable[[str], Json]) -> bool:
    try:
        return bool(fetch(name)["status"] == "RUNNING")
    except RotaError:  # the cancellation reports the error
        return False


def _is_cancelled(session: SchedulerSession, name: str) -> bool:
    """Return whether a group, or the last job of a chain, is cancelled already."""
    try:
        response = session.request_json(get_job(name, wait=0) if is_job(name) else get_group(name))
    except (NotFound, Conflict, InvalidInput):  # the cancellation reports the error
        return False
    return bool(response["status"] == "CANCELLED")


def _cancel_job(session: SchedulerSession, job: str) -> Json:
    response: Json = session.request_json(cancel_job(job, wait=END_WAIT_SECONDS))
    progress = EndProgress(session, response["id"])
    while response["status"] not in TERMINAL_STATUSES:
        progress.print_changes()
        response = session.request_json(get_job(response["id"], wait=END_WAIT_SECONDS))
    return response


def cancel_whole_group(session: SchedulerSession, group: str) -> Json:
    """Cancel a group and wait until its processes have ended."""
    response: Json = session.request_json(cancel_group(group, wait=END_WAIT_SECONDS))
    progress = EndProgress(session, f"the running jobs of {response['id']}")
    while response["status"] not in FINISHED_STATUSES:
        progress.print_changes()
        response = session.request_json(get_group(response["id"], wait=END_WAIT_SECONDS))
    return response

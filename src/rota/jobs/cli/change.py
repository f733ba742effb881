"""Verbs that change jobs: `rota cancel`, `retry`, `rewind`, `edit` and `move`."""

from __future__ import annotations

import argparse
from functools import partial

from rota.cli.confirm import (
    DECLINED,
    END_WAIT_SECONDS,
    EndProgress,
    add_confirmation,
    confirm,
    confirm_cancel,
    print_cancel_plan,
    should_confirm,
)
from rota.cli.parser import UsageError, add_command_argument, group_not_found, is_job, job_id, job_or_group
from rota.cli.terminal import print_json, print_notice, print_text
from rota.client.requests.jobs import (
    FINISHED_GROUP_STATUSES,
    TERMINAL_STATUSES,
    cancel_group,
    cancel_job,
    edit_job,
    get_group,
    get_job,
    move_job,
    preview_cancel,
    preview_cancel_group,
    reorder_queue,
    retry_run,
    rewind_job,
)
from rota.client.session import SchedulerSession
from rota.errors import Conflict, InvalidInput, NotFound, RotaError
from rota.home import find_home
from rota.jobs.cli.options import PARAM_SYNTAX, parse_params

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from rota.client.requests import Json, Request

_MAX_LISTED_JOBS = 20
_FIXED_OPTIONS = (
    "after",
    "needs",
    "produces",
    "pin",
    "lock",
    "pool",
    "type",
    "flow",
    "phase",
    "target",
    "unique",
    "cwd",
    "env",
)
"""Options of `rota submit` that cannot be edited."""


def add_cancel_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "On a terminal, ask for confirmation if more than one job would end. If one of several jobs or groups does not"
        " exist or has already ended, the others are cancelled all the same, and the exit code is not 0."
    )
    parser.add_argument("jobs", nargs="+", metavar="JOB|GROUP", help="The jobs by ID, and groups by ID or name.")
    add_confirmation(parser)


def run_cancel(args: argparse.Namespace) -> int:
    session = SchedulerSession(find_home(args.home), is_read_only=args.dry_run)
    cancelled, code = [], 0
    names = list(dict.fromkeys(job_or_group(text) for text in args.jobs))
    if args.dry_run:
        return _dry_run_cancel(session, names, as_json=args.json)
    if should_confirm(args) and not confirm_cancel(_plan_cancel(session, names)[0]):
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


def _dry_run_cancel(session: SchedulerSession, names: list[str], *, as_json: bool) -> int:
    plan, refusals = _plan_cancel(session, names)
    for name, error in refusals:
        print_notice(_refusal_message(name, error))
    print_json({"dry_run": True, **plan}) if as_json else print_cancel_plan(plan)
    return refusals[0][1].exit_code if refusals else 0


def _plan_cancel(session: SchedulerSession, names: list[str]) -> tuple[Json, list[tuple[str, RotaError]]]:
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
    while response["status"] not in FINISHED_GROUP_STATUSES:
        progress.print_changes()
        response = session.request_json(get_group(response["id"], wait=END_WAIT_SECONDS))
    return response


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


def add_retry_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("job_or_run", metavar="JOB|RUN", help="Any job of the chain, or a run of it.")


def run_retry(args: argparse.Namespace) -> int:
    target = f"job-{args.job_or_run}" if args.job_or_run.isdecimal() else args.job_or_run
    response = SchedulerSession(find_home(args.home)).request_json(retry_run(target))
    if args.json:
        print_json(response)
        return 0
    print_notice(response["message"])
    if response["warning"]:
        print_notice(response["warning"])
    print_text(response["job"]["id"])
    return 0


def add_rewind_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "job", metavar="JOB", help="The first job to run again; a retried job stands for its last retry."
    )
    add_confirmation(parser)


def run_rewind(args: argparse.Namespace) -> int:
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
        _print_rewind_plan(report)
    else:
        _print_rewind_report(report)
    return 0


def _print_rewind_plan(report: Json) -> None:
    for job in report["reset"]:
        state = " (CANCELLED)" * (job in report["cancelled"])
        print_text(f"would reset {job}{state}" + "; it would start immediately" * (job in report["restarted"]))
    if report["warning"]:
        print_notice(f"warning: {report['warning']}")


def _print_rewind_report(report: Json) -> None:
    if report["root"] != report["requested_job"]:
        print_notice(f"{report['root']} is the last job of the chain of {report['requested_job']}")
    print_text(f"reset: {_format_jobs(report['reset'])}")
    if report["cancelled"]:
        print_text(f"were CANCELLED: {_format_jobs(report['cancelled'])}")
    if report["last_successful_point"]:
        print_text(f"last successful point: {_format_jobs(report['last_successful_point'])}")
    print_text(f"restarted: {_format_jobs(report['restarted'])}")
    if not report["restarted"]:
        print_notice(report["warning"] or f"nothing has started yet; `rota why {report['root']}` explains why")
    elif report["warning"]:
        print_notice(f"warning: {report['warning']}")


def _format_jobs(jobs: list[str]) -> str:
    more = f" and {len(jobs) - _MAX_LISTED_JOBS} more" if len(jobs) > _MAX_LISTED_JOBS else ""
    return ", ".join(jobs[:_MAX_LISTED_JOBS]) + more if jobs else "none"


def add_edit_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "rota edit JOB [options] [-- COMMAND [ARGUMENT …]]"
    add = parser.add_argument
    add("job", metavar="JOB", help="The waiting job.")
    add("--param", action="append", metavar="K=V", help=f"Set a param: {PARAM_SYNTAX}.")
    add("--unset-param", action="append", metavar="K", help="Remove a param.")
    add("--priority", type=int, metavar="N", help="Set the priority; higher priorities start first.")
    add("--name", metavar="NAME", help="Set the name; '' removes it.")
    add(
        "--timeout",
        metavar="DURATION",
        help="Kill the job after DURATION, for example 90s or 1h30m; none removes the limit.",
    )
    add(
        "--idle-timeout", metavar="DURATION", help="Kill the job after DURATION without output; none removes the limit."
    )
    add("--retries", type=int, metavar="N", help="Retry the job up to N times if it fails.")
    add("--retry", metavar="NAME", help="Set the retry policy: default, fleet, or a configured [retry.NAME].")
    add("--delay", metavar="DURATION", help="Start the job no earlier than DURATION from now; none removes the delay.")
    for name in _FIXED_OPTIONS:
        add(f"--{name}", action="append", dest=f"fixed_{name}", help=argparse.SUPPRESS)
    add_command_argument(parser)


def run_edit(args: argparse.Namespace) -> int:
    changes = _build_edit_request(args)
    response = SchedulerSession(find_home(args.home)).request_json(edit_job(job_id(args.job), **changes))
    if args.json:
        print_json(response)
        return 0
    if response["warning"]:
        print_notice(f"warning: {response['warning']}")
    job = response["job"]
    if response["fields"]:
        print_text(f"{job['id']} {', '.join(response['fields'])}")
    else:
        print_notice(f"nothing changed: {job['id']} already has these values")
    if job["status"] == "RUNNING":
        print_notice(f"{job['id']} has started")
    return 0


def _build_edit_request(args: argparse.Namespace) -> Json:
    """Return the request body with the changed fields only."""
    for name in _FIXED_OPTIONS:
        if getattr(args, f"fixed_{name}") is not None:
            raise UsageError(f"--{name} cannot be edited; cancel the job and submit a new one")
    if args.command == []:
        raise UsageError("there is no command after --; remove the --, or add the new command")
    request: Json = {
        "command": args.command,
        "set_params": parse_params(args.param) or None,
        "unset_params": args.unset_param,
        "priority": args.priority,
        "retries": args.retries,
        "retry": args.retry,
    }
    changes = {name: value for name, value in request.items() if value is not None}
    if args.name is not None:
        changes["name"] = args.name or None
    for name in ("timeout", "idle_timeout", "delay"):
        text = getattr(args, name)
        if text is not None:
            changes[name] = None if text == "none" else text
    if not changes:
        raise UsageError("no change given; `rota edit --help` lists the options")
    return changes


def add_move_arguments(parser: argparse.ArgumentParser) -> None:
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


def run_move(args: argparse.Namespace) -> int:
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

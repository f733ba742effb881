"""`rota submit`: submit a job. Scripts run it often, so it imports as little as possible."""

from __future__ import annotations

import argparse

from rota.cli.parser import UsageError, group_id, job_id
from rota.cli.terminal import print_json, print_notice, print_text
from rota.client.requests.jobs import preview_submit, submit_job
from rota.client.session import SchedulerSession
from rota.errors import QueueFull, escape_unprintable
from rota.home import find_home
from rota.jobs.cli.options import (
    add_job_options,
    environment_request,
    job_options,
    print_quoting_hint,
    require_one_command,
    require_utf8,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rota.client.requests import Json

_DEPENDENCY_POLICIES = ("success", "finished", "failed")


def add_submit_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "rota submit [options] -- COMMAND [ARGUMENT …] | rota submit --template T [--param K=V …] [options]"
    add = parser.add_argument
    add("--name", help="Set the name shown in lists.")
    add(
        "--after",
        action="append",
        metavar="JOB[:POLICY]",
        help=f"Start after JOB; POLICY is {', '.join(_DEPENDENCY_POLICIES)} (default: success).",
    )
    add("--group", metavar="GROUP", help="Add the job to an active group, by ID or name.")
    add_job_options(
        parser, time_phrase="submit time", delay_phrase="from now", on_conflict="return that job", retries=0
    )
    add("--follow", action="store_true", help="Print the output of the job until it ends, and return its exit code.")
    add(
        "--dry-run",
        action="store_true",
        help="Print the job and its policies without storing anything; needs a running scheduler.",
    )
    add("command", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="The program and its arguments.")


def run_submit(args: argparse.Namespace) -> int:
    if args.follow and args.json:
        raise UsageError("--follow and --json both write to stdout; remove one of them")
    if args.follow and args.dry_run:
        raise UsageError("--dry-run stores nothing, so --follow has nothing to follow; remove one of them")
    request = build_request(args)
    print_quoting_hint(request.get("command", []), "submit")
    session = SchedulerSession(find_home(args.home), is_read_only=args.dry_run)
    try:
        response: Json = session.request_json(preview_submit(**request) if args.dry_run else submit_job(**request))
    except QueueFull as error:
        return _print_deferred(args, error)
    if response.get("warning"):
        print_notice(f"warning: {response['warning']}")
    job: str = response["job"]["id"]
    if response["result"] == "already_active":
        print_notice(f"already active as {job}; no job was added")
    if args.follow:
        return _follow_job(session, job)
    if args.json:
        print_json(response)
    elif response["result"] == "dry_run":
        _print_planned(response["job"])
    else:
        print_text(job)
    return 0


def _print_planned(job: Json) -> None:
    from datetime import UTC, datetime

    from rota.cli.rendering import job_block

    policies = job.pop("policies", None) or []
    print_text(
        "\n".join([f"would submit {job['id']}", *job_block(job, now=datetime.now(UTC)), *policy_lines(policies)])
    )


def policy_lines(policies: list[Json]) -> list[str]:
    """Return a line for each policy, with its source."""
    width = max((len(policy["name"]) for policy in policies), default=0)
    width = max(width, 18)
    return [
        escape_unprintable(f"{policy['name']:<{width}} {policy['value']}  [{policy['source']}]") for policy in policies
    ]


def _print_deferred(args: argparse.Namespace, error: QueueFull) -> int:
    """Print a deferral as a result. Over HTTP it is an error status."""
    if args.json:
        print_json(deferred_json(error, job=None))
    print_notice(f"deferred: {error.message}")
    return QueueFull.exit_code


def deferred_json(error: QueueFull, **fields: object) -> Json:
    """Return the JSON of a deferral. `fields` are the other fields of the result, which are empty in a deferral."""
    depth = {} if error.depth is None else {"depth": error.depth}
    return {"result": "deferred", **fields, "warning": error.message, **depth}


def _follow_job(session: SchedulerSession, job: str) -> int:
    from rota.jobs.cli.logs import follow_chain
    from rota.jobs.cli.wait import exit_code, wait_for_end

    print_notice(job)
    try:
        follow_chain(session, job, ("stdout", "stderr"))
    except KeyboardInterrupt:
        print_notice(f"{job} continues; `rota logs -f {job}` follows it again, `rota cancel {job}` cancels it")
        raise
    return exit_code(wait_for_end(session, job))


def build_request(args: argparse.Namespace) -> Json:
    """Return the request body with the given options; the defaults of the server apply to the others."""
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    require_one_command(command, args.template, "submit")
    if args.base is not None and not args.worktree and args.template is None:
        raise UsageError("--base requires a worktree: add --worktree, or remove --base")
    request = job_options(args)
    if args.name is not None:
        request["name"] = args.name
    if args.after:
        request["after"] = [_parse_dependency(text) for text in args.after]
    if args.group is not None:
        request["group"] = group_id(args.group)
    if command:
        request["command"] = command
    require_utf8(request)
    return {**request, **environment_request(args)}


def _parse_dependency(text: str) -> dict[str, str]:
    job, colon, policy = text.partition(":")
    if colon and policy not in _DEPENDENCY_POLICIES:
        raise UsageError(f"--after {text}: the policy is one of {', '.join(_DEPENDENCY_POLICIES)}")
    return {"job": job_id(job), "policy": policy or "success"}

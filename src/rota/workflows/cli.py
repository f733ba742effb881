"""`rota apply`: submit the jobs of a workflow file as one group, all or none, and show its progress with `--wait`."""

from __future__ import annotations

import argparse
import os
import sys
import time
from datetime import UTC, datetime

from rota.cli import table
from rota.cli.parser import Formatter, UsageError, parse_seconds
from rota.cli.rendering import format_elapsed
from rota.cli.terminal import (
    Canvas,
    can_redraw,
    flush,
    has_color,
    paint,
    print_json,
    print_notice,
    print_text,
    terminal_height,
    terminal_width,
)
from rota.client.requests.jobs import (
    FINISHED_GROUP_STATUSES,
    TERMINAL_STATUSES,
    get_progress,
    preview_batch,
    submit_batch,
)
from rota.client.session import SchedulerSession
from rota.errors import Conflict, InvalidInput, QueueFull, RotaError, escape_unprintable
from rota.home import find_home
from rota.jobs.cli.options import caller_environment, require_utf8, working_directory
from rota.jobs.cli.submit import deferred_json
from rota.jobs.cli.wait import TIMED_OUT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import TextIO

    from rota.client.requests import Json
    from rota.workflows.document import WorkflowDocument
    from rota.workflows.workflow import Workflow

_MAX_LISTED_JOBS = 5
_EXAMPLE = """\
example, flow.yaml:

  group: {on_failure: stop}
  jobs:
    plan:   {command: [claude, -p, "write the plan"], produces: ["file:plan.md"]}
    build:  {command: [make, build], after: [plan], locks: [repo]}
    test:   {command: [make, test], after: [plan]}
    merge:  {command: [./merge.sh], after: [build, test], timeout: 10m}

  rota apply flow.yaml --dry-run     show the jobs without storing them
  rota apply flow.yaml --wait        return 0 only if all jobs succeed
"""
_POLL_SECONDS = 30.0
_MAX_LISTED_FAILURES = 20
_FAILED_STATUSES = ("FAILED", "BLOCKED_BY_DEPENDENCY", "CANCELLED")


class _RawFormatter(Formatter, argparse.RawDescriptionHelpFormatter):
    """Help formatter that keeps the line breaks of the example."""


def add_apply_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class, parser.epilog = _RawFormatter, _EXAMPLE
    file = parser.add_argument(
        "file", metavar="FILE", help="The workflow file: YAML, JSON or TOML, detected by suffix; - is stdin."
    )
    file.complete = {"bash": "_shtab_compgen_files", "zsh": "_files"}  # type: ignore[attr-defined]
    parser.add_argument(
        "--format", choices=("yaml", "toml", "json"), help="Set the format of the file instead of detecting it."
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="Show the resulting graph without storing anything; needs a running scheduler.",
    )
    parser.add_argument(
        "--wait", action="store_true", help="Wait for the group to end; return 0 only if all jobs succeeded."
    )
    parser.add_argument(
        "--timeout",
        metavar="DURATION",
        help="With --wait, stop waiting after DURATION and return 124; the jobs continue.",
    )


def run_apply(args: argparse.Namespace) -> int:
    if args.timeout is not None and not args.wait:
        raise UsageError(
            "--timeout limits --wait: add --wait, or remove --timeout; the timeout of a job is set in the file"
        )
    if args.wait and args.dry_run:
        raise UsageError("--dry-run stores nothing, so --wait has nothing to wait for; remove one of them")
    limit = parse_seconds(args.timeout)
    source = "<stdin>" if args.file == "-" else args.file
    document, workflow = _read_workflow(args.file, source, args.format)
    cwd = working_directory(None)
    require_utf8({"cwd": cwd})
    request: Json = {
        "group": workflow.group,
        "jobs": workflow.jobs,
        "cwd": cwd,
        "env": caller_environment(None),
        "inherit_env": False,
    }
    session = SchedulerSession(find_home(args.home), is_read_only=args.dry_run)
    try:
        if args.dry_run:
            return _dry_run(session, request, as_json=args.json)
        response: Json = session.request_json(submit_batch(**request))
    except QueueFull as error:
        return _print_deferred(args, error)
    except RotaError as error:
        raise _with_file_location(error, source, document, workflow) from None
    except KeyboardInterrupt:
        print_notice("interrupted before the response arrived; `rota group list` shows whether the group was stored")
        raise
    return _print_result(args, session, response, workflow.names, limit)


def _read_workflow(file: str, source: str, format_name: str | None) -> tuple[WorkflowDocument, Workflow]:
    import gc

    from rota.workflows.document import WorkflowDocument, decode_text, guess_syntax
    from rota.workflows.scalars import Fault, InvalidWorkflow, format_faults
    from rota.workflows.workflow import Workflow

    gc.disable()  # ten thousand jobs allocate a million objects, and none of them is garbage
    document: WorkflowDocument | None = None
    try:
        text = decode_text(_read_bytes(file))
        document = WorkflowDocument(text, format_name or _format_of(file) or guess_syntax(text))
        return document, Workflow(document.data, working_directory(None))
    except Fault as fault:
        raise InvalidInput(format_faults(source, [fault], {})) from None
    except InvalidWorkflow as error:
        marks = {} if document is None else document.positions()
        raise InvalidInput(format_faults(source, error.faults, marks)) from None
    finally:
        gc.enable()


def _format_of(file: str) -> str | None:
    suffix = os.path.splitext(file)[1].lower()  # noqa: PTH122
    return {".yaml": "yaml", ".yml": "yaml", ".json": "yaml", ".toml": "toml"}.get(suffix)


def _read_bytes(file: str) -> bytes:
    from rota.workflows.document import MAX_BYTES

    try:
        if file == "-":
            return sys.stdin.buffer.read(MAX_BYTES + 1)
        with open(file, "rb") as stream:  # noqa: PTH123
            return stream.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"{file} cannot be read: {reason}; name a workflow file, or - for stdin") from None


def _with_file_location(error: RotaError, source: str, document: WorkflowDocument, workflow: Workflow) -> RotaError:
    """Return the error of the scheduler with the location in the file instead of the location in the request."""
    if not error.path:
        return error
    from rota.workflows.scalars import Fault, format_faults

    fault = Fault(workflow.document_path(error.path), error.message.partition(" - at `$")[0])
    return type(error)(format_faults(source, [fault], document.positions()))


def _dry_run(session: SchedulerSession, request: Json, *, as_json: bool) -> int:
    response = session.request_json(preview_batch(**request, format="json" if as_json else "dag"))
    if as_json:
        print_json(response)
    if response["result"] == "deferred":
        print_notice(f"would be deferred: {response['warning']}")
        return QueueFull.exit_code
    if response["result"] == "already_active":
        raise _already_active_error(response)
    if response.get("warning"):
        print_notice(f"warning: {response['warning']}")
    if not as_json:
        print_text(response["graph"]["text"])
        for line in _policy_lines(response["jobs"]):
            print_text(line)
        skipped = response["graph"]["skipped"]
        more = f"; {skipped} more not drawn, --json lists them" if skipped else ""
        count = len(response["jobs"])
        print_notice(f"{count} job{'s' * (count != 1)}{more}; nothing was stored, so the IDs can still change")
    return 0


def _policy_lines(jobs: list[Json]) -> list[str]:
    """Return a line for each value of each policy, with its source and jobs."""
    names_by_policy: dict[tuple[str, str, str], list[str]] = {}
    for job in jobs:
        for policy in job["policies"]:
            key = policy["name"], policy["value"], policy["source"]
            names_by_policy.setdefault(key, []).append(job["local"] or job["id"])
    order = list(dict.fromkeys(name for name, _, _ in names_by_policy))
    width = max((len(name) for name, _, _ in names_by_policy), default=0)
    return [
        escape_unprintable(f"{name:<{width}} {value}  [{source}]  {_format_jobs(names, len(jobs))}")
        for (name, value, source), names in sorted(names_by_policy.items(), key=lambda item: order.index(item[0][0]))
    ]


def _format_jobs(names: list[str], total: int) -> str:
    if len(names) == total and total > 1:
        return "all jobs"
    more = f" and {len(names) - _MAX_LISTED_JOBS} more" if len(names) > _MAX_LISTED_JOBS else ""
    return ", ".join(names[:_MAX_LISTED_JOBS]) + more


def _already_active_error(result: Json) -> Conflict:
    active = ", ".join(f"{job} has {key}" for key, job in result["active"].items())
    return Conflict(f"a unique key is in use: {active}; nothing was stored; wait for that job or cancel it first")


def _print_deferred(args: argparse.Namespace, error: QueueFull) -> int:
    """Print a deferral as a result. Over HTTP it is an error status."""
    if args.json:
        print_json(deferred_json(error, group=None, jobs=[]))
    print_notice(f"deferred: {error.message}")
    return QueueFull.exit_code


def _print_result(
    args: argparse.Namespace, session: SchedulerSession, result: Json, names: list[str], limit: float | None
) -> int:
    if result["result"] == "already_active":
        if args.json:
            print_json(result)
        raise _already_active_error(result)
    if result.get("warning"):
        print_notice(f"warning: {result['warning']}")
    result["jobs"] = [{"id": job, "local": name} for job, name in zip(result["jobs"], names, strict=True)]
    if not args.json:
        print_text("\n".join([result["group"], *(f"{job['id']}\t{job['local']}" for job in result["jobs"])]))
    code = 0
    if args.wait:
        code, end = _wait_for_group(session, result["group"], limit, args.timeout)
        result |= end
    if args.json:
        print_json(result)
    return code


def _wait_for_group(
    session: SchedulerSession, group: str, limit: float | None, limit_text: str | None
) -> tuple[int, Json]:
    continues = f"{group} continues; `rota wait {group}` follows it again, `rota group cancel {group}` cancels it"
    try:
        flush()
        code, end = _follow_group(session, group, limit)
    except KeyboardInterrupt:
        print_notice(continues)
        raise
    if code == TIMED_OUT:
        print_notice(f"stopped waiting after {limit_text}; {continues}")
    return code, end


def _follow_group(session: SchedulerSession, group: str, limit: float | None) -> tuple[int, Json]:
    """Follow a group until it ends or the time limit expires. Return the exit code and the result."""
    deadline = None if limit is None else time.monotonic() + limit
    view: GroupScreenView | GroupLineView = GroupScreenView(sys.stderr) if can_redraw(sys.stderr) else GroupLineView()
    failed: dict[str, Json] = {}
    cursor: str | None = None
    while True:
        remaining = _POLL_SECONDS if deadline is None else max(0.0, deadline - time.monotonic())
        progress = session.request_json(get_progress(group, wait=min(remaining, view.period), cursor=cursor))
        cursor = progress["cursor"]
        for job in progress["ended"]:
            if job["status"] in _FAILED_STATUSES and job["retried_as"] is None:
                failed[job["id"]] = job
        view.draw(progress)
        if progress["status"] in FINISHED_GROUP_STATUSES and not progress["ended"]:
            break
        if progress["status"] not in FINISHED_GROUP_STATUSES and deadline is not None and time.monotonic() >= deadline:
            return TIMED_OUT, _final_result(progress, failed)
    _print_summary(progress, failed)
    return 0 if progress["status"] == "COMPLETED" else 1, _final_result(progress, failed)


def _final_result(progress: Json, failed: dict[str, Json]) -> Json:
    return {
        "status": progress["status"],
        "counts": progress["counts"],
        "total": progress["total"],
        "failed": list(failed.values()),
    }


def _print_summary(progress: Json, failed: dict[str, Json]) -> None:
    print_notice(f"{progress['id']} {progress['status']}: {format_counts(progress)}")
    # Failed jobs first: the blocked and cancelled ones are usually consequences.
    result = sorted(failed.values(), key=lambda job: _FAILED_STATUSES.index(job["status"]))
    for job in result[:_MAX_LISTED_FAILURES]:
        logs = f"; see `rota logs {job['id']}`" if job["status"] == "FAILED" else f"; see `rota why {job['id']}`"
        print_notice(escape_unprintable(f"{format_end(job)}{logs}"))
    if len(result) > _MAX_LISTED_FAILURES:
        print_notice(f"… and {len(result) - _MAX_LISTED_FAILURES} more; `rota group show {progress['id']}` lists them")


def format_counts(progress: Json) -> str:
    return ", ".join(f"{count} {status}" for status, count in progress["counts"].items()) or "no jobs"


def format_end(job: Json) -> str:
    name = f" {job['name']}" if job["name"] else ""
    reason = f": {job['reason']}" if job["reason"] else ""
    if not reason and job["status"] == "FAILED" and job["exit_code"] is not None:
        reason = f": exit code {job['exit_code']}"
    retry = f"; retried as {job['retried_as']}" if job["retried_as"] is not None else ""
    return f"{job['id']}{name} {job['status']}{reason}{retry}"


class GroupLineView:
    """View that prints a line for each job that ends."""

    period = _POLL_SECONDS

    def draw(self, progress: Json) -> None:
        for job in progress["ended"]:
            print_notice(escape_unprintable(format_end(job)))


class GroupScreenView:
    """View with a block for the group, redrawn in place."""

    period = 1.0

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._canvas = Canvas(stream)

    def draw(self, progress: Json) -> None:
        width, room = (terminal_width(self._stream) or 80) - 1, terminal_height(self._stream) - 3
        lines = [table.fit(line, width).rstrip() for line in self._lines(progress, max(1, room))]
        lines[0] = paint(lines[0], progress["status"], color=has_color(self._stream))
        self._canvas.draw(lines)

    def _lines(self, progress: Json, max_lines: int) -> Iterable[str]:
        ended = sum(progress["counts"].get(status, 0) for status in TERMINAL_STATUSES)
        yield f"{progress['id']} {progress['status']}  {ended}/{progress['total']}  {format_counts(progress)}"
        running = progress["running"]
        now = datetime.now(UTC)
        for job in running[: max_lines - 1]:
            since = now - datetime.fromisoformat(job["started_at"])
            yield escape_unprintable(
                f"  {job['id']} {job['name'] or ''} {format_elapsed(max(0.0, since.total_seconds()))}"
            )
        hidden = progress["counts"].get("RUNNING", 0) - len(running[: max_lines - 1])
        if hidden > 0:
            yield f"  … and {hidden} more running"

"""Requests for jobs, their runs, logs, locks and artifacts, and for the queue, the dependency graph and groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rota.client.requests import Request, build_query, quote, timeout_for
from rota.client.requests.arguments import (
    as_command,
    as_idempotency_key,
    as_list,
    as_mapping,
    as_seconds,
    encode_fields,
)
from rota.errors import error_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Unpack

    from rota.client.requests import Json
    from rota.client.requests.options import (
        Command,
        EditOptions,
        EnvironmentOptions,
        GroupOptions,
        JobOptions,
        NewJobOptions,
        Path,
        Seconds,
    )

ACTIVE_STATUSES = ("QUEUED", "WAITING_ON_DEPS", "WAITING_ON_LOCKS", "RUNNING", "UNREADABLE")
TERMINAL_STATUSES = ("COMPLETED", "FAILED", "SKIPPED", "CANCELLED", "BLOCKED_BY_DEPENDENCY")
LOG_CHUNK_BYTES = 1 << 20
"""Size of the parts in which a log is read, so that no log is in memory as a whole."""
FINISHED_GROUP_STATUSES = ("COMPLETED", "CANCELLED", "PARTIAL")


def submit_job(command: Command = (), *, key: str | None = None, **options: Unpack[JobOptions]) -> Request:
    """Submit a job: a command with its arguments, or a job of a template. Submits with the same `key` store one job."""
    fields = {"command": as_command(command), **options} if command else options
    return Request("POST", "/api/jobs", body=job_body(fields), key=as_idempotency_key(key))


def preview_submit(**job: Unpack[NewJobOptions]) -> Request:
    """Return the job that a submit would store, with its policies. Nothing is stored."""
    return Request(
        "POST", f"/api/jobs{build_query(('dry_run', True))}", body=job_body(job), key=as_idempotency_key(None)
    )


def submit_batch(
    jobs: Iterable[NewJobOptions],
    *,
    group: GroupOptions | None = None,
    key: str | None = None,
    **defaults: Unpack[EnvironmentOptions],
) -> Request:
    """Submit several jobs, all or none. Jobs can refer to each other by their `local` names. With `group`, they become
    members of a new group."""
    return Request("POST", "/api/jobs/batch", body=_batch_body(jobs, group, defaults), key=as_idempotency_key(key))


def preview_batch(
    jobs: Iterable[NewJobOptions],
    *,
    group: GroupOptions | None = None,
    format: str = "json",  # noqa: A002
    **defaults: Unpack[EnvironmentOptions],
) -> Request:
    """Return the result that a batch would have, with its graph as `dag` or `json`. Nothing is stored."""
    target = f"/api/jobs/batch{build_query(('dry_run', True), ('format', format))}"
    return Request("POST", target, body=_batch_body(jobs, group, defaults), key=as_idempotency_key(None))


def _batch_body(jobs: Iterable[NewJobOptions], group: GroupOptions | None, defaults: EnvironmentOptions) -> Json:
    body: Json = {**defaults, "jobs": [_batch_job_body(n, job) for n, job in enumerate(as_list("jobs", jobs))]}
    return body if group is None else {"group": as_mapping("group", group), **body}


def _batch_job_body(index: int, job: object) -> Json:
    path = f"$.jobs[{index}]"
    with error_path(path, "$.job"):
        fields = as_mapping("job", job)
    with error_path(path, "$"):
        return job_body(fields)


def job_body(fields: Mapping[str, object]) -> Json:
    """Return the body of a job as the API expects it. A plain job id is a dependency on success, and a plain key is an
    exclusive lock."""
    body = encode_fields(as_mapping("job", fields))
    for field, name in (("after", "job"), ("locks", "key")):
        if body.get(field) is not None:
            body[field] = [{name: item} if isinstance(item, str) else item for item in body[field]]
    return body


def list_jobs(
    *,
    status: Sequence[str] = (),
    name: str | None = None,
    type: str | None = None,  # noqa: A002
    flow: str | None = None,
    phase: str | None = None,
    target: str | None = None,
    group: str | None = None,
    limit: int | None = None,
    cursor: str | None = None,
    total: bool | None = None,
) -> Request:
    """List running jobs, waiting jobs in queue order, then ended jobs, newest first. `total` also counts them."""
    query = build_query(
        ("status", as_list("status", status)),
        ("name", name),
        ("type", type),
        ("flow", flow),
        ("phase", phase),
        ("target", target),
        ("group", group),
        ("limit", limit),
        ("cursor", cursor),
        ("total", total),
    )
    return Request("GET", f"/api/jobs{query}")


def get_job(job: str, *, wait: Seconds | None = None, last_seen: str | None = None) -> Request:
    """Return a job.

    With `wait`, return the last job of its chain when it has ended, when its status differs from `last_seen`,
    or after `wait` seconds.
    """
    wait = as_seconds("wait", wait)
    target = f"/api/jobs/{quote(job)}{build_query(('wait', wait), ('last_seen', last_seen))}"
    return Request("GET", target, timeout=timeout_for(wait))


def explain_job(job: str) -> Request:
    """Explain why a job has not started."""
    return Request("GET", f"/api/jobs/{quote(job)}/why")


def cancel_job(job: str, *, wait: Seconds | None = None) -> Request:
    """Cancel a job's chain. Return when its processes have ended, or after `wait` seconds. The client sets no timeout:
    a job may take up to its `kill_after` to end."""
    return Request(
        "POST", f"/api/jobs/{quote(job)}/cancel{build_query(('wait', as_seconds('wait', wait)))}", timeout=None
    )


def preview_cancel(job: str) -> Request:
    """Return the job that a cancel would cancel. Nothing is stored."""
    return Request("POST", f"/api/jobs/{quote(job)}/cancel{build_query(('dry_run', True))}")


def rewind_job(job: str, *, dry_run: bool = False, key: str | None = None) -> Request:
    """Rewind a job and everything downstream of it. A large set takes long. With `dry_run`, change nothing."""
    target = f"/api/jobs/{quote(job)}/rewind{build_query(('dry_run', dry_run or None))}"
    return Request("POST", target, key=as_idempotency_key(key), timeout=None)


def edit_job(job: str, /, **changes: Unpack[EditOptions]) -> Request:
    """Edit a waiting job."""
    return Request("PATCH", f"/api/jobs/{quote(job)}", body=job_body(changes))


def move_job(
    job: str,
    *,
    first: bool = False,
    last: bool = False,
    to: int | None = None,
    before: str | None = None,
    after: str | None = None,
) -> Request:
    """Move a job in the queue. Pass exactly one of the options."""
    options = {"first": first or None, "last": last or None, "to": to, "before": before, "after": after}
    body = {name: value for name, value in options.items() if value is not None}
    return Request("POST", f"/api/jobs/{quote(job)}/move", body=body)


def list_runs(
    *,
    job: str | None = None,
    status: Sequence[str] = (),
    worker: str | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> Request:
    """List runs of all jobs, newest first."""
    query = build_query(
        ("job", job), ("status", as_list("status", status)), ("worker", worker), ("limit", limit), ("cursor", cursor)
    )
    return Request("GET", f"/api/job-runs{query}")


def list_runs_of_job(job: str, *, limit: int | None = None, cursor: str | None = None) -> Request:
    """List runs of a job, newest first."""
    return Request("GET", f"/api/jobs/{quote(job)}/runs{build_query(('limit', limit), ('cursor', cursor))}")


def get_run(run: str) -> Request:
    """Return a run."""
    return Request("GET", f"/api/job-runs/{quote(run)}")


def retry_run(run: str, *, key: str | None = None) -> Request:
    """Retry a failed chain as a new job. Takes the id of a run or of a job, because a job that never started has no
    run."""
    return Request("POST", f"/api/job-runs/{quote(run)}/retry", key=as_idempotency_key(key))


def get_logs(job: str, *, run: str | None = None) -> Request:
    """Return the path and size of each log of a job, or of one of its runs."""
    return Request("GET", f"/api/jobs/{quote(job)}/logs{build_query(('run', run))}")


def get_log(
    job: str, stream: str = "stdout", *, offset: int = 0, limit: int | None = None, run: str | None = None
) -> Request:
    """Return a part of `stdout` or `stderr`, as bytes. A negative offset counts from the end."""
    query = build_query(("offset", offset), ("limit", limit), ("run", run))
    return Request("GET", f"/api/jobs/{quote(job)}/logs/{quote(stream)}{query}")


def follow_log(job: str, stream: str = "stdout", *, offset: int = 0) -> Request:
    """Stream the log from `offset` until the job ends."""
    query = build_query(("offset", offset), ("follow", True))
    return Request("GET", f"/api/jobs/{quote(job)}/logs/{quote(stream)}{query}", timeout=None)


def list_queue(*, limit: int | None = None, cursor: str | None = None) -> Request:
    """List waiting jobs in queue order."""
    return Request("GET", f"/api/queue{build_query(('limit', limit), ('cursor', cursor))}")


def reorder_queue(order: Iterable[str]) -> Request:
    """Put these jobs in this order, in the places that they occupy together."""
    return Request("POST", "/api/queue/reorder", body={"order": as_list("order", order)})


def list_locks(*, key: str | None = None, limit: int | None = None, cursor: str | None = None) -> Request:
    """List locks that are held or requested, or one lock by its key."""
    return Request("GET", f"/api/locks{build_query(('key', key), ('limit', limit), ('cursor', cursor))}")


def get_graph(
    *,
    format: str = "json",  # noqa: A002
    all: bool = False,  # noqa: A002
    job: str | None = None,
    max_depth: int | None = None,
    wait: Seconds | None = None,
    last_seen: str | None = None,
) -> Request:
    """Return the dependency graph as `dag` or `json`.

    With `wait`, return when its ETag differs from `last_seen`; when the time is over, the response is 304.
    """
    wait = as_seconds("wait", wait)
    query = build_query(
        ("format", format), ("all", all or None), ("job", job), ("max_depth", max_depth), ("wait", wait)
    )
    headers = None if last_seen is None else {"If-None-Match": last_seen}
    return Request("GET", f"/api/graph{query}", headers=headers, timeout=timeout_for(wait))


def put_artifact(
    artifact: str,
    *,
    payload: str | None = None,
    job: str | None = None,
    cwd: Path | None = None,
    key: str | None = None,
) -> Request:
    """Put an artifact. If a running job puts it, it counts after the job has ended."""
    fields = {"artifact": artifact, "payload": payload, "job": job, "cwd": cwd}
    body = {name: value for name, value in fields.items() if value is not None}
    return Request("POST", "/api/artifacts", body=body, key=as_idempotency_key(key))


def list_artifacts(*, limit: int | None = None, cursor: str | None = None) -> Request:
    """List artifacts without their payloads."""
    return Request("GET", f"/api/artifacts{build_query(('limit', limit), ('cursor', cursor))}")


def get_artifact(artifact: str, *, cwd: Path | None = None) -> Request:
    """Return an artifact with its payload."""
    return Request("GET", f"/api/artifacts/{quote(artifact, safe='/')}{build_query(('cwd', cwd))}")


def remove_artifact(artifact: str, *, cwd: Path | None = None) -> Request:
    """Withdraw an artifact."""
    return Request("DELETE", f"/api/artifacts/{quote(artifact, safe='/')}{build_query(('cwd', cwd))}")


def list_groups(*, open: bool = False, limit: int | None = None, cursor: str | None = None) -> Request:  # noqa: A002
    """List groups, newest first. With `open`, list only unfinished groups."""
    return Request("GET", f"/api/job-groups{build_query(('open', open or None), ('limit', limit), ('cursor', cursor))}")


def add_group(*, key: str | None = None, **group: Unpack[GroupOptions]) -> Request:
    """Add a group that jobs can join."""
    return Request("POST", "/api/job-groups", body=dict(group), key=as_idempotency_key(key))


def get_group(group: str, *, wait: Seconds | None = None, last_seen: str | None = None) -> Request:
    """Return a group.

    With `wait`, return when it is finished, when its ETag differs from `last_seen`, or when the time is over.
    """
    wait = as_seconds("wait", wait)
    target = f"/api/job-groups/{quote(group)}{build_query(('wait', wait), ('last_seen', last_seen))}"
    return Request("GET", target, timeout=timeout_for(wait))


def get_progress(group: str, *, wait: Seconds | None = None, cursor: str | None = None) -> Request:
    """Return the progress of a group.

    With `wait`, return when a member has started or ended since `cursor`, or when the time is over.
    """
    wait = as_seconds("wait", wait)
    target = f"/api/job-groups/{quote(group)}/progress{build_query(('wait', wait), ('cursor', cursor))}"
    return Request("GET", target, timeout=timeout_for(wait))


def close_group(group: str) -> Request:
    """Close a group to new members."""
    return Request("POST", f"/api/job-groups/{quote(group)}/close")


def cancel_group(group: str, *, wait: Seconds | None = None) -> Request:
    """Cancel a group. Return when its members have ended, or after `wait`."""
    target = f"/api/job-groups/{quote(group)}/cancel{build_query(('wait', as_seconds('wait', wait)))}"
    return Request("POST", target, timeout=None)


def preview_cancel_group(group: str) -> Request:
    """Return the jobs that a cancel of the group would cancel, without a change."""
    return Request("POST", f"/api/job-groups/{quote(group)}/cancel{build_query(('dry_run', True))}")


def rewind_group(group: str, *, dry_run: bool = False, key: str | None = None) -> Request:
    """Rewind the members that have not succeeded. With `dry_run`, change nothing."""
    target = f"/api/job-groups/{quote(group)}/rewind{build_query(('dry_run', dry_run or None))}"
    return Request("POST", target, key=as_idempotency_key(key), timeout=None)

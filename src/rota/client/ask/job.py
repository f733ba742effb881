"""Jobs: submit, look, wait, cancel, edit, move, rewind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rota.client.ask import Ask, patience_for, query, quote
from rota.client.ask.given import in_form, key_of, listed, mapped, seconds, words
from rota.errors import within

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Unpack

    from rota.client.ask import Json
    from rota.client.ask.wanted import Around, Command, Edit, Group, Job, JobOptions, Seconds

ACTIVE = ("QUEUED", "WAITING_ON_DEPS", "WAITING_ON_LOCKS", "RUNNING")
TERMINAL = ("COMPLETED", "FAILED", "SKIPPED", "CANCELLED", "BLOCKED_BY_DEPENDENCY")


def submit_job(command: Command = (), *, key: str | None = None, **options: Unpack[JobOptions]) -> Ask:
    """A job: a command with its arguments, or one that a template brings. With the same `key` it is stored once."""
    asked = {"command": words(command), **options} if command else options
    return Ask("POST", "/api/jobs", body=job_body(asked), key=key_of(key))


def submit_batch(
    jobs: Iterable[Job], *, group: Group | None = None, key: str | None = None, **around: Unpack[Around]
) -> Ask:
    """Jobs, all or none, which can name each other by their `local` names; with `group`, as members of a new one."""
    return Ask("POST", "/api/jobs/batch", body=_batch(jobs, group, around), key=key_of(key))


def rehearse_batch(
    jobs: Iterable[Job], *, group: Group | None = None, format: str = "json", **around: Unpack[Around]  # noqa: A002
) -> Ask:  # fmt: skip
    """What would come of a batch, with the graph of it as `dag` or `json`; nothing does."""
    target = f"/api/jobs/batch{query(('dry_run', True), ('format', format))}"
    return Ask("POST", target, body=_batch(jobs, group, around), key=key_of(None))


def _batch(jobs: Iterable[Job], group: Group | None, around: Around) -> Json:
    body: Json = {**around, "jobs": [_member(n, job) for n, job in enumerate(listed("jobs", jobs))]}
    return body if group is None else {"group": mapped("group", group), **body}


def _member(n: int, job: object) -> Json:
    where = f"$.jobs[{n}]"
    with within(where, "$.job"):
        fields = mapped("job", job)
    with within(where, "$"):
        return job_body(fields)


def job_body(asked: Mapping[str, object]) -> Json:
    """As the API takes it: a job or a key by itself is one to come after, or to hold alone."""
    body = in_form(mapped("job", asked))
    for field, name in (("after", "job"), ("locks", "key")):
        if body.get(field) is not None:
            body[field] = [{name: each} if isinstance(each, str) else each for each in body[field]]
    return body


def list_jobs(
    *, status: Sequence[str] = (), name: str | None = None, type: str | None = None,  # noqa: A002
    flow: str | None = None, phase: str | None = None, target: str | None = None, group: str | None = None,
    limit: int | None = None, cursor: str | None = None,
) -> Ask:  # fmt: skip
    """Jobs: first those that are active, in queue order, then those that have ended, the latest first."""
    asked = query(
        ("status", listed("status", status)), ("name", name), ("type", type), ("flow", flow), ("phase", phase),
        ("target", target), ("group", group), ("limit", limit), ("cursor", cursor),
    )  # fmt: skip
    return Ask("GET", f"/api/jobs{asked}")


def get_job(job: str, *, wait: Seconds | None = None, seen: str | None = None) -> Ask:
    """A job; with `wait` the last of its chain, when that has ended (or its status is no longer `seen`) or the seconds
    are over."""
    wait = seconds("wait", wait)
    target = f"/api/jobs/{quote(job)}{query(('wait', wait), ('seen', seen))}"
    return Ask("GET", target, patience=patience_for(wait))


def why_job(job: str) -> Ask:
    """Why it has not started."""
    return Ask("GET", f"/api/jobs/{quote(job)}/why")


def cancel_job(job: str) -> Ask:
    """Answered when it is gone: its own time to end, so no patience of ours."""
    return Ask("POST", f"/api/jobs/{quote(job)}/cancel", patience=None)


def rewind_job(job: str, *, key: str | None = None) -> Ask:
    """It and everything downstream of it goes back into the queue. A large set takes its time."""
    return Ask("POST", f"/api/jobs/{quote(job)}/rewind", key=key_of(key), patience=None)


def edit_job(job: str, /, **changes: Unpack[Edit]) -> Ask:
    """Change what a job that waits was asked for."""
    return Ask("PATCH", f"/api/jobs/{quote(job)}", body=job_body(changes))


def move_job(
    job: str, *, first: bool = False, last: bool = False, to: int | None = None, before: str | None = None,
    after: str | None = None,
) -> Ask:  # fmt: skip
    """Another place in the queue: one of these."""
    asked = {"first": first or None, "last": last or None, "to": to, "before": before, "after": after}
    body = {name: value for name, value in asked.items() if value is not None}
    return Ask("POST", f"/api/jobs/{quote(job)}/move", body=body)

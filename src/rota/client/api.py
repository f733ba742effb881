"""One thin function for each endpoint: what to send, and nothing else."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence

from rota.client.session import Session
from rota.client.transport import PATIENCE, Answer, Stream, quote
from rota.errors import Deferred

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Json = dict[str, Any]

ACTIVE = ("QUEUED", "WAITING_ON_DEPS", "WAITING_ON_LOCKS", "RUNNING")
TERMINAL = ("COMPLETED", "FAILED", "SKIPPED", "CANCELLED", "BLOCKED_BY_DEPENDENCY")

GROUP_OVER = ("COMPLETED", "CANCELLED", "PARTIAL")
ENDED = (*TERMINAL, "PARTIAL")
"""Of jobs and groups alike."""

MOST_LISTED = 1000
"""The most that a page can have."""
LOG_PIECE = 1 << 20
"""Bytes of a log asked for at a time, so that no log is ever in memory whole."""


def _query(pairs: Iterable[tuple[str, object]]) -> str:
    shown = "&".join(f"{name}={quote(str(value))}" for name, value in pairs if value is not None)
    return f"?{shown}" if shown else ""


def _all(session: Session, path: str, name: str, pairs: Iterable[tuple[str, object]] = ()) -> list[Json]:
    """All pages of a list."""
    found: list[Json] = []
    cursor: str | None = None
    while True:
        page = session.ask("GET", f"{path}{_query((*pairs, ('limit', MOST_LISTED), ('cursor', cursor)))}").json()
        found += page[name]
        cursor = page.get("next")
        if cursor is None:
            return found


def _once() -> Mapping[str, str]:
    """A key, for what is to be done once whatever happens to the connection: a repeat carries the same one."""
    return {"Idempotency-Key": os.urandom(16).hex()}


def submit(session: Session, request: Json) -> Json:
    """Submit once, whatever happens to the connection: each call has a key, and a repeat carries the same one."""
    headers = {"Idempotency-Key": os.urandom(16).hex()}
    try:
        answer: Json = session.ask("POST", "/api/jobs", body=request, headers=headers).json()
    except Deferred as refusal:  # an answer like the others, which HTTP says by a status of its own
        answer = {"result": "deferred", "job": None, "warning": refusal.message}
        if refusal.depth is not None:
            answer["depth"] = refusal.depth
    return answer


def apply(session: Session, request: Json) -> Json:
    """A whole batch, once, whatever happens to the connection."""
    headers = {"Idempotency-Key": os.urandom(16).hex()}
    try:
        answer: Json = session.ask("POST", "/api/jobs/batch", body=request, headers=headers).json()
    except Deferred as refusal:
        answer = {"result": "deferred", "group": None, "jobs": [], "warning": refusal.message}
        if refusal.depth is not None:
            answer["depth"] = refusal.depth
    return answer


def rehearse(session: Session, request: Json, *, form: str) -> Json:
    """What would come of a batch, with the graph of it as `dag` or `json`; nothing does."""
    target = f"/api/jobs/batch{_query((('dry_run', 1), ('format', form)))}"
    answer: Json = session.ask("POST", target, body=request).json()
    return answer


def progress(session: Session, group: str, *, wait: float, seen: str | None) -> Json:
    """How it gets on: at once when something has ended or begun since `seen`, else when the seconds are over."""
    target = f"/api/job-groups/{quote(group)}/progress{_query((('wait', f'{wait:g}'), ('seen', seen)))}"
    answer: Json = session.ask("GET", target, timeout=PATIENCE + wait).json()
    return answer


def jobs(
    session: Session,
    *,
    statuses: Sequence[str] = (),
    only: Iterable[tuple[str, str | None]] = (),
    limit: int | None = None,
    cursor: str | None = None,
) -> Json:
    """One page of jobs; `only` has the name, type, flow, phase or target they must have."""
    pairs = [*(("status", status) for status in statuses), *only, ("limit", limit), ("cursor", cursor)]
    answer: Json = session.ask("GET", f"/api/jobs{_query(pairs)}").json()
    return answer


def job_target(job: str, *, wait: float | None = None, seen: str | None = None) -> str:
    seconds = None if wait is None else f"{wait:g}"
    return f"/api/jobs/{quote(job)}{_query((('wait', seconds), ('seen', seen)))}"


def job(session: Session, job: str, *, wait: float | None = None, seen: str | None = None) -> Json:
    """The job; with `wait`, when it has ended (or its status is no longer `seen`) or the seconds are over."""
    target = job_target(job, wait=wait, seen=seen)
    answer: Json = session.ask("GET", target, timeout=PATIENCE + (wait or 0)).json()
    return answer


def ended_job(session: Session, job_id: str) -> Json:
    """The job when it has ended, however long that takes."""
    while True:
        answer = job(session, job_id, wait=30)
        if answer["status"] in TERMINAL:
            return answer


def next_in_chain(session: Session, job_id: str) -> Json | None:
    """The job that retried this one; none while it is the last of its chain."""
    found = job(session, job_id, wait=0)
    if found["id"] == job_id:
        return None
    while found["retry_of"] not in (None, job_id):
        found = job(session, found["retry_of"])
    return found


def cancel(session: Session, job: str) -> Json:
    """Answered when the job is gone: its own time to end, so no timeout of ours."""
    answer: Json = session.ask("POST", f"/api/jobs/{quote(job)}/cancel", timeout=None).json()
    return answer


def retry(session: Session, what: str) -> Json:
    """Once, whatever happens to the connection: a repeat carries the same key."""
    headers = {"Idempotency-Key": os.urandom(16).hex()}
    answer: Json = session.ask("POST", f"/api/job-runs/{quote(what)}/retry", headers=headers).json()
    return answer


def rewind(session: Session, job: str) -> Json:
    """Once, whatever happens to the connection: a repeat carries the same key. A large set takes its time."""
    headers = {"Idempotency-Key": os.urandom(16).hex()}
    answer: Json = session.ask("POST", f"/api/jobs/{quote(job)}/rewind", headers=headers, timeout=None).json()
    return answer


def groups(session: Session, *, everything: bool) -> list[Json]:
    """All of them, or those that are not over; the newest first."""
    found: list[Json] = []
    cursor: str | None = None
    while True:
        pairs = (("open", None if everything else 1), ("cursor", cursor), ("limit", 1000))
        page = session.ask("GET", f"/api/job-groups{_query(pairs)}").json()
        found += page["groups"]
        cursor = page.get("next")
        if cursor is None:
            return found


def is_group(name: str) -> bool:
    return name.startswith("group-")


def group_target(group: str, *, wait: float | None = None, seen: str | None = None) -> str:
    seconds = None if wait is None else f"{wait:g}"
    return f"/api/job-groups/{quote(group)}{_query((('wait', seconds), ('seen', seen)))}"


def group(session: Session, group: str, *, wait: float | None = None, seen: str | None = None) -> Json:
    """With `wait`, when it is over (or its tag is no longer `seen`) or the seconds are over."""
    target = group_target(group, wait=wait, seen=seen)
    answer: Json = session.ask("GET", target, timeout=PATIENCE + (wait or 0)).json()
    return answer


def add_group(session: Session, wanted: Json) -> Json:
    answer: Json = session.ask("POST", "/api/job-groups", body=wanted).json()
    return answer


def close_group(session: Session, group: str) -> Json:
    answer: Json = session.ask("POST", f"/api/job-groups/{quote(group)}/close").json()
    return answer


def cancel_group(session: Session, group: str) -> Json:
    """Answered when its members are gone, or after a while."""
    answer: Json = session.ask("POST", f"/api/job-groups/{quote(group)}/cancel", timeout=None).json()
    return answer


def rewind_group(session: Session, group: str) -> Json:
    """Once, whatever happens to the connection: a repeat carries the same key."""
    headers = {"Idempotency-Key": os.urandom(16).hex()}
    target = f"/api/job-groups/{quote(group)}/rewind"
    answer: Json = session.ask("POST", target, headers=headers, timeout=None).json()
    return answer


def edit(session: Session, job: str, changes: Json) -> Json:
    answer: Json = session.ask("PATCH", f"/api/jobs/{quote(job)}", body=changes).json()
    return answer


def move(session: Session, job: str, where: Json) -> Json:
    answer: Json = session.ask("POST", f"/api/jobs/{quote(job)}/move", body=where).json()
    return answer


def reorder(session: Session, order: Sequence[str]) -> Json:
    answer: Json = session.ask("POST", "/api/queue/reorder", body={"order": list(order)}).json()
    return answer


def locks(session: Session, *, key: str | None = None) -> list[Json]:
    """All that are held or wanted, or one."""
    return _all(session, "/api/locks", "locks", [("key", key)])


def runs(session: Session, job: str) -> list[Json]:
    """All runs of a job, the newest first."""
    return _all(session, f"/api/jobs/{quote(job)}/runs", "runs")


def run(session: Session, run: str) -> Json:
    answer: Json = session.ask("GET", f"/api/job-runs/{quote(run)}").json()
    return answer


def why(session: Session, job: str) -> Json:
    answer: Json = session.ask("GET", f"/api/jobs/{quote(job)}/why").json()
    return answer


def graph(
    session: Session, *, form: str, everything: bool = False, job: str | None = None, max_depth: int | None = None,
    wait: float | None = None, seen: str | None = None,
) -> Answer:  # fmt: skip
    """As `dag` or `json`; with `wait`, when its tag is no longer `seen`, else, when the seconds are over, 304."""
    pairs = (("format", form), ("all", 1 if everything else None), ("job", job), ("max_depth", max_depth))
    seconds = None if wait is None else f"{wait:g}"
    headers = None if seen is None else {"If-None-Match": seen}
    target = f"/api/graph{_query((*pairs, ('wait', seconds)))}"
    return session.ask("GET", target, headers=headers, timeout=PATIENCE + (wait or 0))


def logs(session: Session, job: str, *, run: str | None = None) -> Json:
    """Path and size of each stream, of the job as it is now or of one of its runs."""
    answer: Json = session.ask("GET", f"/api/jobs/{quote(job)}/logs{_query((('run', run),))}").json()
    return answer


def log_part(
    session: Session, job: str, stream: str, offset: int, limit: int, *, run: str | None = None
) -> bytes:  # fmt: skip
    query = _query((("offset", offset), ("limit", limit), ("run", run)))
    return session.ask("GET", f"/api/jobs/{quote(job)}/logs/{quote(stream)}{query}").body


def log(
    session: Session, job: str, stream: str, *, offset: int = 0, run: str | None = None
) -> Iterator[bytes]:  # fmt: skip
    """What the log holds now, from `offset`, piece by piece."""
    while True:
        piece = log_part(session, job, stream, offset, LOG_PIECE, run=run)
        if piece:
            yield piece
        offset += len(piece)
        if len(piece) < LOG_PIECE:
            return


def follow_log(session: Session, job: str, stream: str, *, offset: int = 0) -> Stream:
    """The log from `offset` to the job's end, as it is written."""
    query = _query((("offset", offset), ("follow", 1)))
    return session.open("GET", f"/api/jobs/{quote(job)}/logs/{quote(stream)}{query}", timeout=None)


def pools(session: Session) -> Json:
    answer: Json = session.ask("GET", "/api/pools").json()
    return answer


def set_pool(session: Session, name: str, size: int) -> None:
    # Pool names hold slashes (`type/story`), and the route takes them as they are.
    session.ask("PUT", f"/api/pools/{quote(name, keep='/')}", body={"size": size})


def put_artifact(session: Session, wanted: Json) -> Json:
    answer: Json = session.ask("POST", "/api/artifacts", body=wanted).json()
    return answer


def artifacts(session: Session) -> Json:
    answer: Json = session.ask("GET", "/api/artifacts").json()
    return answer


def artifact(session: Session, name: str, cwd: str) -> Json:
    answer: Json = session.ask("GET", f"/api/artifacts/{quote(name, keep='/')}{_query([('cwd', cwd)])}").json()
    return answer


def remove_artifact(session: Session, name: str, cwd: str) -> Json:
    answer: Json = session.ask("DELETE", f"/api/artifacts/{quote(name, keep='/')}{_query([('cwd', cwd)])}").json()
    return answer


def tick(session: Session, *, dry_run: bool = False, batch: int | None = None) -> Json:
    body = {"dry_run": dry_run, "batch": batch}
    answer: Json = session.ask("POST", "/api/scheduler/tick", body=body).json()
    return answer


def pause(session: Session, scope: str) -> Json:
    answer: Json = session.ask("POST", "/api/scheduler/pause", body={"scope": scope}).json()
    return answer


def resume(session: Session, scope: str) -> Json:
    answer: Json = session.ask("POST", "/api/scheduler/resume", body={"scope": scope}).json()
    return answer


def clear(session: Session, scope: str) -> Json:
    """Answered when it is done, however long that takes."""
    answer: Json = session.ask("POST", "/api/scheduler/clear", body={"scope": scope}, timeout=None).json()
    return answer


def display(session: Session) -> Json:
    """What the home's configuration says of `rota list` and `rota show`."""
    answer: Json = session.ask("GET", "/api/display").json()
    return answer


def reserve(session: Session, request: Json) -> Stream:
    """Reserve a place that hangs on this connection; its stream is the answer."""
    return session.open("POST", "/api/slots?stream=1", body=request, timeout=None)


def attend(session: Session, slot: str, offsets: Mapping[str, int], *, wait: str | None = None) -> Stream:
    """Come back to it, with what of its output is here already."""
    return session.open(
        "GET",
        f"/api/slots/{quote(slot)}/stream{_query((*offsets.items(), ('attend', 1), ('wait', wait)))}",
        timeout=None,
    )


def slots(session: Session) -> Json:
    answer: Json = session.ask("GET", "/api/slots").json()
    return answer


def slot(session: Session, slot: str, *, wait: float | None = None) -> Json:
    """With `wait`, when it has ended or the seconds are over."""
    target = f"/api/slots/{quote(slot)}{_query((('wait', wait),))}"
    answer: Json = session.ask("GET", target, timeout=PATIENCE + (wait or 0)).json()
    return answer


def begin_cancel_slot(session: Session, slot: str) -> Stream:
    """Answered when it is gone."""
    return session.open("POST", f"/api/slots/{quote(slot)}/cancel", timeout=None)


def signal_slot(session: Session, slot: str, name: str) -> None:
    session.ask("POST", f"/api/slots/{quote(slot)}/signal", body={"signal": name})


def add_template(session: Session, template: Json) -> Json:
    answer: Json = session.ask("POST", "/api/job-templates", body=template, headers=_once()).json()
    return answer


def templates(session: Session, *, archived: bool = False) -> Json:
    """All of them, by name; `archived` ones too, behind the one in use that has their name now."""
    found = _all(session, "/api/job-templates", "templates", (("all", 1 if archived else None),))
    newest_first = reversed(found)
    return {"templates": sorted(newest_first, key=lambda each: (each["name"], each["archived_at"] is not None))}


def template(session: Session, template: str) -> Json:
    answer: Json = session.ask("GET", f"/api/job-templates/{quote(template)}").json()
    return answer


def change_template(session: Session, template: str, changes: Json, *, whole: bool) -> Json:
    """Those fields, or all of it."""
    method = "PUT" if whole else "PATCH"
    answer: Json = session.ask(method, f"/api/job-templates/{quote(template)}", body=changes).json()
    return answer


def archive_template(session: Session, template: str, *, back: bool = False) -> Json:
    """Or take it back out."""
    verb = "unarchive" if back else "archive"
    answer: Json = session.ask("POST", f"/api/job-templates/{quote(template)}/{verb}").json()
    return answer


def breakers(session: Session) -> Json:
    answer: Json = session.ask("GET", "/api/breakers").json()
    return answer


def reset_breaker(session: Session, key: str) -> Json:
    answer: Json = session.ask("POST", f"/api/breakers/{quote(key, keep='/')}/reset").json()
    return answer


def webhooks(session: Session) -> Json:
    answer: Json = session.ask("GET", "/api/webhooks").json()
    return answer


def add_webhook(session: Session, wanted: Json) -> Json:
    answer: Json = session.ask("POST", "/api/webhooks", body=wanted).json()
    return answer


def webhook(session: Session, webhook: str, *, secret: bool = False) -> Json:
    query = _query((("secret", 1 if secret else None),))
    answer: Json = session.ask("GET", f"/api/webhooks/{quote(webhook)}{query}").json()
    return answer


def webhook_secret(session: Session) -> Json:
    """What messages to the URLs of jobs are signed with."""
    answer: Json = session.ask("GET", "/api/webhooks/secret").json()
    return answer


def remove_webhook(session: Session, webhook: str) -> Json:
    answer: Json = session.ask("DELETE", f"/api/webhooks/{quote(webhook)}").json()
    return answer


def change_webhook(session: Session, webhook: str, action: str, body: Json | None = None) -> Json:
    """`enable`, `disable`, `rotate` or `test` it; a test takes as long as the receiver may."""
    answer: Json = session.ask("POST", f"/api/webhooks/{quote(webhook)}/{action}", body=body, timeout=None).json()
    return answer


def deliveries(session: Session, pairs: Iterable[tuple[str, object]]) -> Json:
    answer: Json = session.ask("GET", f"/api/webhook-deliveries{_query(pairs)}").json()
    return answer


def redeliver(session: Session, delivery: str) -> Json:
    answer: Json = session.ask("POST", f"/api/webhook-deliveries/{quote(delivery)}/redeliver").json()
    return answer


def schedules(session: Session) -> list[Json]:
    found: list[Json] = []
    cursor: str | None = None
    while True:
        page = session.ask("GET", f"/api/schedules{_query((('limit', 1000), ('cursor', cursor)))}").json()
        found += page["schedules"]
        cursor = page.get("next")
        if cursor is None:
            return found


def add_schedule(session: Session, wanted: Json) -> Json:
    answer: Json = session.ask("POST", "/api/schedules", body=wanted).json()
    return answer


def schedule(session: Session, name: str) -> Json:
    answer: Json = session.ask("GET", f"/api/schedules/{quote(name)}").json()
    return answer


def change_schedule(session: Session, name: str, changes: Json) -> Json:
    answer: Json = session.ask("PATCH", f"/api/schedules/{quote(name)}", body=changes).json()
    return answer


def remove_schedule(session: Session, name: str) -> Json:
    answer: Json = session.ask("DELETE", f"/api/schedules/{quote(name)}").json()
    return answer


def switch_schedule(session: Session, name: str, action: str) -> Json:
    """`enable` or `disable`."""
    answer: Json = session.ask("POST", f"/api/schedules/{quote(name)}/{action}").json()
    return answer


def trigger_schedule(session: Session, name: str, params: Json) -> Json:
    headers = {"Idempotency-Key": os.urandom(16).hex()}
    target = f"/api/schedules/{quote(name)}/trigger"
    answer: Json = session.ask("POST", target, body={"params": params}, headers=headers).json()
    return answer


def next_fires(session: Session, name: str, *, start: str | None, count: int | None) -> Json:
    query = _query((("from", start), ("count", count)))
    answer: Json = session.ask("GET", f"/api/schedules/{quote(name)}/next{query}").json()
    return answer


def scheduler(session: Session) -> Json:
    answer: Json = session.ask("GET", "/api/scheduler").json()
    return answer


def health(session: Session, *, timeout: float | None = PATIENCE) -> Json:
    """That it answers at all; this asks nothing of its store."""
    answer: Json = session.ask("GET", "/health", timeout=timeout).json()
    return answer


def gc(session: Session, *, days: int | None, dry_run: bool) -> Json:
    """Answered when it is done, however long that takes."""
    body = {"days": days, "dry_run": dry_run}
    answer: Json = session.ask("POST", "/api/scheduler/gc", body=body, timeout=None).json()
    return answer


def gc_progress(session: Session) -> Json:
    answer: Json = session.ask("GET", "/api/scheduler/gc").json()
    return answer


def stop(session: Session, *, grace: str | None = None, kill: bool = False) -> None:
    body = {} if grace is None else {"grace": grace}
    session.ask("POST", "/api/scheduler/stop", body={**body, "kill": True} if kill else body)


def reload(session: Session) -> None:
    session.ask("POST", "/api/scheduler/reload", body={})

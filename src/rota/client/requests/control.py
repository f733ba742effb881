"""Requests for the scheduler: status, pools, breakers, control and events."""

from __future__ import annotations

from collections.abc import Sequence

from rota.client.requests import RESPONSE_TIMEOUT, Request, build_query, quote, timeout_for
from rota.client.requests.arguments import as_duration, as_list, as_seconds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rota.client.requests.options import Duration, Seconds

STREAM = "text/event-stream"


def get_scheduler() -> Request:
    """Return the mode, queue depth and pools, and the reason if nothing is running."""
    return Request("GET", "/api/scheduler")


def get_health(*, timeout: float | None = RESPONSE_TIMEOUT) -> Request:
    """Check that the scheduler answers. The check does not use its store."""
    return Request("GET", "/health", timeout=timeout)


def get_readiness() -> Request:
    """Check that the scheduler can start jobs. The response is 503 while it cannot."""
    return Request("GET", "/ready")


def get_metrics() -> Request:
    """Return the metrics in the Prometheus text format."""
    return Request("GET", "/metrics")


def get_display() -> Request:
    """Return the configuration of `rota list` and `rota show`."""
    return Request("GET", "/api/display")


def list_pools() -> Request:
    """List pools that have a limit or are in use."""
    return Request("GET", "/api/pools")


def set_pool(pool: str, size: int) -> Request:
    """Set the size of a pool; -1 is unlimited."""
    # Pool names contain slashes (`type/story`), and the route accepts them unquoted.
    return Request("PUT", f"/api/pools/{quote(pool, safe='/')}", body={"size": size})


def list_breakers(*, limit: int | None = None, cursor: str | None = None) -> Request:
    """List types and targets with recent failures."""
    return Request("GET", f"/api/breakers{build_query(('limit', limit), ('cursor', cursor))}")


def reset_breaker(key_or_job: str) -> Request:
    """Close a breaker, or clear the failed starts of a job."""
    return Request("POST", f"/api/breakers/{quote(key_or_job, safe='/')}/reset")


def pause(scope: str = "global") -> Request:
    """Pause everything or one scope. Running jobs continue; no new jobs start."""
    return Request("POST", "/api/scheduler/pause", body={"scope": scope})


def resume(scope: str = "global") -> Request:
    """Resume everything or one scope."""
    return Request("POST", "/api/scheduler/resume", body={"scope": scope})


def clear(scope: str = "global", *, up_to: str | None = None) -> Request:
    """Cancel waiting jobs, of everything or of one scope. Running jobs continue.

    Returns when it is done, however long that takes. Jobs submitted after job `up_to` are kept.
    """
    options = {} if up_to is None else {"up_to": up_to}
    return Request("POST", "/api/scheduler/clear", body={"scope": scope, **options}, timeout=None)


def preview_clear(scope: str = "global", *, limit: int | None = None) -> Request:
    """Return the jobs that a clear would cancel and their number, without a change. `limit` limits the list."""
    options = {} if limit is None else {"limit": limit}
    return Request("POST", "/api/scheduler/clear", body={"scope": scope, "dry_run": True, **options}, timeout=None)


def tick(*, dry_run: bool = False, batch: int | None = None) -> Request:
    """Run a tick now: evaluate everything, and start up to `batch` jobs. With `dry_run`, only return what would
    start."""
    return Request("POST", "/api/scheduler/tick", body={"dry_run": dry_run, "batch": batch})


def collect_garbage(*, days: int | None = None, dry_run: bool = False) -> Request:
    """Remove jobs that ended more than `days` days ago, with their files. Returns when it is done, however long that
    takes."""
    return Request("POST", "/api/scheduler/gc", body={"days": days, "dry_run": dry_run}, timeout=None)


def get_gc_status() -> Request:
    """Return the progress of a running collection and the result of the last one."""
    return Request("GET", "/api/scheduler/gc")


def reload() -> Request:
    """Reload the configuration."""
    return Request("POST", "/api/scheduler/reload")


def stop(*, grace: Duration | None = None, kill: bool = False) -> Request:
    """Shut down the scheduler. Running jobs have `grace` to finish; with `kill`, the remaining ones are ended."""
    body = {} if grace is None else {"grace": as_duration(grace)}
    return Request("POST", "/api/scheduler/stop", body={**body, "kill": True} if kill else body)


def list_events(
    *,
    since: int | None = None,
    job: Sequence[str] = (),
    group: str | None = None,
    kind: Sequence[str] = (),
    type: str | None = None,  # noqa: A002
    flow: str | None = None,
    limit: int | None = None,
    wait: Seconds | None = None,
) -> Request:
    """List stored events, oldest first. `next` is the `since` of the next page.

    With `wait`, return when an event happens or when the time is over.
    """
    wait = as_seconds("wait", wait)
    query = build_query(
        ("since", since),
        ("job", as_list("job", job)),
        ("group", group),
        ("kind", as_list("kind", kind)),
        ("type", type),
        ("flow", flow),
        ("limit", limit),
        ("wait", wait),
        ("format", "json"),
    )
    return Request("GET", f"/api/events{query}", timeout=timeout_for(wait))


def follow_events(
    *,
    last_event_id: str | None = None,
    since: int | None = None,
    job: Sequence[str] = (),
    group: str | None = None,
    kind: Sequence[str] = (),
    type: str | None = None,  # noqa: A002
    flow: str | None = None,
) -> Request:
    """Stream events after the message with the id `last_event_id`, after the event `since`, or from now on.

    The stream sends a keep-alive at least every 15 seconds.
    """
    query = build_query(
        ("since", since),
        ("job", as_list("job", job)),
        ("group", group),
        ("kind", as_list("kind", kind)),
        ("type", type),
        ("flow", flow),
    )
    headers = {"Accept": STREAM} if last_event_id is None else {"Accept": STREAM, "Last-Event-ID": last_event_id}
    return Request("GET", f"/api/events{query}", headers=headers)

"""The scheduler itself: how it is, its pools and breakers, and what it is told."""

from __future__ import annotations

from rota.client.ask import PATIENCE, Ask, query, quote
from rota.client.ask.given import duration

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rota.client.ask.wanted import Duration


def get_scheduler() -> Ask:
    """Its mode, depth and pools, and why nothing starts if nothing does."""
    return Ask("GET", "/api/scheduler")


def health(*, patience: float | None = PATIENCE) -> Ask:
    """That it answers at all; this asks nothing of its store."""
    return Ask("GET", "/health", patience=patience)


def ready() -> Ask:
    """Whether it can do its work; Unavailable while it cannot."""
    return Ask("GET", "/ready")


def get_metrics() -> Ask:
    """What a Prometheus would be told."""
    return Ask("GET", "/metrics")


def get_display() -> Ask:
    """What the home's configuration says of `rota list` and `rota show`."""
    return Ask("GET", "/api/display")


def list_pools() -> Ask:
    """Pools that have a limit or are in use."""
    return Ask("GET", "/api/pools")


def set_pool(pool: str, size: int) -> Ask:
    """Its size; -1 is no limit."""
    # Pool names hold slashes (`type/story`), and the route takes them as they are.
    return Ask("PUT", f"/api/pools/{quote(pool, keep='/')}", body={"size": size})


def list_breakers(*, limit: int | None = None, cursor: str | None = None) -> Ask:
    """Types and targets with failures that count."""
    return Ask("GET", f"/api/breakers{query(('limit', limit), ('cursor', cursor))}")


def reset_breaker(key: str) -> Ask:
    """Close it, or forget the failed starts of a job."""
    return Ask("POST", f"/api/breakers/{quote(key, keep='/')}/reset")


def pause(scope: str = "global") -> Ask:
    """Nothing new starts, of everything or of one pool."""
    return Ask("POST", "/api/scheduler/pause", body={"scope": scope})


def resume(scope: str = "global") -> Ask:
    """It starts again."""
    return Ask("POST", "/api/scheduler/resume", body={"scope": scope})


def clear(scope: str = "global") -> Ask:
    """Cancel what waits, of everything or of one pool; what runs goes on. Answered when it is done, however long that
    takes."""
    return Ask("POST", "/api/scheduler/clear", body={"scope": scope}, patience=None)


def tick(*, dry_run: bool = False, batch: int | None = None) -> Ask:
    """Look at everything now and start what may start, at most so many; or only say what would."""
    return Ask("POST", "/api/scheduler/tick", body={"dry_run": dry_run, "batch": batch})


def collect(*, days: int | None = None, dry_run: bool = False) -> Ask:
    """Remove what ended so long ago, with its files. Answered when it is done, however long that takes."""
    return Ask("POST", "/api/scheduler/gc", body={"days": days, "dry_run": dry_run}, patience=None)


def get_collection() -> Ask:
    """How far it is, and what the last one did."""
    return Ask("GET", "/api/scheduler/gc")


def reload() -> Ask:
    """Take up the configuration now."""
    return Ask("POST", "/api/scheduler/reload")


def stop(*, grace: Duration | None = None, kill: bool = False) -> Ask:
    """Let what runs end within `grace`; with `kill`, end the rest."""
    body = {} if grace is None else {"grace": duration(grace)}
    return Ask("POST", "/api/scheduler/stop", body={**body, "kill": True} if kill else body)

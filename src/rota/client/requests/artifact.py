"""Requests for artifacts."""

from __future__ import annotations

from rota.client.requests import Request, build_query, quote
from rota.client.requests.arguments import as_idempotency_key

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rota.client.requests.options import Path


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

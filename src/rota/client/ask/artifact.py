"""Artifacts that jobs and people put."""

from __future__ import annotations

from rota.client.ask import Ask, query, quote
from rota.client.ask.given import key_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rota.client.ask.wanted import Path


def put_artifact(
    artifact: str, *, payload: str | None = None, job: str | None = None, cwd: Path | None = None,
    key: str | None = None,
) -> Ask:  # fmt: skip
    """Say that it is there; of a running job, once that is over."""
    asked = {"artifact": artifact, "payload": payload, "job": job, "cwd": cwd}
    body = {name: value for name, value in asked.items() if value is not None}
    return Ask("POST", "/api/artifacts", body=body, key=key_of(key))


def list_artifacts(*, limit: int | None = None, cursor: str | None = None) -> Ask:
    """What was put, without the payloads."""
    return Ask("GET", f"/api/artifacts{query(('limit', limit), ('cursor', cursor))}")


def get_artifact(artifact: str, *, cwd: Path | None = None) -> Ask:
    """One, with its payload."""
    return Ask("GET", f"/api/artifacts/{quote(artifact, keep='/')}{query(('cwd', cwd))}")


def remove_artifact(artifact: str, *, cwd: Path | None = None) -> Ask:
    """Take back what was put."""
    return Ask("DELETE", f"/api/artifacts/{quote(artifact, keep='/')}{query(('cwd', cwd))}")

"""Artifacts that jobs and people put."""

from __future__ import annotations

from rota.client.ask import Ask, query, quote


def put_artifact(
    artifact: str, *, payload: str | None = None, job: str | None = None, cwd: str | None = None
) -> Ask:  # fmt: skip
    """Say that it is there; of a running job, once that is over."""
    asked = {"artifact": artifact, "payload": payload, "job": job, "cwd": cwd}
    return Ask("POST", "/api/artifacts", body={name: value for name, value in asked.items() if value is not None})


def list_artifacts() -> Ask:
    """What was put."""
    return Ask("GET", "/api/artifacts")


def get_artifact(artifact: str, *, cwd: str | None = None) -> Ask:
    """One, with its payload."""
    return Ask("GET", f"/api/artifacts/{quote(artifact, keep='/')}{query(('cwd', cwd))}")


def remove_artifact(artifact: str, *, cwd: str | None = None) -> Ask:
    """Take back what was put."""
    return Ask("DELETE", f"/api/artifacts/{quote(artifact, keep='/')}{query(('cwd', cwd))}")

"""`artifact put`: declare that an artifact exists, for a running job or by hand."""

from __future__ import annotations

import msgspec

from rota.artifacts.schemas import ArtifactView
from rota.db.artifacts import PutArtifact, artifact_scope
from rota.engine.transaction import Transaction
from rota.errors import Conflict, InvalidInput, NotFound, error_path
from rota.ids import JobId, RunId, format_job_id
from rota.kernel.artifacts import Artifact, parse_artifact
from rota.kernel.facts import FileExists
from rota.kernel.status import STARTED
from rota.schema_types import JobIdText

MAX_PAYLOAD_BYTES = 1 << 20


class PutRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An artifact to put."""

    artifact: str
    """The artifact as `type:name`."""
    payload: str | None = None
    """Text stored with the artifact for the jobs that need it; only for `custom`."""
    job: JobIdText | None = None
    """The running job that produces it."""
    cwd: str | None = None
    """Directory that resolves a relative path and the repository; with `job`, the default is the job's directory."""


def render_put(put: PutArtifact) -> ArtifactView:
    return ArtifactView(
        artifact=put.artifact,
        scope=put.scope or None,
        payload=put.payload,
        created_at=put.at,
        job=None if put.job is None else format_job_id(put.job),
    )


def parse_put_artifact(request: PutRequest, cwd: str) -> Artifact:
    """Parse an artifact that can be put. Artifacts of other types are observed, so they need no declaration."""
    with error_path(".artifact"):
        artifact = parse_artifact(request.artifact, cwd=cwd)
        if artifact.type not in ("custom", "file"):
            raise InvalidInput(f"{artifact} is observed, so it cannot be put; put custom:<type>:<key> or file:<path>")
    with error_path(".payload"):
        if artifact.type == "file" and request.payload is not None:
            raise InvalidInput(f"{artifact} has its content in the file; only custom:<type>:<key> takes a payload")
        if request.payload is not None and (
            "\x00" in request.payload or len(request.payload.encode()) > MAX_PAYLOAD_BYTES
        ):
            raise InvalidInput(
                f"the payload of {artifact} must be text of at most {MAX_PAYLOAD_BYTES} bytes; put larger things as"
                " file:<path>"
            )
    return artifact


def declare_artifact(
    tx: Transaction, artifact: Artifact, *, payload: str | None, job: JobId | None, repository: str | None, actor: str
) -> ArtifactView:
    """Declare the artifact. One that a running job declares counts when the job ends, and is withdrawn if it fails."""
    number = tx.artifacts.id_of(artifact, repository)
    with error_path(".job"):
        run = None if job is None else _record_product(tx, job, number, artifact)
    if artifact.type == "custom":
        tx.artifacts.put(number, payload, job, tx.now)
    tx.invalidate_facts([FileExists(artifact.name)])
    tx.artifacts.wake_needing([number])
    tx.artifacts.emit_put(str(artifact), job, run, tx.now, actor)
    scope = artifact_scope(artifact, repository)
    return render_put(PutArtifact(artifact=str(artifact), scope=scope, payload=payload, at=tx.now, job=job))


def _record_product(tx: Transaction, job: JobId, number: int, artifact: Artifact) -> RunId:
    """Record the artifact as a product of the job, declared at submit or not; return the job's run."""
    producer = tx.jobs.find(job)
    if producer is None:
        raise tx.jobs.not_found(job)
    if producer.status not in STARTED or producer.run is None:
        raise Conflict(f"{format_job_id(job)} is not running ({producer.status.public}), so it cannot put artifacts")
    tx.artifacts.add_product(producer.chain, number, sequence=None)
    tx.artifacts.record_put(producer.run.id, str(artifact))
    return producer.run.id


def withdraw_artifact(tx: Transaction, artifact: Artifact, *, repository: str | None, actor: str) -> ArtifactView:
    """Withdraw an artifact that was put; jobs that need it wait again."""
    withdrawn = tx.artifacts.withdraw(tx.artifacts.id_of(artifact, repository))
    if withdrawn is None:
        raise NotFound(f"{artifact} was not put; `rota artifact list` shows the artifacts that were put")
    tx.artifacts.emit_put(str(artifact), None, None, tx.now, actor, is_removed=True)
    return render_put(withdrawn)

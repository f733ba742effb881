"""`artifact put`: a job, or a person, declares that something is there."""

from __future__ import annotations

import msgspec

from rota.core.artifact import Artifact, parse_artifact
from rota.core.fact import File
from rota.core.status import STARTED
from rota.engine.work import Work
from rota.errors import Conflict, InvalidInput, NotFound, within
from rota.ids import JobId, RunId, show_job
from rota.store.artifact import Put, scope_of
from rota.wire.artifact import PutForm
from rota.wire.text import JobText

MOST_BYTES = 1 << 20


class PutWanted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An artifact to put."""

    artifact: str
    """As `type:name`."""
    payload: str | None = None
    """Kept with it, for whoever needs it; only of `custom`."""
    job: JobText | None = None
    """The running job that says so."""
    cwd: str | None = None
    """The directory that its path is relative to, and whose repository it belongs to; of a job, that job's."""


def put_form(put: Put) -> PutForm:
    return PutForm(
        artifact=put.artifact,
        scope=put.scope or None,
        payload=put.payload,
        put_at=put.at,
        job=None if put.job is None else show_job(put.job),
    )


def parse_putable(wanted: PutWanted, cwd: str) -> Artifact:
    """The others are seen where they are: nobody has to say so."""
    with within(".artifact"):
        artifact = parse_artifact(wanted.artifact, cwd=cwd)
        if artifact.type not in ("custom", "file"):
            raise InvalidInput(
                f"{artifact} is looked for where it is, not put; put custom:<type>:<key>, or file:<path>"
            )
    with within(".payload"):
        if artifact.type == "file" and wanted.payload is not None:
            raise InvalidInput(f"{artifact} has its content in the file; only custom:<type>:<key> takes a payload")
        if wanted.payload is not None and ("\x00" in wanted.payload or len(wanted.payload.encode()) > MOST_BYTES):
            raise InvalidInput(
                f"the payload of {artifact} must be text of at most {MOST_BYTES} bytes; put larger things as"
                " file:<path>"
            )
    return artifact


def put(
    work: Work, artifact: Artifact, *, payload: str | None, job: JobId | None, repository: str | None, actor: str
) -> PutForm:  # fmt: skip
    """Declared by a running job it counts when the job is over, and is taken back if the job fails."""
    number = work.session.number_of(artifact, repository)
    with within(".job"):
        run = None if job is None else _note(work, job, number, artifact)
    if artifact.type == "custom":
        work.session.put(number, payload, job, work.now)
    work.overlook([File(artifact.name)])
    work.session.stir_needing([number])
    work.session.emit_put(str(artifact), job, run, work.now, actor)
    scope = scope_of(artifact, repository)
    return put_form(Put(artifact=str(artifact), scope=scope, payload=payload, at=work.now, job=job))


def _note(work: Work, job: JobId, number: int, artifact: Artifact) -> RunId:
    """The job makes it, whether or not it said so before; the run that does."""
    found = work.session.job(job)
    if found is None:
        raise work.session.no_such_job(job)
    if found.status not in STARTED or found.run is None:
        raise Conflict(f"{show_job(job)} is not running ({found.status.shown}), so it cannot put anything")
    work.session.add_product(found.chain, number, sequence=None)
    work.session.note_put(found.run.id, str(artifact))
    return found.run.id


def remove(work: Work, artifact: Artifact, *, repository: str | None, actor: str) -> PutForm:
    """Take back what was put; who needs it waits again."""
    taken = work.session.take_back(work.session.number_of(artifact, repository))
    if taken is None:
        raise NotFound(f"nobody has put {artifact}; `rota artifact list` shows what was put")
    work.session.emit_put(str(artifact), None, None, work.now, actor, is_back=True)
    return put_form(taken)

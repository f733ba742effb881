"""Artifacts that jobs and people put, over HTTP."""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import msgspec

from rota.api.context import Context
from rota.api.endpoint import Call, Endpoint, Nothing, Reply
from rota.api.once import as_it_is, carry_out
from rota.api.page import PageSize, begins_at, parsed
from rota.command.artifact import PutWanted, parse_putable, put, put_form, remove
from rota.core.artifact import Artifact, parse_artifact
from rota.core.fact import File
from rota.errors import InvalidInput, NotFound, Unavailable, within
from rota.ids import JobId, parse_job
from rota.store.artifact import Put
from rota.view import job as view
from rota.wire.artifact import PutForm, PutsForm
from rota.wire.text import AbsolutePath, ArtifactsCursor

T = TypeVar("T")

_LOOK_OUTSIDE = 20.0
"""Seconds."""


async def _repository(context: Context, cwd: str) -> str | None:
    return await _seen(context, cwd, partial(context.probe.repository_of, cwd))


async def _seen(context: Context, place: str, look: Callable[[], T]) -> T:
    try:
        return await context.asides.ask([("artifact", place)], _LOOK_OUTSIDE, look)
    except TimeoutError:
        raise Unavailable(f"the file system of {place} does not answer; try again later") from None


async def _place(context: Context, job: JobId | None, cwd: str | None) -> str:
    """The directory that an artifact is of: the job's, else the caller's."""
    if job is not None:
        with within(".job"):
            return await context.look(lambda reader: view.find(reader, job).spec.cwd)
    if cwd is not None and not cwd.startswith("/"):
        raise InvalidInput(f"cwd must be an absolute path, not {cwd!r}").under(".cwd")
    return cwd or context.around.cwd


async def put_artifact(call: Call[Nothing, PutWanted]) -> Reply[PutForm]:
    """Declare that something is there. What a running job declares counts when the job is over, and is taken back if it
    fails."""
    context, wanted = call.context, call.body
    job = parsed("job", wanted.job, parse_job)
    place = await _place(context, job, wanted.cwd)
    artifact = parse_putable(wanted, wanted.cwd or place)
    if artifact.type == "file":
        there = File(artifact.name)
        seen = await _seen(context, posixpath.dirname(artifact.name), partial(context.probe.look, [there]))
        if seen[there] is not True:
            raise InvalidInput(f"{artifact} is not there; write the file first, then put it").under(".artifact")
    act = partial(
        put, artifact=artifact, payload=wanted.payload, job=job, repository=await _repository(context, place),
        actor=context.actor,
    )  # fmt: skip
    return (await carry_out(call, act, as_it_is, _tell)).reply


def _tell(form: PutForm) -> Reply[PutForm]:
    return Reply(form, 201)


class ArtifactsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    limit: PageSize = 100
    cursor: ArtifactsCursor | None = None
    """The `next` of the page before."""


def _mark(put: Put) -> str:
    """Where the next page begins. Both may hold any character, so the first says how long it is."""
    return f"{len(put.scope)}.{put.scope}{put.artifact}"


def _parse_mark(mark: str) -> tuple[str, str]:
    size, dot, rest = mark.partition(".")
    if not (size.isascii() and size.isdecimal() and len(size) <= 5 and dot):
        raise ValueError(mark)
    return rest[int(size) :], rest[: int(size)]


async def list_artifacts(call: Call[ArtifactsQuery, None]) -> Reply[PutsForm]:
    """List what was put, by name, without the payloads."""
    behind, limit = begins_at(call.query.cursor, _parse_mark, ("", "")), call.query.limit
    puts = await call.context.look(lambda reader: reader.artifacts_put(behind=behind, limit=limit + 1))
    mark = _mark(puts[limit - 1]) if len(puts) > limit else None
    return Reply(PutsForm(artifacts=[put_form(each) for each in puts[:limit]], next=mark))


class ArtifactQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    cwd: AbsolutePath | None = None
    """The directory that its path is relative to, and whose repository it belongs to."""


async def _named(call: Call[ArtifactQuery, None]) -> tuple[Artifact, str | None]:
    place = await _place(call.context, None, call.query.cwd)
    return call.place("artifact", partial(parse_artifact, cwd=place)), await _repository(call.context, place)


async def get_artifact(call: Call[ArtifactQuery, None]) -> Reply[PutForm]:
    """Show what was put, with its payload."""
    artifact, repository = await _named(call)
    found = await call.context.look(lambda reader: reader.artifact_put(artifact, repository))
    if found is None:
        raise NotFound(f"nobody has put {artifact}; `rota artifact list` shows what was put")
    return Reply(put_form(found))


async def remove_artifact(call: Call[ArtifactQuery, None]) -> Reply[PutForm]:
    """Take back what was put. Who needs it waits again."""
    artifact, repository = await _named(call)
    act = partial(remove, artifact=artifact, repository=repository, actor=call.context.actor)
    return Reply(await call.context.perform(act))


_PUT = {
    "artifact": "custom:review:chapter-7",
    "scope": "/srv/web/.git",
    "payload": '{"verdict": "good"}',
    "put_at": "2026-11-16T08:21:33Z",
    "job": "job-21",
}

ENDPOINTS = [
    Endpoint(
        "POST", "/api/artifacts", put_artifact, statuses=(201,), refuses=(404, 409), is_keyed=True,
        sends={"artifact": "custom:review:chapter-7", "payload": '{"verdict": "good"}', "job": "job-21"}, shows=_PUT,
    ),
    Endpoint("GET", "/api/artifacts", list_artifacts, shows={"artifacts": [{**_PUT, "payload": None}], "next": None}),
    Endpoint("GET", "/api/artifacts/{artifact:path}", get_artifact, shows=_PUT),
    Endpoint("DELETE", "/api/artifacts/{artifact:path}", remove_artifact, shows=_PUT),
]  # fmt: skip

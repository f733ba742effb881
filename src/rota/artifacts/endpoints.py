"""Artifacts over HTTP that were put by jobs or users."""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import msgspec

from rota.artifacts.commands import PutRequest, declare_artifact, parse_put_artifact, render_put, withdraw_artifact
from rota.artifacts.schemas import ArtifactPage, ArtifactView
from rota.db.artifacts import PutArtifact
from rota.errors import InvalidInput, NotFound, ServiceUnavailable, error_path
from rota.http.context import Context
from rota.http.endpoint import Endpoint, Invocation, JsonReply, NoQuery, PageSize, parse_cursor, parse_field
from rota.http.idempotency import render_unchanged, run_call
from rota.ids import JobId, parse_job_id
from rota.jobs import queries
from rota.jobs.preflight import check_repository
from rota.kernel.artifacts import Artifact, parse_artifact
from rota.kernel.facts import FileExists
from rota.schema_types import AbsolutePath, ArtifactsCursor

T = TypeVar("T")

_PROBE_TIMEOUT = 20.0
"""Seconds to probe the file system."""


async def _find_repository(context: Context, cwd: str) -> str | None:
    repository = await _probe(context, cwd, partial(context.probe.find_repository, cwd))
    check_repository(repository)
    return repository


async def _probe(context: Context, directory: str, probe: Callable[[], T]) -> T:
    try:
        return await context.blocking_calls.run([("artifact", directory)], _PROBE_TIMEOUT, probe)
    except TimeoutError:
        raise ServiceUnavailable(f"the file system of {directory} does not answer; try again later") from None


async def _resolve_directory(context: Context, job: JobId | None, cwd: str | None) -> str:
    """Return the directory of an artifact: the job's, or the caller's."""
    if job is not None:
        with error_path(".job"):
            return await context.read(lambda reader: queries.find_job(reader, job).spec.cwd)
    if cwd is not None and not cwd.startswith("/"):
        raise InvalidInput(f"cwd must be an absolute path, not {cwd!r}").at_path(".cwd")
    return cwd or context.default_environment.cwd


async def put_artifact(call: Invocation[NoQuery, PutRequest]) -> JsonReply[ArtifactView]:
    """Declare that an artifact exists. An artifact of a running job counts when the job has ended, and is withdrawn if
    the job fails."""
    context, request = call.context, call.body
    job = parse_field("job", request.job, parse_job_id)
    directory = await _resolve_directory(context, job, request.cwd)
    artifact = parse_put_artifact(request, request.cwd or directory)
    if artifact.type == "file":
        fact = FileExists(artifact.name)
        observed = await _probe(context, posixpath.dirname(artifact.name), partial(context.probe.observe, [fact]))
        if observed[fact] is not True:
            raise InvalidInput(f"{artifact} does not exist; write the file first, then put it").at_path(".artifact")
    operation = partial(
        declare_artifact,
        artifact=artifact,
        payload=request.payload,
        job=job,
        repository=await _find_repository(context, directory),
        actor=context.actor,
    )
    return (await run_call(call, operation, render_unchanged, _created_reply)).reply


def _created_reply(artifact: ArtifactView) -> JsonReply[ArtifactView]:
    return JsonReply(artifact, 201)


class ArtifactsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    limit: PageSize = 100
    cursor: ArtifactsCursor | None = None
    """Cursor of the page: the `next` of the previous page."""


def _format_artifacts_cursor(put: PutArtifact) -> str:
    """Return the cursor of the next page. Scope and artifact can contain any character, so the length of the scope
    comes first."""
    return f"{len(put.scope)}.{put.scope}{put.artifact}"


def _parse_artifacts_cursor(cursor: str) -> tuple[str, str]:
    size, dot, rest = cursor.partition(".")
    if not (size.isascii() and size.isdecimal() and len(size) <= 5 and dot):
        raise ValueError(cursor)
    return rest[int(size) :], rest[: int(size)]


async def list_artifacts(call: Invocation[ArtifactsQuery, None]) -> JsonReply[ArtifactPage]:
    """List the artifacts that were put, by name, without their payloads."""
    after, limit = parse_cursor(call.query.cursor, _parse_artifacts_cursor, ("", "")), call.query.limit
    puts = await call.context.read(lambda reader: reader.artifacts.list_put(after=after, limit=limit + 1))
    next_cursor = _format_artifacts_cursor(puts[limit - 1]) if len(puts) > limit else None
    return JsonReply(ArtifactPage(artifacts=[render_put(put) for put in puts[:limit]], next=next_cursor))


class ArtifactQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    cwd: AbsolutePath | None = None
    """Directory that the artifact's path is relative to, and that selects its repository."""


async def _resolve_artifact(call: Invocation[ArtifactQuery, None]) -> tuple[Artifact, str | None]:
    directory = await _resolve_directory(call.context, None, call.query.cwd)
    artifact = call.path_parameter("artifact", partial(parse_artifact, cwd=directory))
    return artifact, await _find_repository(call.context, directory)


async def get_artifact(call: Invocation[ArtifactQuery, None]) -> JsonReply[ArtifactView]:
    """Show an artifact that was put, with its payload."""
    artifact, repository = await _resolve_artifact(call)
    put = await call.context.read(lambda reader: reader.artifacts.find_put(artifact, repository))
    if put is None:
        raise NotFound(f"{artifact} was not put; `rota artifact list` shows the artifacts that were put")
    return JsonReply(render_put(put))


async def remove_artifact(call: Invocation[ArtifactQuery, None]) -> JsonReply[ArtifactView]:
    """Withdraw an artifact. Jobs that need it wait again."""
    artifact, repository = await _resolve_artifact(call)
    operation = partial(withdraw_artifact, artifact=artifact, repository=repository, actor=call.context.actor)
    return JsonReply(await call.context.run_in_turn(operation))


_EXAMPLE = {
    "artifact": "custom:review:chapter-7",
    "scope": "/srv/web/.git",
    "payload": '{"verdict": "good"}',
    "created_at": "2026-11-16T08:21:33Z",
    "job": "job-21",
}

ENDPOINTS = [
    Endpoint(
        "POST",
        "/api/artifacts",
        put_artifact,
        statuses=(201,),
        errors=(404, 409),
        accepts_key=True,
        request_example={"artifact": "custom:review:chapter-7", "payload": '{"verdict": "good"}', "job": "job-21"},
        response_example=_EXAMPLE,
    ),
    Endpoint(
        "GET",
        "/api/artifacts",
        list_artifacts,
        response_example={"artifacts": [{**_EXAMPLE, "payload": None}], "next": None},
    ),
    Endpoint("GET", "/api/artifacts/{artifact:path}", get_artifact, response_example=_EXAMPLE),
    Endpoint("DELETE", "/api/artifacts/{artifact:path}", remove_artifact, response_example=_EXAMPLE),
]

"""Artifacts that jobs and people put, over HTTP."""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rota.api.context import Context, context_of
from rota.api.problem import answer, read
from rota.command.artifact import PutWanted, parse_putable, put, put_form, remove
from rota.core.artifact import parse_artifact
from rota.core.fact import File
from rota.errors import InvalidInput, NotFound, Unavailable
from rota.ids import JobId, parse_job
from rota.view import job as view

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
        return await context.look(lambda reader: view.find(reader, job).spec.cwd)
    if cwd is not None and not cwd.startswith("/"):
        raise InvalidInput(f"cwd must be an absolute path, not {cwd!r}")
    return cwd or context.around.cwd


async def put_artifact(request: Request) -> Response:
    context = context_of(request)
    wanted = await read(request, PutWanted)
    job = None if wanted.job is None else parse_job(wanted.job)
    place = await _place(context, job, wanted.cwd)
    artifact = parse_putable(wanted, wanted.cwd or place)
    if artifact.type == "file":
        there = File(artifact.name)
        seen = await _seen(context, posixpath.dirname(artifact.name), partial(context.probe.look, [there]))
        if seen[there] is not True:
            raise InvalidInput(f"{artifact} is not there; write the file first, then put it")
    act = partial(
        put, artifact=artifact, payload=wanted.payload, job=job, repository=await _repository(context, place),
        actor=context.actor,
    )  # fmt: skip
    return answer(await context.perform(act), 201)


async def list_artifacts(request: Request) -> Response:
    """What was put, without the payloads."""
    puts = await context_of(request).look(lambda reader: reader.artifacts_put())
    return answer({"artifacts": [put_form(each) for each in puts]})


async def get_artifact(request: Request) -> Response:
    context, cwd = context_of(request), request.query_params.get("cwd")
    place = await _place(context, None, cwd)
    artifact = parse_artifact(request.path_params["artifact"], cwd=place)
    repository = await _repository(context, place)
    found = await context.look(lambda reader: reader.artifact_put(artifact, repository))
    if found is None:
        raise NotFound(f"nobody has put {artifact}; `rota artifact list` shows what was put")
    return answer(put_form(found))


async def remove_artifact(request: Request) -> Response:
    context = context_of(request)
    place = await _place(context, None, request.query_params.get("cwd"))
    artifact = parse_artifact(request.path_params["artifact"], cwd=place)
    repository = await _repository(context, place)
    return answer(await context.perform(partial(remove, artifact=artifact, repository=repository, actor=context.actor)))


ROUTES = [
    Route("/api/artifacts", put_artifact, methods=["POST"]),
    Route("/api/artifacts", list_artifacts, methods=["GET"]),
    Route("/api/artifacts/{artifact:path}", get_artifact, methods=["GET"]),
    Route("/api/artifacts/{artifact:path}", remove_artifact, methods=["DELETE"]),
]

"""Health and readiness, for tools that start, monitor and restart the scheduler, or send work to it.

    /health    the process answers; if it does not, restart it
    /ready     jobs can start; if they cannot, send work elsewhere or wait: a restart changes nothing

Decisions of users are not failures: a scheduler that is paused, held or at capacity is ready.
"""

from __future__ import annotations

import asyncio
import os
from functools import partial

from starlette.responses import Response

from rota.control.schemas import Health, Readiness
from rota.errors import ServiceUnavailable, StorageFull, StoreError
from rota.http.context import Context
from rota.http.endpoint import Endpoint, Invocation, JsonReply, NoQuery
from rota.http.problem import problem_response

_PROBE_TIMEOUT = 2.0
"""Seconds for the store and the disk to answer."""
_MIN_FREE_BYTES = 1024 * 1024
"""Minimum free bytes on the disk of the home to store and log anything."""
_RETRY_AFTER = "5"


async def get_health(call: Invocation[NoQuery, None]) -> JsonReply[Health]:  # noqa: ARG001 - its type is the contract
    """Report that the scheduler answers. Nothing else is checked."""
    return JsonReply(Health(pid=os.getpid()))


async def get_ready(call: Invocation[NoQuery, None]) -> JsonReply[Readiness] | Response:
    """Report whether jobs can start. While they cannot, the response is 503 with all reasons: the store does not
    answer, the disk is full, there is no supervisor, or the scheduler is stopping."""
    blockers = await find_blockers(call.context)
    if not blockers:
        return JsonReply(Readiness())
    headers = {"Retry-After": _RETRY_AFTER}
    detail = f"not ready: {'; '.join(blockers)}"
    return problem_response(
        ServiceUnavailable.code, ServiceUnavailable.http_status, detail, extra={"reasons": blockers}, headers=headers
    )


async def find_blockers(context: Context) -> list[str]:
    """Return all reasons why no job can start, each once."""
    store, disk = await asyncio.gather(_check_store(context), check_disk(context))
    return list(dict.fromkeys([*context.control.blockers, *store, *disk]))


async def _check_store(context: Context) -> list[str]:
    """Read from the store, because an idle engine does not notice its failure."""
    try:
        async with asyncio.timeout(_PROBE_TIMEOUT):
            await context.read(lambda reader: reader.meta.get("epoch"))
    except TimeoutError:
        return ["the store does not answer in time"]
    except (StorageFull, StoreError) as error:
        return [error.message]
    return []


async def check_disk(context: Context) -> list[str]:
    """Return the reason why the home cannot be written, even if nothing is written at the moment."""
    home = context.home
    try:
        free_bytes = await context.blocking_calls.run(
            [("disk", home.root)], _PROBE_TIMEOUT, partial(_free_bytes, home.directory)
        )
    except TimeoutError:
        return [f"the file system of {home.root} does not answer"]
    except OSError as error:
        return [f"cannot read the home {home.root}: {error.strerror}"]
    return [f"the disk is full: there is no room left for {home.root}"] if free_bytes < _MIN_FREE_BYTES else []


def _free_bytes(directory: str) -> int:
    status = os.statvfs(directory)
    return status.f_bavail * status.f_frsize


ENDPOINTS = [
    Endpoint("GET", "/health", get_health, is_public=True, response_example=Health(pid=4711)),
    Endpoint("GET", "/ready", get_ready, errors=(ServiceUnavailable,), response_example=Readiness()),
]

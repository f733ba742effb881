"""Health and readiness: for who starts, watches and restarts the scheduler, or sends work to it.

    /health    the process answers; if not, restart it
    /ready     jobs can be started; if not, send work elsewhere, or wait: a restart changes nothing

What people have decided is no fault: a scheduler that is paused, held or out of room is ready.
"""

from __future__ import annotations

import asyncio
import os
from functools import partial

from starlette.responses import Response

from rota.api.context import Context
from rota.api.endpoint import Call, Endpoint, Nothing, Reply
from rota.api.problem import problem
from rota.errors import StorageFull, StoreError, Unavailable
from rota.wire.health import HealthForm, ReadyForm

_PATIENCE = 2.0
"""Seconds for the store, and for the disk, to answer."""
_LEAST_ROOM = 1024 * 1024
"""Bytes on the disk of the home without which nothing can be stored or logged."""
_RETRY_AFTER = "5"


async def get_health(call: Call[Nothing, None]) -> Reply[HealthForm]:  # noqa: ARG001 - its type says what it takes
    """Say that the scheduler answers. It looks at nothing else."""
    return Reply(HealthForm(pid=os.getpid()))


async def get_ready(call: Call[Nothing, None]) -> Reply[ReadyForm] | Response:
    """Say whether jobs can be started. Refused with all the reasons while they cannot: the store does not answer, the
    disk is full, there is no supervisor, the scheduler stops."""
    found = await obstacles(call.context)
    if not found:
        return Reply(ReadyForm())
    headers = {"Retry-After": _RETRY_AFTER}
    detail = f"not ready: {'; '.join(found)}"
    return problem(Unavailable.code, Unavailable.http_status, detail, more={"reasons": found}, headers=headers)


async def obstacles(context: Context) -> list[str]:
    """Why nothing can be started, each once."""
    store, room = await asyncio.gather(_store(context), disk(context))
    return list(dict.fromkeys([*context.control.obstacles, *store, *room]))


async def _store(context: Context) -> list[str]:
    """Asked itself, since an engine with nothing to do learns of no trouble."""
    try:
        async with asyncio.timeout(_PATIENCE):
            await context.look(lambda reader: reader.meta("epoch"))
    except TimeoutError:
        return ["the store does not answer in time"]
    except (StorageFull, StoreError) as error:
        return [error.message]
    return []


async def disk(context: Context) -> list[str]:
    """What keeps anything from being written to the home, also where nobody tries to at the moment."""
    home = context.home
    try:
        room = await context.asides.ask([("room", home.root)], _PATIENCE, partial(_room, home.directory))
    except TimeoutError:
        return [f"the file system of {home.root} does not answer"]
    except OSError as error:
        return [f"the home {home.root} cannot be looked at: {error.strerror}"]
    return [f"the disk is full: there is no room left for {home.root}"] if room < _LEAST_ROOM else []


def _room(directory: str) -> int:
    seen = os.statvfs(directory)
    return seen.f_bavail * seen.f_frsize


ENDPOINTS = [
    Endpoint("GET", "/health", get_health, is_public=True, shows=HealthForm(pid=4711)),
    Endpoint("GET", "/ready", get_ready, refuses=(Unavailable,), shows=ReadyForm()),
]

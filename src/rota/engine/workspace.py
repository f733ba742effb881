"""What the executor is told of a job's workspace."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import msgspec

from rota.core.workspace import Workspace
from rota.executor.workspace.input import FILE, path_of
from rota.ids import show_job
from rota.store.claim import Dispatch

_SHARE = 0.8
"""Of the time for a start: what is slow is to be told with its reason, before the start is called back."""
_NOTHING: Mapping[str, str] = {}

_decode = msgspec.json.Decoder(Workspace).decode


def order(
    dispatch: Dispatch, home: str, directory: str, start_timeout: timedelta
) -> Mapping[str, Any] | msgspec.UnsetType:
    """Unset for a job that asks for none: it costs not a byte. Raises where the record cannot be used."""
    if dispatch.workspace is None:
        return msgspec.UNSET
    asked = _decode(dispatch.workspace)
    return {
        **msgspec.to_builtins(asked),
        "input": None if asked.input is None else path_of(home, asked.input),
        "home": home,
        "job": show_job(dispatch.job),
        "directory": directory,
        "cwd": dispatch.cwd,
        "limit": start_timeout.total_seconds() * _SHARE,
    }


def variables(dispatch: Dispatch, directory: str) -> Mapping[str, str]:
    if dispatch.workspace is None or _decode(dispatch.workspace).input is None:
        return _NOTHING
    return {"ROTA_INPUT_PATCH": f"{directory}/{FILE}"}

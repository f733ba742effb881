"""The workspace part of a start order."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import msgspec

from rota.core.workspace import WorkspaceSpec
from rota.executor.workspace.input_patch import INPUT_PATCH, patch_path
from rota.ids import format_job_id
from rota.store.queue import Dispatch

_START_TIMEOUT_SHARE = 0.8
"""Share of `start_timeout` for the workspace: a slow one must be reported with its reason before the start is late."""
_NO_VARIABLES: Mapping[str, str] = {}

_decode = msgspec.json.Decoder(WorkspaceSpec).decode


def make_workspace_order(
    dispatch: Dispatch, home: str, directory: str, start_timeout: timedelta
) -> Mapping[str, Any] | msgspec.UnsetType:
    """Make the workspace order; unset for a job without a workspace. Raises if the record is unusable."""
    if dispatch.workspace is None:
        return msgspec.UNSET
    spec = _decode(dispatch.workspace)
    return {
        **msgspec.to_builtins(spec),
        "input_patch": None if spec.input_patch is None else patch_path(home, spec.input_patch),
        "home": home,
        "job": format_job_id(dispatch.job),
        "directory": directory,
        "cwd": dispatch.cwd,
        "limit": start_timeout.total_seconds() * _START_TIMEOUT_SHARE,
    }


def workspace_variables(dispatch: Dispatch, directory: str) -> Mapping[str, str]:
    if dispatch.workspace is None or _decode(dispatch.workspace).input_patch is None:
        return _NO_VARIABLES
    return {"ROTA_INPUT_PATCH": f"{directory}/{INPUT_PATCH}"}

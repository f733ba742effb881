"""The graph as JSON: who waits for what, as nodes and edges for programs and as text for people."""

from __future__ import annotations

from typing import Literal

import msgspec

from rota.wire.job import JobStatus


class NodeForm(msgspec.Struct, frozen=True, kw_only=True):
    """A job."""

    id: str
    status: JobStatus
    command: str
    """As a shell takes it."""
    wait: str | None
    """Why it has not started."""


class AfterForm(msgspec.Struct, frozen=True, kw_only=True):
    """That a job comes after another."""

    policy: Literal["success", "finished", "failed"]
    """What has to have become of it."""


class LinkForm(msgspec.Struct, frozen=True, kw_only=True, rename={"source": "from"}):
    """What a job waits for: another job, the maker of an artifact, or an artifact that nobody makes."""

    source: str
    """The job that waits."""
    to: str
    """A job's id, or `artifact:` and its name where no job makes it."""
    after: AfterForm | msgspec.UnsetType = msgspec.UNSET
    """Where it comes after a job."""
    artifact: str | msgspec.UnsetType = msgspec.UNSET
    """Where it needs an artifact: which one."""
    state: Literal["present", "missing", "unknown"] | msgspec.UnsetType = msgspec.UNSET
    """Of an artifact that no job makes."""


class GraphForm(msgspec.Struct, frozen=True, kw_only=True):
    """The graph as nodes and edges."""

    nodes: list[NodeForm]
    """The jobs."""
    edges: list[LinkForm]
    """What waits for what."""
    left_out: int | msgspec.UnsetType = msgspec.UNSET
    """How many jobs are not among the nodes, where there are too many."""


class PictureForm(msgspec.Struct, frozen=True, kw_only=True):
    """The graph as text."""

    text: str
    """Trees in plain ASCII."""
    left_out: int
    """How many jobs the text does not show, where there are too many."""

"""JSON representations of the dependency graph: nodes and edges for programs, text for display."""

from __future__ import annotations

from typing import Literal

import msgspec

from rota.jobs.schemas import JobStatusText


class GraphNode(msgspec.Struct, frozen=True, kw_only=True):
    """A job in the graph."""

    id: str
    """Id of the job."""
    status: JobStatusText
    """Status of the job."""
    command: str
    """Command of the job, quoted for a shell."""
    wait: str | None
    """Reason that the job has not started; `null` if it does not wait."""
    unreadable: str | msgspec.UnsetType = msgspec.UNSET
    """Error in the stored record; absent if the record is valid."""


class GraphDependency(msgspec.Struct, frozen=True, kw_only=True):
    """A dependency of a job on another job."""

    policy: Literal["success", "finished", "failed"]
    """Outcome that the other job must have."""


class GraphEdge(msgspec.Struct, frozen=True, kw_only=True, rename={"source": "from"}):
    """A dependency of a job on another job, on the producer of an artifact, or on an artifact without a producer."""

    source: str
    """Id of the waiting job."""
    to: str
    """Id of the other job; `artifact:` and the artifact's name if no job produces it."""
    after: GraphDependency | msgspec.UnsetType = msgspec.UNSET
    """Policy of the dependency; absent if the edge is for an artifact."""
    artifact: str | msgspec.UnsetType = msgspec.UNSET
    """Artifact that the job needs; absent if the edge is for a job."""
    state: Literal["present", "missing", "unknown"] | msgspec.UnsetType = msgspec.UNSET
    """State of an artifact that no job produces; absent otherwise."""


class GraphView(msgspec.Struct, frozen=True, kw_only=True):
    """The dependency graph as nodes and edges."""

    nodes: list[GraphNode]
    """Jobs in the graph."""
    edges: list[GraphEdge]
    """Dependencies between them."""
    skipped: int | msgspec.UnsetType = msgspec.UNSET
    """Number of jobs that are omitted because the graph is too large; absent if it is complete."""


class GraphDrawing(msgspec.Struct, frozen=True, kw_only=True):
    """The dependency graph as text."""

    text: str
    """Trees in plain ASCII."""
    skipped: int
    """Number of jobs that are omitted because the graph is too large."""

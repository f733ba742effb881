"""JSON forms of work items."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from rota.schema_types import NO_NUL_PATTERN, JobIdText

ItemId = Annotated[str, Meta(extra_json_schema={"pattern": NO_NUL_PATTERN, "minLength": 1, "examples": ["gt-7"]})]
ItemCursor = Annotated[str, Meta(extra_json_schema={"pattern": "^[^/\\u0000]+/"})]


class WorkItemView(msgspec.Struct, frozen=True, kw_only=True):
    """A unit of work in a tracker or list."""

    id: str
    """Id in its source."""
    source: str
    """Name of its source in the configuration."""
    title: str
    """Title in one line."""
    kind: str
    """Kind, such as `task`, `bug` or `epic`."""
    status: str
    """Status in its source, such as `open` or `closed`."""
    ready: bool
    """Whether work on it can start: it is open and nothing blocks it."""
    blocked_by: list[str]
    """Ids of the open items that it depends on."""
    priority: int | None
    """Priority in its source; `null` if it has none."""
    labels: list[str]
    """Labels in its source."""
    target: str | None
    """Target that it names; `null` if it names none."""
    jobs: list[JobIdText]
    """Jobs that work on it."""


class WorkItemDetail(WorkItemView, frozen=True, kw_only=True):
    """A work item with its text."""

    prompt: str
    """Title and body, as a template gets them."""
    reason: str | None
    """Reason that it is not ready; `null` if it is ready."""


class WorkItemPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of work items."""

    items: list[WorkItemView]
    """Items in the order of their sources."""
    next: str | None


class WorkSyncResult(msgspec.Struct, frozen=True, kw_only=True):
    """Result of reading all sources."""

    total: int
    """Number of items."""
    ready: int
    """Number of items that are ready."""
    warnings: list[str]
    """Records that were skipped, and other defects of the sources, each with its file and line."""


_ITEM = WorkItemView(
    id="gt-7",
    source="tracker",
    title="Fix the login page",
    kind="bug",
    status="open",
    ready=False,
    blocked_by=["gt-3"],
    priority=1,
    labels=["web"],
    target=None,
    jobs=[],
)
EXAMPLES = (
    WorkItemPage(items=[_ITEM], next=None),
    WorkItemDetail(
        **msgspec.structs.asdict(_ITEM),
        prompt="Fix the login page\n\nThe button does nothing.",
        reason="work item gt-7 is blocked by gt-3",
    ),
    WorkSyncResult(
        total=120, ready=14, warnings=["source tracker: issues.jsonl:2: not a JSON object; the line was skipped"]
    ),
)
"""Examples for the OpenAPI document."""

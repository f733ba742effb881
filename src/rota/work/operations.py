"""Operations on work items."""

from __future__ import annotations

from rota.operation import operation

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rota.schema_types import PageSize
    from rota.work.schemas import ItemCursor, ItemId, WorkItemDetail, WorkItemPage, WorkSyncResult


@operation(
    "GET /api/work",
    cli="work list",
    pages="items",
    help={
        "source": "List only the items of this source.",
        "ready": "List only items that are ready.",
        "limit": "List at most this many items.",
    },
)
def list_items(
    *, source: str | None = None, ready: bool = False, limit: PageSize = 100, cursor: ItemCursor | None = None
) -> WorkItemPage:
    """List the work items of all sources. A source that has changed is read again."""


@operation(
    "GET /api/work/{item:path}",
    cli="work show",
    help={"item": "Id of the work item, or its source and id: `SOURCE/ID`."},
)
def show_item(item: ItemId) -> WorkItemDetail:
    """Show a work item, its jobs, and why it is not ready."""


@operation("POST /api/work/sync", cli="work sync")
def sync_work() -> WorkSyncResult:
    """Read all sources of work items now, and list their defects."""

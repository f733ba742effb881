"""Views of work items."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from rota.blocking import BlockingCalls
from rota.db.session import AnyReader
from rota.errors import InvalidInput, NotFound, ServiceUnavailable
from rota.work import operations as ops
from rota.work.model import Board, Item
from rota.work.reader import WorkReader
from rota.work.schemas import WorkItemDetail, WorkItemPage, WorkItemView, WorkSyncResult

_READ_TIMEOUT = 20.0
"""Seconds to read the sources."""


class WorkContext(Protocol):
    """Part of the handlers' context that work items need."""

    work: WorkReader
    blocking_calls: BlockingCalls


async def _read_board(context: WorkContext, *_: object, **__: object) -> Board:
    return await _run(context, context.work.board)


async def _sync_board(context: WorkContext) -> Board:
    return await _run(context, context.work.sync)


async def _run(context: WorkContext, read: Callable[[], Board]) -> Board:
    try:
        return await context.blocking_calls.run(["work"], _READ_TIMEOUT, read)
    except TimeoutError:
        raise ServiceUnavailable("the sources of work items do not answer; try again later") from None


@ops.list_items.prepared_by(_read_board).reads
def list_items(
    _reader: AnyReader,
    board: Board,
    *,
    source: str | None = None,
    ready: bool = False,
    limit: int = 100,
    cursor: str | None = None,
) -> WorkItemPage:
    first = 0 if cursor is None else _position_after(board, cursor)
    items: list[WorkItemView] = []
    for item in board.items[first:]:
        if source not in (None, item.source) or (ready and not board.is_ready(item)):
            continue
        if len(items) == limit:
            return WorkItemPage(items=items, next=f"{items[-1].source}/{items[-1].id}")
        items.append(_render(board, item))
    return WorkItemPage(items=items, next=None)


def _position_after(board: Board, cursor: str) -> int:
    source, _, item_id = cursor.partition("/")
    item = board.find(item_id, source=source)
    if item is None:
        raise InvalidInput(f"invalid cursor {cursor!r}; use the `next` of the previous page").at_path(".cursor")
    return board.items.index(item) + 1


@ops.show_item.prepared_by(_read_board).reads
def show_item(_reader: AnyReader, board: Board, item: str) -> WorkItemDetail:
    found = board.find(item)
    if found is None:
        raise NotFound(f"no such work item: {item}; `rota work list` lists all items")
    view = _render(board, found)
    return WorkItemDetail(**msgspec.structs.asdict(view), prompt=found.prompt, reason=board.why_not_ready(found))


def _render(board: Board, item: Item) -> WorkItemView:
    return WorkItemView(
        id=item.id,
        source=item.source,
        title=item.title,
        kind=item.kind,
        status=item.status,
        ready=board.is_ready(item),
        blocked_by=list(board.blockers(item)),
        priority=item.priority,
        labels=list(item.labels),
        target=item.target,
        jobs=[],
    )


@ops.sync_work.prepared_by(_sync_board).reads
def sync_work(_reader: AnyReader, board: Board) -> WorkSyncResult:
    return WorkSyncResult(
        total=len(board.items), ready=sum(map(board.is_ready, board.items)), warnings=list(board.warnings)
    )

"""`rota work`: work items as tables."""

from __future__ import annotations

import sys

from rota.cli.operations import make_verb
from rota.cli.table import render
from rota.cli.terminal import print_notice, print_text, terminal_width
from rota.errors import escape_unprintable
from rota.work import operations as ops

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rota.client.requests import Json

add_work_arguments, run_work = make_verb(ops, "work")


@ops.list_items.prints
def print_items(page: Json) -> None:
    if not page["items"]:
        print_notice("no work items; `[sources]` in rota.toml names their sources")
        return
    rows = [
        [
            item["id"],
            item["status"],
            "yes" if item["ready"] else "no",
            "" if item["priority"] is None else str(item["priority"]),
            item["kind"],
            item["title"],
            ", ".join(item["blocked_by"]),
        ]
        for item in page["items"]
    ]
    heads = ["ID", "STATUS", "READY", "PRIO", "KIND", "TITLE", "BLOCKED BY"]
    print_text("\n".join(render([heads, *rows], width=terminal_width(sys.stdout), flexible=(((5, 6), 16),))))
    if page["next"] is not None:
        print_notice("there are more items; --limit N lists them")


@ops.show_item.prints
def print_item(item: Json) -> None:
    for name, value in item.items():
        if value not in (None, "", []):
            text = ", ".join(value) if isinstance(value, list) else str(value)
            first, *rest = map(escape_unprintable, text.splitlines() or [""])
            print_text("\n".join([f"{name:<12} {first}", *(f"{'':<12} {line}".rstrip() for line in rest)]))


@ops.sync_work.prints
def print_sync(result: Json) -> None:
    print_text(f"{result['total']} items, {result['ready']} ready")
    for warning in result["warnings"]:
        print_notice(escape_unprintable(warning))

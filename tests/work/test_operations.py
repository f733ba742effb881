"""Operations on work items over HTTP, with both clients and as commands. A stand-in replaces the sources."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from rota import AsyncClient, Client, InvalidInput, NotFound, ServiceUnavailable
from rota.cli.main import main
from rota.client.requests import Request
from rota.client.session import SchedulerSession
from rota.home import Home
from rota.http.bind import make_endpoints
from rota.work import operations, queries
from rota.work.model import Board, Item, ItemDependency, SourceView
from rota.work.reader import WorkReader
from tests.e2e.awaitable_client import collect
from tests.http.served_home import StandInContext, served_home


class StandInReader(WorkReader):
    """Reader whose items a test defines."""

    def __init__(self, *items: Item) -> None:
        super().__init__({}, Path("/"))
        self.items = items
        self.warnings: tuple[str, ...] = ()
        self.sync_count = 0

    def board(self) -> Board:
        names = dict.fromkeys(item.source for item in self.items)
        views = [
            SourceView(name, [item for item in self.items if item.source == name], self.warnings * (name == "tracker"))
            for name in names
        ]
        return Board(views, datetime.now(UTC))

    def sync(self) -> Board:
        self.sync_count += 1
        return self.board()


READER_ITEMS = (
    Item(id="gt-1", source="tracker", title="Parse", kind="bug", priority=1, labels=("core",), prompt="Parse\n\nAll."),
    Item(id="gt-2", source="tracker", title="Print", depends=(ItemDependency(id="gt-1"), ItemDependency(id="x-9"))),
    Item(id="gt-3", source="tracker", title="Old", status="closed"),
    Item(id="todo-1", source="list", title="Write docs", target="web"),
)
DEFECT = "issues.jsonl:2: not a JSON object; the line was skipped"
FIRST = {
    "id": "gt-1",
    "source": "tracker",
    "title": "Parse",
    "kind": "bug",
    "status": "open",
    "ready": True,
    "blocked_by": [],
    "priority": 1,
    "labels": ["core"],
    "target": None,
    "jobs": [],
}


@pytest.fixture
def reader() -> StandInReader:
    return StandInReader(*READER_ITEMS)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reader: StandInReader) -> Iterator[Home]:
    """Provide a home whose socket serves the operations on work items."""
    root = tmp_path / "home"
    root.mkdir(mode=0o700)
    monkeypatch.setenv("ROTA_HOME", str(root))
    with served_home(Home(root), make_endpoints(operations, queries), StandInContext(work=reader)):
        yield Home(root)


def list_ids(home: Home, query: str) -> tuple[list[str], str | None]:
    page = SchedulerSession(home).request_json(Request("GET", f"/api/work{query}"))
    return [item["id"] for item in page["items"]], page["next"]


@pytest.mark.parametrize(
    ("query", "ids", "next_cursor"),
    [
        ("", ["gt-1", "gt-2", "gt-3", "todo-1"], None),
        ("?source=list", ["todo-1"], None),
        ("?source=unknown", [], None),
        ("?ready=1", ["gt-1", "todo-1"], None),
        ("?limit=2", ["gt-1", "gt-2"], "tracker/gt-2"),
        ("?limit=2&cursor=tracker/gt-2", ["gt-3", "todo-1"], None),
        ("?limit=1&ready=1", ["gt-1"], "tracker/gt-1"),
        ("?limit=1&ready=1&cursor=tracker/gt-1", ["todo-1"], None),
    ],
)
def test_items_are_listed_in_pages(home: Home, query: str, ids: list[str], next_cursor: str | None) -> None:
    assert list_ids(home, query) == (ids, next_cursor)


def test_cursor_of_an_item_that_is_gone_is_refused(home: Home) -> None:
    with pytest.raises(InvalidInput, match="invalid cursor 'tracker/gt-9'; use the `next`") as refused:
        list_ids(home, "?cursor=tracker/gt-9")
    assert refused.value.path == "$.cursor"


def test_item_has_the_documented_fields(home: Home) -> None:
    session = SchedulerSession(home)
    assert session.request_json(Request("GET", "/api/work?limit=1"))["items"] == [FIRST]
    shown = session.request_json(Request("GET", "/api/work/gt-1"))
    assert shown == {**FIRST, "prompt": "Parse\n\nAll.", "reason": None}


@pytest.mark.parametrize(
    ("item", "reason"),
    [
        ("gt-1", None),
        ("tracker/gt-1", None),
        ("gt-2", "work item gt-2 is blocked by gt-1, x-9, which is not in any source"),
        ("gt-3", "work item gt-3 is closed"),
    ],
)
def test_item_explains_why_it_is_not_ready(home: Home, item: str, reason: str | None) -> None:
    with Client(home=home.root) as client:
        assert client.work_item(item).reason == reason


def test_blocking_client_lists_shows_and_syncs(home: Home, reader: StandInReader) -> None:
    reader.warnings = (DEFECT,)
    with Client(home=home.root) as client:
        assert [item.id for item in client.work_items(ready=True)] == ["gt-1", "todo-1"]
        assert client.work_item("todo-1").target == "web"
        with pytest.raises(NotFound, match="no such work item: gt-9") as refused:
            client.work_item("gt-9")
        assert refused.value.path == "$.item"
        result = client.sync_work()
    assert (result.total, result.ready, result.warnings) == (4, 2, [f"source tracker: {DEFECT}"])
    assert reader.sync_count == 1


def test_async_client_lists_shows_and_syncs(home: Home) -> None:
    async def steps() -> None:
        async with AsyncClient(home=home.root) as client:
            assert [item.id for item in await collect(client.work_items(source="list"))] == ["todo-1"]
            assert (await client.work_item("gt-1")).labels == ["core"]
            assert (await client.sync_work()).total == 4

    asyncio.run(steps())


def test_list_command_prints_a_table(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["work", "list"]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split() == ["ID", "STATUS", "READY", "PRIO", "KIND", "TITLE", "BLOCKED", "BY"]
    assert lines[0].split() == ["gt-1", "open", "yes", "1", "bug", "Parse"]
    assert lines[1].split() == ["gt-2", "open", "no", "task", "Print", "gt-1,", "x-9"]
    assert main(["work"]) == 0
    assert capsys.readouterr().out.splitlines() == [head, *lines], "the default action is list"


def test_list_command_filters_and_limits(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["work", "list", "--source", "tracker", "--ready", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"items": [FIRST], "next": None}
    assert main(["work", "list", "--limit", "1"]) == 0
    assert capsys.readouterr().err == "rota: there are more items; --limit N lists them\n"
    assert main(["work", "list", "--source", "unknown"]) == 0
    assert capsys.readouterr() == ("", "rota: no work items; `[sources]` in rota.toml names their sources\n")


def test_list_command_reads_every_page(home: Home, reader: StandInReader, capsys: pytest.CaptureFixture[str]) -> None:
    reader.items = tuple(Item(id=f"n-{n}", source="list", title="t") for n in range(2300))
    assert main(["work", "list", "--json"]) == 0
    assert [item["id"] for item in json.loads(capsys.readouterr().out)["items"]] == [f"n-{n}" for n in range(2300)]


def test_show_and_sync_commands(home: Home, reader: StandInReader, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["work", "show", "gt-1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["id", "gt-1"]
    assert lines[-3:] == ["prompt       Parse", "", "             All."]
    assert main(["work", "show", "gt-9"]) == 3
    assert capsys.readouterr().err == "rota: no such work item: gt-9; `rota work list` lists all items\n"
    reader.warnings = (DEFECT,)
    assert main(["work", "sync"]) == 0
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("4 items, 2 ready\n", f"rota: source tracker: {DEFECT}\n")


def test_help_lists_the_actions(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["work", "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "list List the work items of all sources." in text
    assert main(["work", "list", "--help"]) == 0
    assert "--ready List only items that are ready." in " ".join(capsys.readouterr().out.split())


def test_sources_that_do_not_answer_are_reported(
    home: Home, reader: StandInReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = threading.Event()
    monkeypatch.setattr(queries, "_READ_TIMEOUT", 0.05)
    monkeypatch.setattr(reader, "board", blocked.wait)
    try:
        with pytest.raises(ServiceUnavailable, match="the sources of work items do not answer; try again later"):
            list_ids(home, "")
    finally:
        blocked.set()


def test_item_ids_of_two_sources_are_both_listed(home: Home, reader: StandInReader) -> None:
    reader.items = tuple(Item(id=f"n-{n}", source=source, title="t") for source in ("a", "b") for n in range(1200))
    with Client(home=home.root) as client:
        assert len(list(client.work_items())) == 2400
        assert client.work_item("b/n-7").source == "b"


def test_new_configuration_does_not_wait_for_a_read() -> None:
    """The event loop applies it, and a file system may not answer."""
    reader = WorkReader({}, Path("/"))
    with reader._lock:
        reader.configure({})
    assert reader.board().items == ()

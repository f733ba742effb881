"""Sources of third parties: found by entry point, and their errors contained."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from rota.config import SourceConfig
from rota.work.model import Board, Item, ItemDependency
from rota.work.reader import WorkReader
from tests.work.town import bead, write_beads

PLUGIN = """
from datetime import datetime
from pathlib import Path

from rota.work.model import ItemDependency, Item
from rota.work.source import SourceItems


class Tracker:
    def __init__(self, name, path):
        self.name = name
        self.path = path

    def signature(self):
        return 1

    def items(self):
        yield Item(id="t-1", source="other", title=self.path, defer_until=datetime(2099, 1, 1))
        yield {"id": "t-2", "title": "Two", "depends": [{"id": "t-1"}]}

    def show(self, item_id):
        return None

    def children(self, item_id):
        return []

    def tracked(self, item_id):
        return []


class Good:
    def open(self, name, path):
        return Tracker(name, path)


class Wrong(Tracker, Good):
    def __init__(self, name="", path=""):
        pass

    def open(self, name, path):
        return Wrong()

    def items(self):
        return SourceItems(
            items=(Item(id="t-1", source="x", title="One"), Item(id="a b", source="x", title=""), 3, None, object(),
                   Item(id="t-4", source="x", title="Four", depends=None), {"id": "t-5"}),
            warnings=("line\\nbreak", 7),
        )


class Raises(Wrong):
    def open(self, name, path):
        return Raises()

    def items(self):
        raise ValueError("no\\nconnection")


class Exits(Raises):
    def open(self, name, path):
        return Exits()

    def signature(self):
        raise SystemExit(3)


class Lazy(Raises):
    def open(self, name, path):
        return Lazy()

    def items(self):
        yield Item(id="t-1", source="x", title="One")
        raise OSError(5, "Input/output error", "/dev/tracker")


class Unopened:
    def open(self, name, path):
        raise RuntimeError("not today")


class Nothing:
    def open(self, name, path):
        return None


class NoMethod:
    pass
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install a package with kinds of sources, as an installer leaves it."""
    directory = tmp_path / "packages"
    info = directory / "rota_tracker-1.0.dist-info"
    info.mkdir(parents=True)
    (directory / "rota_tracker.py").write_text(PLUGIN)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: rota-tracker\nVersion: 1.0\n")
    kinds = ["Good", "Wrong", "Raises", "Exits", "Lazy", "Unopened", "Nothing", "NoMethod", "Absent"]
    points = "".join(f"{kind.lower()} = rota_tracker:{kind}\n" for kind in kinds)
    (info / "entry_points.txt").write_text(f"[rota.work_sources]\n{points}")
    monkeypatch.syspath_prepend(str(directory))
    monkeypatch.delitem(sys.modules, "rota_tracker", raising=False)


def read(directory: Path, kind: str) -> Board:
    """Read a source of the kind, between two sources that have to stay readable."""
    write_beads(directory, bead("gt-1"))
    (directory / "list.yaml").write_text("- {id: web-1}\n")
    sections = {
        "town": SourceConfig(path="."),
        "mine": SourceConfig(path="tracker", kind=kind),
        "web": SourceConfig(path="list.yaml", kind="list"),
    }
    reader = WorkReader(sections, directory)
    board = reader.board()
    again = reader.sync()
    assert again.warnings == board.warnings
    assert {"gt-1", "web-1"} <= {item.id for item in board.items}
    return board


def test_source_is_found_by_name(tmp_path: Path, installed: None) -> None:
    board = read(tmp_path, "good")
    assert [item for item in board.items if item.source == "mine"] == [
        Item(id="t-1", source="mine", title=f"{tmp_path}/tracker", defer_until=datetime(2099, 1, 1, tzinfo=UTC)),
        Item(id="t-2", source="mine", title="Two", depends=(ItemDependency(id="t-1"),)),
    ]
    assert board.warnings == ()


def test_invalid_items_are_named(tmp_path: Path, installed: None) -> None:
    board = read(tmp_path, "wrong")
    assert [item.id for item in board.items if item.source == "mine"] == ["t-1"]
    assert board.warnings[:2] == ("source mine: line\\nbreak", "source mine: 7")
    assert len(board.warnings) == 8
    assert all(warning.startswith("source mine: not a valid work item: ") for warning in board.warnings[2:])


@pytest.mark.parametrize(
    ("kind", "problem"),
    [
        ("raises", r"ValueError: no\nconnection"),
        ("exits", "SystemExit: 3"),
        ("lazy", "/dev/tracker: Input/output error"),
        ("unopened", "the kind unopened failed: RuntimeError: not today"),
        ("nothing", "the kind nothing returned no source, but None"),
        ("nomethod", "nomethod is not a kind of source: it has no method open(name, path)"),
        ("absent", "the kind of source absent cannot be loaded: AttributeError"),
    ],
)
def test_error_of_a_source_is_contained(tmp_path: Path, installed: None, kind: str, problem: str) -> None:
    board = read(tmp_path, kind)
    assert len(board.warnings) == 1
    assert board.warnings[0].startswith(f"source mine cannot be read: {problem}")

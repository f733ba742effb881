"""Reading of sources: only after changes, never raising, never losing an item, and never changing a byte."""

from __future__ import annotations

import json
import os
import tempfile
import threading
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rota.config import SourceConfig
from rota.work import source as source_module
from rota.work.reader import WorkReader
from rota.work.source import SourceItems, WorkSource, read_items
from tests.sample import sample
from tests.work.town import bead, make_town, write_beads

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the names of the sources that are read, in order. Files count as settled at once."""
    names: list[str] = []

    def record(name: str, source: WorkSource) -> SourceItems:
        names.append(name)
        return read_items(name, source)

    monkeypatch.setattr("rota.work.reader.read_items", record)
    monkeypatch.setattr(source_module, "_SETTLING_TIME_NS", 0)
    return names


def make_reader(directory: Path, now: Callable[[], datetime] = lambda: NOW, **sources: str) -> WorkReader:
    """Return a reader of sources by name; a path with a suffix is a list."""
    sections = {
        name: SourceConfig(path=path, kind="list" if Path(path).suffix else "beads") for name, path in sources.items()
    }
    return WorkReader(sections, directory, now=now)


def ids(items: Iterable[object]) -> list[str]:
    return [getattr(item, "id") for item in items]  # noqa: B009 - an Item


def test_sources_are_joined(tmp_path: Path) -> None:
    write_beads(tmp_path / "town", bead("gt-1", depends=[("web-1", "blocks")]))
    (tmp_path / "web.yaml").write_text("- {id: web-1, prompt: do it, depends: [gt-2]}\n")
    reader = make_reader(tmp_path, town="town", web="web.yaml")
    board = reader.board()
    assert ids(board.items) == ["gt-1", "web-1"]
    first, second = board.items
    assert board.why_not_ready(first) == "work item gt-1 is blocked by web-1"
    assert board.why_not_ready(second) == "work item web-1 is blocked by gt-2, which is not in any source"


def test_only_changed_sources_are_read(tmp_path: Path, reads: list[str]) -> None:
    write_beads(tmp_path / "town", bead("gt-1"))
    (tmp_path / "web.yaml").write_text("- {id: web-1}\n")
    reader = make_reader(tmp_path, town="town", web="web.yaml")
    board = reader.board()
    assert reader.board() is board
    assert reads == ["town", "web"]
    write_beads(tmp_path / "town", bead("gt-1", status="closed"))
    changed = reader.board()
    assert changed is not board
    assert changed.items[0].is_closed
    assert reads == ["town", "web", "town"]
    assert reader.board() is changed
    assert ids(reader.sync().items) == ["gt-1", "web-1"]
    assert reads == ["town", "web", "town", "town", "web"]


def test_change_of_custom_statuses_is_noticed(tmp_path: Path, reads: list[str]) -> None:
    write_beads(tmp_path, bead("gt-1", status="shipped"))
    reader = make_reader(tmp_path, town=".")
    assert not reader.board().items[0].is_closed
    (tmp_path / ".beads/config.yaml").write_text("status.custom: shipped:done\n")
    assert reader.board().items[0].is_closed


def test_rewrite_right_after_a_read_is_noticed(tmp_path: Path) -> None:
    """A file can change twice within one tick of the kernel's clock, without a new size or time."""
    file = write_beads(tmp_path, bead("gt-1", status="open"))
    reader = make_reader(tmp_path, town=".")
    reader.board()
    status = file.stat()
    file.write_text(file.read_text().replace('"open"', '"gone"'))
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert reader.board().items[0].status == "gone"


def test_malformed_line_loses_nothing(tmp_path: Path) -> None:
    file = write_beads(tmp_path, *(bead(f"gt-{n}") for n in range(3)), bead("gt-9", depends=[("gt-1", "blocks")]))
    reader = make_reader(tmp_path, town=".")
    assert reader.board().warnings == ()
    lines = file.read_text().splitlines()
    file.write_text("\n".join([lines[0], lines[1][:40], *lines[2:]]))
    board = reader.sync()
    assert sorted(ids(board.items)) == ["gt-0", "gt-1", "gt-2", "gt-9"]
    assert board.warnings == ("source town: issues.jsonl:2: not JSON: Input data was truncated",)
    broken, dependent = board.find("gt-1"), board.find("gt-9")
    assert broken is not None
    assert dependent is not None
    text = "work item gt-1 cannot be read: issues.jsonl:2: not JSON: Input data was truncated"
    assert board.hold_reason(broken) == text
    assert board.blockers(dependent) == ("gt-1",)
    assert board.is_ready(board.items[0])
    file.write_text("\n".join([lines[0], *lines[2:]]))
    board = reader.sync()
    assert board.find("gt-1") is None, "a file without malformed lines is complete"
    assert board.warnings == ()


def test_warnings_are_limited(tmp_path: Path) -> None:
    write_beads(tmp_path).write_text("nonsense\n" * 1000)
    warnings = make_reader(tmp_path, town=".").board().warnings
    assert len(warnings) == 101
    assert warnings[-1] == "source town: 900 more problems"


def test_unreadable_source_keeps_its_last_good_items(tmp_path: Path) -> None:
    file = write_beads(tmp_path / "town", bead("gt-1"), bead("gt-2", status="closed"))
    reader = make_reader(tmp_path, town="town")
    reader.board()
    moved = file.rename(tmp_path / "aside")
    board = reader.board()
    assert ids(board.items) == ["gt-1", "gt-2"]
    assert board.hold_reason(board.items[0]) == f"work item gt-1 cannot be read: {file} does not exist"
    assert board.warnings == (f"source town cannot be read: {file} does not exist",)
    assert reader.board() is board, "an error that stays is no change"
    moved.rename(file)
    assert reader.board().is_ready(reader.board().items[0])
    assert reader.board().warnings == ()


def test_invalid_list_keeps_its_last_good_items(tmp_path: Path, reads: list[str]) -> None:
    file = tmp_path / "web.yaml"
    file.write_text("- {id: a}\n")
    reader = make_reader(tmp_path, web="web.yaml")
    reader.board()
    file.write_text("- {id: a\n")
    board = reader.board()
    assert ids(board.items) == ["a"]
    assert not board.is_ready(board.items[0])
    assert "source web cannot be read: web.yaml:2: not YAML" in board.warnings[0]
    reader.board()
    assert reads == ["web", "web"], "invalid content is read once"


@pytest.mark.parametrize("kind", ["cards", "jira"])
def test_unknown_kind_is_a_warning(tmp_path: Path, kind: str) -> None:
    write_beads(tmp_path, bead("gt-1"))
    sections = {"odd": SourceConfig(path=".", kind=kind), "town": SourceConfig(path=".")}
    board = WorkReader(sections, tmp_path).board()
    assert ids(board.items) == ["gt-1"]
    assert board.warnings[0].startswith(
        f"source odd cannot be read: unknown kind of source '{kind}'; known: beads, list"
    )


def test_unreadable_file_does_not_hide_other_sources(tmp_path: Path) -> None:
    write_beads(tmp_path / "town", bead("gt-1"))
    (tmp_path / "web.yaml").mkdir()
    board = make_reader(tmp_path, web="web.yaml", town="town").board()
    assert ids(board.items) == ["gt-1"]
    assert board.is_ready(board.items[0])
    assert board.warnings == (f"source web cannot be read: {tmp_path / 'web.yaml'} is not a regular file",)


def test_deferred_item_becomes_ready_without_a_read(tmp_path: Path, reads: list[str]) -> None:
    write_beads(tmp_path, bead("gt-1", defer_until="2026-03-01T12:05:00Z"))
    times = [NOW]
    reader = make_reader(tmp_path, now=lambda: times[0], town=".")
    board = reader.board()
    assert not board.is_ready(board.items[0])
    times[0] += timedelta(minutes=4)
    assert reader.board() is board
    times[0] += timedelta(minutes=1)
    assert reader.board().is_ready(board.items[0])
    assert reads == ["town"]


def test_configuration_can_change(tmp_path: Path, reads: list[str]) -> None:
    write_beads(tmp_path / "town", bead("gt-1"))
    (tmp_path / "web.yaml").write_text("- {id: web-1}\n")
    reader = make_reader(tmp_path, town="town")
    reader.board()
    sections = {"web": SourceConfig(path="web.yaml", kind="list"), "town": SourceConfig(path="town")}
    reader.configure(sections)
    assert ids(reader.board().items) == ["web-1", "gt-1"]
    assert reads == ["town", "web"]
    reader.configure({"web": sections["web"]})
    assert ids(reader.board().items) == ["web-1"]
    assert reader.source("web") is not None
    assert reader.source("town") is None


def test_routes_of_all_sources(tmp_path: Path) -> None:
    file = write_beads(tmp_path / "town", bead("gt-1"))
    file.with_name("routes.jsonl").write_text('{"prefix": "gt-", "path": "rig"}\nnonsense\n')
    reader = make_reader(tmp_path, town="town")
    assert reader.routes() == ((("gt-", tmp_path / "town/rig")),)
    assert reader.board().warnings[0].startswith("source town: routes.jsonl:2: not a route")


def test_file_that_is_replaced_all_the_time(tmp_path: Path) -> None:
    """Each read sees one whole version, never a part or a mixture of two."""
    versions = [[bead(f"gt-{n}", title=f"version {v}") for n in range(200)] for v in range(2)]
    file = write_beads(tmp_path, *versions[0])
    is_over = threading.Event()

    def replace() -> None:
        number = 0
        while not is_over.is_set():
            number += 1
            copy = file.with_suffix(".new")
            copy.write_text("".join(f"{json.dumps(issue)}\n" for issue in versions[number % 2]))
            copy.rename(file)

    writer = threading.Thread(target=replace)
    writer.start()
    try:
        reader = make_reader(tmp_path, town=".")
        for _ in range(50):
            board = reader.board()
            assert board.warnings == ()
            assert len(board.items) == 200
            assert len({item.title for item in board.items}) == 1
    finally:
        is_over.set()
        writer.join()


TOWN = "".join(f"{json.dumps(issue)}\n" for issue in make_town()[:30]).encode()
LIST = b"items:\n" + b"".join(b"- {id: a%d, prompt: do it, depends: [a%d]}\n" % (n, n + 1) for n in range(20))


@st.composite
def damaged_files(draw: st.DrawFn) -> bytes:
    data = draw(st.sampled_from([TOWN, LIST, b"[" + TOWN.replace(b"\n", b",\n")[:-2] + b"]"]))
    begin, end = draw(st.integers(0, len(data))), draw(st.integers(0, 40))
    inserted = draw(st.binary(max_size=6) | st.sampled_from([b"\n", b"[" * 3000, b"{", b'"', b"\xff", b"null", b"0"]))
    return data[:begin] + inserted + data[begin + end :]


@settings(max_examples=sample(100))
@given(st.binary(max_size=200) | damaged_files(), st.binary(max_size=60))
@example(b"[" * 100_000, b"")
@example(b'{"schema_version":1,"data":' * 5000, b"")
@example(b'{"id": "x", "priority": 1' + b"0" * 5000 + b"}", b"")
@example(b'[{"id": "\\ud800"}]', b"")
@example(b'- {id: "\\ud800"}\n- *nothing', b"")
@example(b'{"id": "x", "defer_until": "0001-01-01T00:00:00+14:00"}', b"")
def test_reading_any_bytes_raises_nothing_and_changes_nothing(content: bytes, config: bytes) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        beads = write_beads(directory)
        files = {beads: content, beads.with_name("config.yaml"): config, beads.with_name("routes.jsonl"): content}
        files |= {directory / f"list{suffix}": content for suffix in (".yaml", ".json", ".jsonl")}
        for file, data in files.items():
            file.write_bytes(data)
        before = {file: (file.stat().st_mtime_ns, file.stat().st_ino) for file in files}
        reader = make_reader(directory, town=".", a="list.yaml", b="list.json", c="list.jsonl")
        for board in (reader.board(), reader.sync()):
            for item in board.items:
                assert board.is_ready(item) == (board.why_not_ready(item) is None)
            assert all(warning.isprintable() for warning in board.warnings)
        reader.routes()
        assert {file: file.read_bytes() for file in files} == files
        assert {file: (file.stat().st_mtime_ns, file.stat().st_ino) for file in files} == before
        assert {path for path in directory.rglob("*") if path.is_file()} == files.keys()


@settings(max_examples=sample(30))
@given(st.lists(st.tuples(st.integers(0, 29), st.integers(1, 60)), max_size=4))
def test_damage_of_lines_hides_no_item(cuts: list[tuple[int, int]]) -> None:
    """Every item stays known, and the items of damaged lines are neither ready nor closed by the damage."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        beads = write_beads(directory)
        beads.write_bytes(TOWN)
        reader = make_reader(directory, town=".")
        before = reader.board()
        lines = TOWN.splitlines(keepends=True)
        for line, length in cuts:
            lines[line] = lines[line][:length] + b"\n"
        beads.write_bytes(b"".join(lines))
        board = reader.sync()
        assert sorted(ids(board.items)) == sorted(ids(before.items))
        for line, _ in cuts:
            item = before.items[line]
            current = board.find(item.id)
            assert current is not None
            assert not board.is_ready(current)
            assert current.is_closed == item.is_closed

"""What a job wrote, in pieces, whatever becomes of the file."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rota.ids import JobId
from rota.view.log import PIECE, Output, Text, TextOutput, oversize, pieces, size_of

HUGE = 300_000_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "stdout.log"


def rest(output: Output) -> bytes:
    return b"".join(iter(output.read, b""))


@pytest.mark.parametrize("way", ["part", "follow"])
def test_a_huge_file_is_never_in_memory(path: Path, way: str) -> None:
    with path.open("wb") as file:
        file.truncate(HUGE)
    output = Output(path)
    tracemalloc.start()
    longest = total = count = 0
    for piece in pieces(path, 0, 2**62) if way == "part" else iter(output.read, b""):
        longest, total, count = max(longest, len(piece)), total + len(piece), count + 1
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    output.close()
    assert (longest, total) == (PIECE, HUGE)
    assert count == -(-HUGE // PIECE)
    assert peak < 4 * PIECE


def test_parts(path: Path) -> None:
    data = os.urandom(3 * PIECE)
    path.write_bytes(data)
    for offset, limit in ((0, 1), (5, PIECE), (PIECE - 1, 2 * PIECE), (2 * PIECE, 2**62), (3 * PIECE, 5), (0, 0)):
        assert b"".join(pieces(path, offset, limit)) == data[offset : offset + limit]


def test_a_part_is_of_one_file(path: Path) -> None:
    path.write_bytes(b"a" * 2 * PIECE)
    reading = pieces(path, 0, 2**62)
    next(reading)
    path.rename(path.with_suffix(".1"))
    path.write_bytes(b"b" * 3 * PIECE)
    assert b"".join(reading) == b"a" * PIECE


def test_following_a_file_that_comes_grows_and_is_cut_off(path: Path) -> None:
    output = Output(path)
    assert (rest(output), output.has_more()) == (b"", False)
    path.write_bytes(b"one")
    assert output.has_more()
    assert (rest(output), output.has_more()) == (b"one", False)
    with path.open("ab") as file:
        file.write(b"two")
    assert rest(output) == b"two"
    path.write_bytes(b"x")
    assert output.has_more()
    assert rest(output) == b"x"
    output.close()


def test_what_is_replaced_is_read_to_its_end_first(path: Path) -> None:
    path.write_bytes(b"old")
    output = Output(path)
    assert rest(output) == b"old"
    with path.open("ab") as file:
        path.rename(path.with_suffix(".1"))
        assert not output.has_more(), "gone, and nothing in its place yet"
        path.write_bytes(b"new")
        file.write(b" and the rest")
    assert output.has_more()
    assert rest(output) == b" and the restnew"
    path.unlink()
    path.write_bytes(b"NEW")
    assert output.has_more(), "of the same size, and another"
    assert rest(output) == b"NEW"
    output.close()


def test_from_an_offset_and_from_beyond_the_end(path: Path) -> None:
    path.write_bytes(b"0123456789")
    for offset, text in ((3, b"3456789"), (10, b""), (11, b"0123456789")):
        output = Output(path, offset)
        assert rest(output) == text, "who has read more than there is has read another file"
        output.close()


@pytest.mark.parametrize("thing", ["nothing", "fifo", "directory", "dangling link"])
def test_what_is_no_file_holds_nothing_and_nobody(path: Path, thing: str) -> None:
    if thing == "fifo":
        os.mkfifo(path)
    elif thing == "directory":
        path.mkdir()
    elif thing == "dangling link":
        path.symlink_to("nowhere")
    output = Output(path)
    assert (rest(output), output.has_more(), list(pieces(path, 0, 9)), size_of(path)) == (b"", False, [], 0)


def test_only_more_than_the_limit_is_warned_of(tmp_path: Path) -> None:
    for job, size in ((1, 10), (2, 11)):
        (tmp_path / str(job)).mkdir()
        (tmp_path / str(job) / "stderr.log").write_bytes(b"x" * size)
    said = oversize(tmp_path, [JobId(1), JobId(2), JobId(3)], 10)
    assert said == ["job-2 has written 11 bytes to stderr, more than log.max_bytes (10); it is kept whole"]


@given(written=st.lists(st.binary(max_size=5) | st.sampled_from("aé✓🎉\n").map(str.encode), max_size=12))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_text_is_whole_characters_wherever_it_is_cut(path: Path, written: list[bytes]) -> None:
    """What comes out is what one look at the whole file would give, also for who goes on from the end of any piece."""
    whole = b"".join(written)
    path.write_bytes(b"")
    output = TextOutput(Output(path))
    told: list[Text] = []
    for piece in written:
        with path.open("ab") as file:
            file.write(piece)
        told += iter(output.read, None)
    rest = output.rest()
    told += [] if rest is None else [rest]
    output.close()
    assert "".join(each.text for each in told) == whole.decode("utf-8", "replace")
    assert [each.begin for each in told] == [0, *(each.end for each in told)][: len(told)], "one behind the other"
    assert output.end == len(whole)
    for stop in {0, *(each.end for each in told)}:
        again = TextOutput(Output(path, stop))
        later = [*iter(again.read, None), again.rest()]
        again.close()
        before = "".join(each.text for each in told if each.end <= stop)
        assert before + "".join(each.text for each in later if each is not None) == whole.decode("utf-8", "replace")


def test_a_character_that_is_not_finished_is_kept_until_it_is(path: Path) -> None:
    path.write_bytes("x✓".encode()[:3])
    output = TextOutput(Output(path))
    assert output.read() == Text("x", 0, 1)
    assert output.read() is None
    with path.open("ab") as file:
        file.write("✓".encode()[2:] + b"y")
    assert output.read() == Text("✓y", 1, 5)
    assert output.rest() is None
    output.close()


def test_text_of_a_file_that_is_cut_off_begins_anew(path: Path) -> None:
    path.write_bytes("old✓".encode()[:-1])
    output = TextOutput(Output(path))
    assert output.read() == Text("old", 0, 3)
    path.write_bytes(b"new")
    assert output.read() == Text("new", 0, 3)
    output.close()

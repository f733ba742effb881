"""Logs read in chunks while the file changes."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rota.ids import JobId
from rota.jobs.logs import CHUNK_BYTES, LogReader, TextChunk, TextLogReader, log_size, oversize_warnings, read_chunks

HUGE = 300_000_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "stdout.log"


def read_rest(reader: LogReader) -> bytes:
    return b"".join(iter(reader.read, b""))


@pytest.mark.parametrize("way", ["part", "follow"])
def test_huge_file_is_read_in_chunks(path: Path, way: str) -> None:
    with path.open("wb") as file:
        file.truncate(HUGE)
    reader = LogReader(path)
    tracemalloc.start()
    max_size = total = count = 0
    for chunk in read_chunks(path, 0, 2**62) if way == "part" else iter(reader.read, b""):
        max_size, total, count = max(max_size, len(chunk)), total + len(chunk), count + 1
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    reader.close()
    assert (max_size, total) == (CHUNK_BYTES, HUGE)
    assert count == -(-HUGE // CHUNK_BYTES)
    assert peak < 4 * CHUNK_BYTES


def test_read_chunks_returns_the_requested_part(path: Path) -> None:
    data = os.urandom(3 * CHUNK_BYTES)
    path.write_bytes(data)
    for offset, limit in (
        (0, 1),
        (5, CHUNK_BYTES),
        (CHUNK_BYTES - 1, 2 * CHUNK_BYTES),
        (2 * CHUNK_BYTES, 2**62),
        (3 * CHUNK_BYTES, 5),
        (0, 0),
    ):
        assert b"".join(read_chunks(path, offset, limit)) == data[offset : offset + limit]


def test_read_chunks_stays_with_the_opened_file(path: Path) -> None:
    path.write_bytes(b"a" * 2 * CHUNK_BYTES)
    chunks = read_chunks(path, 0, 2**62)
    next(chunks)
    path.rename(path.with_suffix(".1"))
    path.write_bytes(b"b" * 3 * CHUNK_BYTES)
    assert b"".join(chunks) == b"a" * CHUNK_BYTES


def test_reader_follows_file_that_appears_grows_and_is_truncated(path: Path) -> None:
    reader = LogReader(path)
    assert (read_rest(reader), reader.has_more()) == (b"", False)
    path.write_bytes(b"one")
    assert reader.has_more()
    assert (read_rest(reader), reader.has_more()) == (b"one", False)
    with path.open("ab") as file:
        file.write(b"two")
    assert read_rest(reader) == b"two"
    path.write_bytes(b"x")
    assert reader.has_more()
    assert read_rest(reader) == b"x"
    reader.close()


def test_replaced_file_is_read_to_its_end_first(path: Path) -> None:
    path.write_bytes(b"old")
    reader = LogReader(path)
    assert read_rest(reader) == b"old"
    with path.open("ab") as file:
        path.rename(path.with_suffix(".1"))
        assert not reader.has_more(), "the file is gone and not replaced yet"
        path.write_bytes(b"new")
        file.write(b" and the rest")
    assert reader.has_more()
    assert read_rest(reader) == b" and the restnew"
    path.unlink()
    path.write_bytes(b"NEW")
    assert reader.has_more(), "another file of the same size"
    assert read_rest(reader) == b"NEW"
    reader.close()


def test_reader_starts_at_offset_or_at_zero_beyond_the_end(path: Path) -> None:
    path.write_bytes(b"0123456789")
    for offset, text in ((3, b"3456789"), (10, b""), (11, b"0123456789")):
        reader = LogReader(path, offset)
        assert read_rest(reader) == text, "an offset beyond the end belongs to another file"
        reader.close()


@pytest.mark.parametrize("file_type", ["nothing", "fifo", "directory", "dangling link"])
def test_special_files_are_empty_and_do_not_block(path: Path, file_type: str) -> None:
    if file_type == "fifo":
        os.mkfifo(path)
    elif file_type == "directory":
        path.mkdir()
    elif file_type == "dangling link":
        path.symlink_to("nowhere")
    reader = LogReader(path)
    assert (read_rest(reader), reader.has_more(), list(read_chunks(path, 0, 9)), log_size(path)) == (b"", False, [], 0)


def test_warning_only_for_logs_above_the_limit(tmp_path: Path) -> None:
    for job, size in ((1, 10), (2, 11)):
        (tmp_path / str(job)).mkdir()
        (tmp_path / str(job) / "stderr.log").write_bytes(b"x" * size)
    warnings = oversize_warnings(tmp_path, [JobId(1), JobId(2), JobId(3)], 10)
    assert warnings == ["job-2 has written 11 bytes to stderr, more than log.max_bytes (10); the log is kept in full"]


@given(written=st.lists(st.binary(max_size=5) | st.sampled_from("aé✓🎉\n").map(str.encode), max_size=12))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_text_chunks_contain_whole_characters(path: Path, written: list[bytes]) -> None:
    """The text equals that of the whole file, also for a reader that continues at the end of any chunk."""
    whole = b"".join(written)
    path.write_bytes(b"")
    reader = TextLogReader(LogReader(path))
    chunks: list[TextChunk] = []
    for part in written:
        with path.open("ab") as file:
            file.write(part)
        chunks += iter(reader.read, None)
    rest = reader.flush()
    chunks += [] if rest is None else [rest]
    reader.close()
    assert "".join(chunk.text for chunk in chunks) == whole.decode("utf-8", "replace")
    assert [chunk.begin for chunk in chunks] == [0, *(chunk.end for chunk in chunks)][: len(chunks)], (
        "chunks are contiguous"
    )
    assert reader.end == len(whole)
    for stop in {0, *(chunk.end for chunk in chunks)}:
        second_reader = TextLogReader(LogReader(path, stop))
        later = [*iter(second_reader.read, None), second_reader.flush()]
        second_reader.close()
        before = "".join(chunk.text for chunk in chunks if chunk.end <= stop)
        assert before + "".join(chunk.text for chunk in later if chunk is not None) == whole.decode("utf-8", "replace")


def test_incomplete_character_is_kept_for_the_next_chunk(path: Path) -> None:
    path.write_bytes("x✓".encode()[:3])
    reader = TextLogReader(LogReader(path))
    assert reader.read() == TextChunk("x", 0, 1)
    assert reader.read() is None
    with path.open("ab") as file:
        file.write("✓".encode()[2:] + b"y")
    assert reader.read() == TextChunk("✓y", 1, 5)
    assert reader.flush() is None
    reader.close()


def test_text_of_truncated_file_starts_at_zero(path: Path) -> None:
    path.write_bytes("old✓".encode()[:-1])
    reader = TextLogReader(LogReader(path))
    assert reader.read() == TextChunk("old", 0, 3)
    path.write_bytes(b"new")
    assert reader.read() == TextChunk("new", 0, 3)
    reader.close()

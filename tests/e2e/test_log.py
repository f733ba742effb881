"""What a job writes, byte for byte, while it writes it, and without anybody holding it in memory."""

from __future__ import annotations

import os
import select
import sys
import time
from pathlib import Path

from e2e.rig import PATIENCE, Rota, Stage


def _read(descriptor: int, size: int) -> bytes:
    """Exactly so many bytes, or what came before the end."""
    data = b""
    deadline = time.monotonic() + PATIENCE
    while len(data) < size:
        assert select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))[0], f"silence after {data!r}"
        if not (piece := os.read(descriptor, size - len(data))):
            break
        data += piece
    return data


def test_following_streams_while_it_runs_and_ends_with_it(rota: Rota, stage: Stage) -> None:
    rota.start()
    gates = [stage.gate(f"g{number}") for number in range(3)]
    script = f"""
        echo one; read x < {gates[0]}
        echo two; echo oh >&2; read x < {gates[1]}
        printf three; read x < {gates[2]}
    """
    job = rota.post(["sh", "-c", script])
    rota.running(job)
    following = rota.begin("logs", job, "--follow")
    assert following.stdout is not None
    assert following.stderr is not None
    assert _read(following.stdout.fileno(), 4) == b"one\n"
    stage.release("g0")
    assert _read(following.stdout.fileno(), 4) == b"two\n"
    assert _read(following.stderr.fileno(), 3) == b"oh\n"
    stage.release("g1")
    assert _read(following.stdout.fileno(), 5) == b"three", "not only whole lines"
    assert following.poll() is None
    stage.release("g2")
    said = rota.end(following)
    assert (said.code, said.out, said.err) == (0, "", "")
    assert rota.ask("logs", job, "--follow", "--tail", "1").out == "three"
    assert rota.ask("logs", job).out == "one\ntwo\nthree"
    assert rota.json("logs", job) == {"job": job, "stdout": "one\ntwo\nthree", "stderr": "oh\n"}


def test_following_begins_before_the_job_and_outlasts_a_crash(rota: Rota, stage: Stage) -> None:
    rota.start()
    first = rota.post(stage.actor("first"))
    gate = stage.gate("gate")
    job = rota.post(["sh", "-c", f"echo one; echo said > {stage.pipe}; read x < {gate}; echo two"])
    following = rota.begin("logs", job, "--follow")
    assert following.stdout is not None
    assert stage.hear() == ["first begins"]
    stage.release("first")
    assert stage.hear(2) == ["first ends", "said"]
    assert _read(following.stdout.fileno(), 4) == b"one\n"
    rota.running(job)
    rota.crash()
    stage.release("gate")
    said = rota.end(following)
    assert (said.code, said.out) == (0, "two\n"), "nothing twice, nothing left out"
    assert rota.ended(first)["status"] == "COMPLETED"


def test_any_part_of_it_and_every_byte_as_it_was(rota: Rota) -> None:
    """LESSONS Processes: whole log read into memory; log path lost from the record."""
    rota.start()
    job = rota.post([sys.executable, "-c", "import sys; sys.stdout.buffer.write(bytes(range(256)) * 1000)"])
    path = rota.ended(job)["run"]["log_paths"]["stdout"]
    data = bytes(range(256)) * 1000
    assert Path(path).read_bytes() == data
    log = f"/api/jobs/{job}/logs/stdout"
    for query, part in (
        ("", data),
        ("?offset=10&limit=300", data[10:310]),
        ("?offset=255990", data[255990:]),
        ("?offset=-7", data[-7:]),
        ("?offset=999999", b""),
        ("?limit=0", b""),
        ("?follow=1&offset=255999", data[255999:]),
    ):
        assert rota.api("GET", log + query).body == part, query
    assert rota.api("GET", f"/api/jobs/{job}/logs/stdin").status == 422
    assert rota.api("GET", f"{log}?offset=x").status == 422
    process = rota.begin("logs", job)
    out, err = process.communicate(timeout=PATIENCE)
    assert (out, err) == (data, b"")


def _memory(pid: int, name: str) -> int:
    """Kilobytes."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def test_where_the_log_is_can_be_known_from_the_start(rota: Rota, stage: Stage) -> None:
    """LESSONS Processes: log path lost from the record. It is there as soon as the job runs, and after a crash."""
    rota.start()
    job = rota.post(["sh", "-c", f"echo early; echo said > {stage.pipe}; read x < {stage.gate('on')}"])
    assert stage.hear() == ["said"]
    paths = rota.running(job)["run"]["log_paths"]
    assert Path(paths["stdout"]).read_text() == "early\n"
    rota.crash()
    rota.start()
    assert rota.show(job)["run"]["log_paths"] == paths
    stage.release("on")
    assert rota.ended(job)["run"]["log_paths"] == paths


def test_a_long_log_is_followed_without_being_held(rota: Rota, stage: Stage, tmp_path: Path) -> None:
    """LESSONS Processes: whole log read into memory."""
    pid = rota.start()
    size = 20_000_000
    gate = stage.gate("gate")
    job = rota.post(["sh", "-c", f"head -c {size} /dev/zero; echo written > {stage.pipe}; read x < {gate}"])
    Path(f"/proc/{pid}/clear_refs").write_text("5")  # the peak counts from here
    before = _memory(pid, "VmRSS")
    with (tmp_path / "copy").open("wb") as copy:
        following = rota.begin("logs", job, "--follow", "--stream", "stdout", stdout=copy)
        assert stage.hear() == ["written"]
        stage.release("gate")
        said = following.communicate(timeout=PATIENCE)
    assert (following.returncode, said[1]) == (0, b"")
    assert (tmp_path / "copy").stat().st_size == size
    assert _memory(pid, "VmHWM") - before < 30_000
    with (tmp_path / "again").open("wb") as copy:
        rota.begin("logs", job, stdout=copy).communicate(timeout=PATIENCE)
    assert (tmp_path / "again").stat().st_size == size
    assert _memory(pid, "VmHWM") - before < 30_000


def test_a_reader_that_does_not_read_holds_nobody_up(rota: Rota, stage: Stage) -> None:
    """The pipe of a follower fills; the job, the scheduler and other readers do not notice."""
    rota.start()
    job = rota.post(["sh", "-c", f"head -c 4000000 /dev/zero; echo done > {stage.pipe}"])
    following = rota.begin("logs", job, "--follow")
    assert stage.hear() == ["done"]
    assert rota.ended(job)["status"] == "COMPLETED"
    rota.wait(rota.post(["true"]))
    assert following.stdout is not None
    following.stdout.close()
    assert following.stderr is not None
    following.stderr.close()
    assert following.wait(PATIENCE) == 141, "as SIGPIPE would have it"

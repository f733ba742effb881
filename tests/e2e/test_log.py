"""Logs: returned byte for byte, followed while the job runs, and never held in memory as a whole."""

from __future__ import annotations

import os
import select
import sys
import time
from pathlib import Path

from rota.client.sse import SseMessage
from tests.e2e.event_stream import open_event_stream
from tests.e2e.rig import TIMEOUT, ChildControl, Rota, eventually


def _read(descriptor: int, size: int) -> bytes:
    """Read exactly `size` bytes, or fewer at the end of the stream."""
    data = b""
    deadline = time.monotonic() + TIMEOUT
    while len(data) < size:
        assert select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))[0], f"silence after {data!r}"
        if not (piece := os.read(descriptor, size - len(data))):
            break
        data += piece
    return data


def test_follow_streams_output_until_the_job_ends(rota: Rota, children: ChildControl) -> None:
    rota.start()
    gates = [children.make_gate(f"g{number}") for number in range(3)]
    script = f"""
        echo one; read x < {gates[0]}
        echo two; echo oh >&2; read x < {gates[1]}
        printf three; read x < {gates[2]}
    """
    job = rota.post_job(["sh", "-c", script])
    rota.wait_for_start(job)
    follower = rota.spawn("logs", job, "--follow")
    assert follower.stdout is not None
    assert follower.stderr is not None
    assert _read(follower.stdout.fileno(), 4) == b"one\n"
    children.release("g0")
    assert _read(follower.stdout.fileno(), 4) == b"two\n"
    assert _read(follower.stderr.fileno(), 3) == b"oh\n"
    children.release("g1")
    assert _read(follower.stdout.fileno(), 5) == b"three", "also incomplete lines"
    assert follower.poll() is None
    children.release("g2")
    output = rota.finish(follower)
    assert (output.code, output.out, output.err) == (0, "", "")
    assert rota.run("logs", job, "--follow", "--tail", "1").out == "three"
    assert rota.run("logs", job).out == "one\ntwo\nthree"
    assert rota.json("logs", job) == {"job": job, "stdout": "one\ntwo\nthree", "stderr": "oh\n"}


def test_follow_starts_before_the_job_and_survives_a_crash(rota: Rota, children: ChildControl) -> None:
    rota.start()
    first = rota.post_job(children.gated("first"))
    gate = children.make_gate("gate")
    job = rota.post_job(["sh", "-c", f"echo one; echo written > {children.pipe}; read x < {gate}; echo two"])
    follower = rota.spawn("logs", job, "--follow")
    assert follower.stdout is not None
    assert children.read_lines() == ["first begins"]
    children.release("first")
    assert children.read_lines(2) == ["first ends", "written"]
    assert _read(follower.stdout.fileno(), 4) == b"one\n"
    rota.wait_for_start(job)
    rota.crash()  # the follower's process starts the scheduler again
    children.release("gate")
    output = rota.finish(follower)
    assert (output.code, output.out) == (0, "two\n"), "no gap and no repeat"
    assert rota.wait_for_end(first)["status"] == "COMPLETED"


def test_any_byte_range_is_returned_unchanged(rota: Rota) -> None:
    """LESSONS Processes: whole log read into memory; log path lost from the record."""
    rota.start()
    job = rota.post_job([sys.executable, "-c", "import sys; sys.stdout.buffer.write(bytes(range(256)) * 1000)"])
    path = rota.wait_for_end(job)["run"]["log_paths"]["stdout"]
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
    process = rota.spawn("logs", job)
    out, err = process.communicate(timeout=TIMEOUT)
    assert (out, err) == (data, b"")


def _memory_kilobytes(pid: int, name: str) -> int:
    """Value of the field `name` of /proc/PID/status, in kilobytes."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def test_log_paths_are_known_while_the_job_runs(rota: Rota, children: ChildControl) -> None:
    """LESSONS Processes: log path lost from the record. The path is known once the job runs, and after a crash."""
    rota.start()
    job = rota.post_job(
        ["sh", "-c", f"echo early; echo written > {children.pipe}; read x < {children.make_gate('on')}"]
    )
    assert children.read_lines() == ["written"]
    paths = rota.wait_for_start(job)["run"]["log_paths"]
    assert Path(paths["stdout"]).read_text() == "early\n"
    rota.crash()
    rota.start()
    assert rota.show(job)["run"]["log_paths"] == paths
    children.release("on")
    assert rota.wait_for_end(job)["run"]["log_paths"] == paths


def test_following_a_long_log_uses_constant_memory(rota: Rota, children: ChildControl, tmp_path: Path) -> None:
    """LESSONS Processes: whole log read into memory."""
    pid = rota.start()
    size = 20_000_000
    gate = children.make_gate("gate")
    job = rota.post_job(["sh", "-c", f"head -c {size} /dev/zero; echo written > {children.pipe}; read x < {gate}"])
    Path(f"/proc/{pid}/clear_refs").write_text("5")  # reset the peak
    before = _memory_kilobytes(pid, "VmRSS")
    with (tmp_path / "copy").open("wb") as copy:
        follower = rota.spawn("logs", job, "--follow", "--stream", "stdout", stdout=copy)
        assert children.read_lines() == ["written"]
        children.release("gate")
        output = follower.communicate(timeout=TIMEOUT)
    assert (follower.returncode, output[1]) == (0, b"")
    assert (tmp_path / "copy").stat().st_size == size
    assert _memory_kilobytes(pid, "VmHWM") - before < 30_000
    with (tmp_path / "again").open("wb") as copy:
        rota.spawn("logs", job, stdout=copy).communicate(timeout=TIMEOUT)
    assert (tmp_path / "again").stat().st_size == size
    assert _memory_kilobytes(pid, "VmHWM") - before < 30_000


def test_blocked_follower_does_not_block_others(rota: Rota, children: ChildControl) -> None:
    """A follower with a full pipe does not affect the job, the scheduler or other readers."""
    rota.start()
    job = rota.post_job(["sh", "-c", f"head -c 4000000 /dev/zero; echo done > {children.pipe}"])
    follower = rota.spawn("logs", job, "--follow")
    assert children.read_lines() == ["done"]
    assert rota.wait_for_end(job)["status"] == "COMPLETED"
    rota.wait(rota.post_job(["true"]))
    assert follower.stdout is not None
    follower.stdout.close()
    assert follower.stderr is not None
    follower.stderr.close()
    assert follower.wait(TIMEOUT) == 141, "the exit code of SIGPIPE"


def test_complete_responses_have_a_content_length(rota: Rota, children: ChildControl) -> None:
    """Content-Length lets a client detect a truncated response and show progress."""
    rota.start()
    job = rota.post_job(["sh", "-c", f"printf 0123456789; echo written > {children.pipe}; exec sleep 600"])
    assert children.read_lines() == ["written"]

    def read_length(method: str, query: str, **headers: str) -> tuple[int, str | None]:
        connection = rota.connection()
        connection.request(method, f"/api/jobs/{job}/logs/stdout{query}", headers=headers)
        response = connection.getresponse()
        output = response.status, response.headers["Content-Length"]
        connection.close()
        return output

    for _ in ("while it runs", "when it has ended"):
        for method in ("GET", "HEAD"):
            assert read_length(method, "") == (200, "10")
            assert read_length(method, "?offset=-3") == (200, "3")
            assert read_length(method, "?offset=2&limit=4") == (200, "4")
            assert read_length(method, "?offset=99") == (200, "0")
            assert read_length(method, "", Range="bytes=2-4") == (206, "3")
            running = rota.show(job)["finished_at"] is None
            assert read_length(method, "?follow=1&offset=4") == (200, None if running else "6")
        if running:
            rota.run("cancel", job)
    assert rota.api("GET", f"/api/jobs/{job}/logs/stdout?follow=1&offset=4").body == b"456789"


def test_accept_any_follows_both_streams(rota: Rota) -> None:
    rota.start()
    job = rota.post_job(["sh", "-c", "echo out; echo err >&2"])
    rota.wait_for_end(job)
    target = f"/api/jobs/{job}/logs?follow=1"
    output = rota.api("GET", target, Accept="*/*").body
    assert b'"text":"out\\n"' in output
    assert b'"text":"err\\n"' in output
    assert output.rstrip().splitlines()[-2] == b"event: end"
    assert rota.api("GET", target, Accept="application/json").json()["stdout"]["size"] == 4
    raw_media = "application/octet-stream"
    assert rota.api("GET", f"/api/jobs/{job}/logs/stdout?follow=1", Accept=raw_media).body == b"out\n"


HUGE = 300_000_000


def _read_range(rota: Rota, job: str, part: str) -> tuple[int, str | None, int, bytes]:
    """Status, `Content-Range`, number of bytes and last bytes of a ranged response, read in pieces."""
    connection = rota.connection()
    connection.request("GET", f"/api/jobs/{job}/logs/stdout", headers={"Range": part} if part else {})
    response = connection.getresponse()
    size, last = 0, b""
    while piece := response.read(1 << 20):
        size, last = size + len(piece), piece[-8:]
    connection.close()
    return response.status, response.headers["Content-Range"], size, last


def test_reading_a_huge_log_uses_constant_memory(rota: Rota, children: ChildControl) -> None:
    """LESSONS Processes: whole log read into memory. 300 MB, most of it a hole."""
    pid = rota.start()
    script = f'truncate -s {HUGE} "$ROTA_HOME/jobs/1/stdout.log"; echo; echo the end; echo done > {children.pipe}'
    job = rota.post_job(["sh", "-c", script])
    assert children.read_lines() == ["done"]
    rota.wait_for_end(job)
    size = HUGE + len("\nthe end\n")
    Path(f"/proc/{pid}/clear_refs").write_text("5")  # reset the peak
    before = _memory_kilobytes(pid, "VmRSS")
    assert rota.run("logs", job, "--tail", "1").out == "the end\n"
    assert rota.run("logs", job, "--bytes", "4").out == "end\n"
    assert rota.json("logs", job, "--bytes", "4")["stdout"] == "end\n"
    assert rota.run("logs", job, "--tail", "1", "--follow").out == "the end\n"
    assert _read_range(rota, job, "bytes=-8") == (206, f"bytes {size - 8}-{size - 1}/{size}", 8, b"the end\n")
    assert _read_range(rota, job, f"bytes={HUGE + 1}-{HUGE + 3}") == (
        206,
        f"bytes {HUGE + 1}-{HUGE + 3}/{size}",
        3,
        b"the",
    )
    assert _read_range(rota, job, f"bytes={HUGE + 5}-") == (206, f"bytes {HUGE + 5}-{size - 1}/{size}", 4, b"end\n")
    assert _read_range(rota, job, f"bytes={HUGE + 5}-{size * 9}")[1] == f"bytes {HUGE + 5}-{size - 1}/{size}"
    assert _read_range(rota, job, f"bytes={size}-")[:2] == (416, f"bytes */{size}")
    assert _read_range(rota, job, "lines=1-2")[0] == 200, "an unknown range unit is ignored"
    assert _read_range(rota, job, "") == (200, None, size, b"the end\n")
    assert _memory_kilobytes(pid, "VmHWM") - before < 30_000, "kilobytes, for a log of 300,000"
    assert rota.api("GET", f"/api/jobs/{job}/logs").json() == {
        "job": job,
        "stdout": {"path": str(rota.home / "jobs/1/stdout.log"), "size": size},
        "stderr": {"path": str(rota.home / "jobs/1/stderr.log"), "size": 0},
        "warning": None,
    }


def test_follow_handles_truncated_and_replaced_logs(rota: Rota, children: ChildControl) -> None:
    rota.start()
    gates = [children.make_gate(f"g{number}") for number in range(3)]
    script = f"""
        log=$ROTA_HOME/jobs/1/stdout.log
        echo before; read x < {gates[0]}
        : > $log; echo cut; read x < {gates[1]}
        mv $log $log.1; echo rest of the old one; echo new > $log; read x < {gates[2]}
        printf '\\000\\377' >> $log
    """
    job = rota.post_job(["sh", "-c", script])
    rota.wait_for_start(job)
    follower = rota.spawn("logs", job, "--follow", "--stream", "stdout")
    assert follower.stdout is not None
    received = follower.stdout.fileno()
    assert _read(received, 7) == b"before\n"
    children.release("g0")
    assert _read(received, 4) == b"cut\n"
    children.release("g1")
    assert _read(received, 24) == b"rest of the old one\nnew\n"
    children.release("g2")
    out, err = follower.communicate(timeout=TIMEOUT)
    assert (follower.returncode, out, err) == (0, b"\x00\xff", b"")


def test_follow_ends_for_a_silent_and_for_a_cancelled_job(rota: Rota, children: ChildControl) -> None:
    rota.start()
    silent = rota.post_job(children.gated("silent"))
    queued = rota.post_job(["true"])
    assert children.read_lines() == ["silent begins"]
    follower = [rota.spawn("logs", job, "--follow") for job in (silent, queued)]
    rota.run("cancel", queued)
    output = rota.finish(follower[1])
    assert (output.code, output.out, output.err) == (0, "", "")
    assert follower[0].poll() is None
    children.release("silent")
    output = rota.finish(follower[0])
    assert (output.code, output.out, output.err) == (0, "", "")


def test_fifo_as_log_does_not_block(rota: Rota, children: ChildControl) -> None:
    rota.start()
    job = rota.post_job(
        ["sh", "-c", f'cd "$ROTA_HOME/jobs/1"; rm stdout.log; mkfifo stdout.log; echo x > {children.pipe}']
    )
    assert children.read_lines() == ["x"]
    rota.wait_for_end(job)
    for words in ((), ("--tail", "3"), ("--follow",)):
        assert rota.run("logs", job, *words).out == ""


def test_output_beyond_the_limit_is_kept_with_a_warning(rota: Rota, children: ChildControl) -> None:
    rota.start()
    job = rota.post_job(
        [
            "sh",
            "-c",
            f"head -c 5000 /dev/zero >&2; echo written > {children.pipe}; read x < {children.make_gate('gate')}",
        ]
    )
    assert children.read_lines() == ["written"]
    rota.wait_for_start(job)
    assert rota.status()["errors"] == []
    rota.run("config", "set", "log.max_bytes", "4999")
    warning = f"{job} has written 5,000 bytes to stderr, more than log.max_bytes (4,999); the log is kept in full"
    eventually(lambda: rota.status()["errors"] == [warning], description="the warning")
    assert f"error          {warning}" in rota.run("status").out
    output = rota.run("show", job)
    assert output.err == f"rota: warning: {warning}\n"
    assert rota.json("show", job)["status"] == "RUNNING", "the job continues"
    children.release("gate")
    assert rota.wait_for_end(job)["status"] == "COMPLETED"
    assert rota.run("show", job).err == f"rota: warning: {warning}\n", "also after the job has ended"
    assert rota.status()["errors"] == []
    assert (rota.home / "jobs/1/stderr.log").stat().st_size == 5000
    assert "log.max_bytes cannot be" in rota.run("config", "set", "log.max_bytes", "0", code=2).err
    rota.run("config", "set", "log.max_bytes", "5000")
    eventually(lambda: rota.run("show", job).err == "", description="no warning: the size equals the limit")


def _join_pieces(messages: list[SseMessage]) -> str:
    """Join the pieces. Each piece must begin at the end of the previous one."""
    text, end = "", 0
    for message in messages:
        piece = message.json()
        assert piece["offset"] == end
        end += len(piece["text"].encode())
        assert message.id == str(end), "the id is the end of the piece, in bytes"
        text += piece["text"]
    return text


def test_followed_messages_never_split_a_character(rota: Rota, children: ChildControl) -> None:
    """The job writes byte by byte, with a pause inside each character."""
    rota.start()
    text = "aé✓🎉\n" * 3
    script = (
        "import sys, time\n"
        f"for byte in {text.encode()!r}:\n"
        "    sys.stdout.buffer.write(bytes([byte])); sys.stdout.flush(); time.sleep(0.02)\n"
        f"open({str(children.pipe)!r}, 'w').write('written\\n'); open({str(children.make_gate('end'))!r}).read()\n"
        "sys.stdout.buffer.write(b'\\xe2\\x9c'); sys.exit(3)"
    )
    job = rota.post_job([sys.executable, "-c", script])
    log = f"/api/jobs/{job}/logs/stdout?follow=1"
    with open_event_stream(rota, log) as stream:
        received: list[SseMessage] = []
        while _join_pieces(received) != text:
            received += stream.read()
        assert children.read_lines() == ["written"]
        assert len(received) > 3, "in several messages"
        children.release("end")
        rest, end = stream.read_to_end()
    size = len(text.encode())
    assert (rest.id, rest.json()) == (str(size + 2), {"stream": "stdout", "offset": size, "text": "\ufffd"})
    assert (end.event, end.id, end.json()) == ("end", rest.id, {"job": job, "status": "FAILED", "exit_code": 3})
    for number, message in enumerate(received):
        with open_event_stream(rota, log, message.id) as stream:
            *later, _end = stream.read_to_end()
        assert "".join(message.json()["text"] for message in later) == (
            "".join(message.json()["text"] for message in received[number + 1 :]) + "\ufffd"
        )


def test_follow_of_an_ended_job_returns_both_streams(rota: Rota) -> None:
    rota.start()
    job = rota.post_job(["sh", "-c", "echo out; echo error >&2"])
    rota.wait_for_end(job)
    with open_event_stream(rota, f"/api/jobs/{job}/logs?follow=1") as stream:
        out, error, end = stream.read_to_end()
    assert (out.id, out.json()) == ("4.0", {"stream": "stdout", "offset": 0, "text": "out\n"})
    assert (error.id, error.json()) == ("4.6", {"stream": "stderr", "offset": 0, "text": "error\n"})
    assert (end.event, end.id, end.json()["status"]) == ("end", "4.6", "COMPLETED")
    with open_event_stream(rota, f"/api/jobs/{job}/logs?follow=1", "4.2") as stream:
        error, end = stream.read_to_end()
    assert error.json() == {"stream": "stderr", "offset": 2, "text": "ror\n"}
    for last_event_id in ("4", "4.6.8", "x", "-1"):
        request = {"Accept": "text/event-stream", "Last_Event_ID": last_event_id}
        assert rota.api("GET", f"/api/jobs/{job}/logs?follow=1", **request).status == 422
    assert rota.api("GET", f"/api/jobs/{job}/logs/stdout?follow=1").body == b"out\n", (
        "raw bytes without Accept: text/event-stream"
    )


def test_follow_of_an_earlier_run_returns_its_log(rota: Rota) -> None:
    rota.start()
    job = rota.post_job(["sh", "-c", "echo first; exit 4"])
    run = rota.wait_for_end(job)["run"]["id"]
    rota.api("POST", "/api/scheduler/pause", {"scope": "global"})
    rota.run("rewind", job)
    with open_event_stream(rota, f"/api/jobs/{job}/logs/stdout?follow=1&run={run}") as stream:
        piece, end = stream.read_to_end()
    assert piece.json()["text"] == "first\n"
    assert end.json() == {"job": job, "status": "FAILED", "exit_code": 4}

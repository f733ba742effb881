"""What a job writes, byte for byte, while it writes it, and without anybody holding it in memory."""

from __future__ import annotations

import os
import select
import sys
import time
from pathlib import Path

from e2e.listening import listening
from e2e.rig import PATIENCE, Rota, Stage, eventually
from rota.client.message import Message


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


def test_what_has_a_length_says_so(rota: Rota, stage: Stage) -> None:
    """So a client can tell a whole answer from one that broke off, and show how far it is."""
    rota.start()
    job = rota.post(["sh", "-c", f"printf 0123456789; echo written > {stage.pipe}; exec sleep 600"])
    assert stage.hear() == ["written"]

    def told(method: str, query: str, **headers: str) -> tuple[int, str | None]:
        connection = rota.connection()
        connection.request(method, f"/api/jobs/{job}/logs/stdout{query}", headers=headers)
        response = connection.getresponse()
        said = response.status, response.headers["Content-Length"]
        connection.close()
        return said

    for _ in ("while it runs", "when it has ended"):
        for method in ("GET", "HEAD"):
            assert told(method, "") == (200, "10")
            assert told(method, "?offset=-3") == (200, "3")
            assert told(method, "?offset=2&limit=4") == (200, "4")
            assert told(method, "?offset=99") == (200, "0")
            assert told(method, "", Range="bytes=2-4") == (206, "3")
            running = rota.show(job)["finished_at"] is None
            assert told(method, "?follow=1&offset=4") == (200, None if running else "6")
        if running:
            rota.ask("cancel", job)
    assert rota.api("GET", f"/api/jobs/{job}/logs/stdout?follow=1&offset=4").body == b"456789"


def test_plain_curl_follows_both_streams(rota: Rota) -> None:
    rota.start()
    job = rota.post(["sh", "-c", "echo out; echo err >&2"])
    rota.ended(job)
    target = f"/api/jobs/{job}/logs?follow=1"
    said = rota.api("GET", target, Accept="*/*").body
    assert b'"text":"out\\n"' in said
    assert b'"text":"err\\n"' in said
    assert said.rstrip().splitlines()[-2] == b"event: end"
    assert rota.api("GET", target, Accept="application/json").json()["stdout"]["size"] == 4
    refused = "text/event-stream;q=0, application/octet-stream"
    assert rota.api("GET", f"/api/jobs/{job}/logs/stdout?follow=1", Accept=refused).body == b"out\n"


HUGE = 300_000_000


def _asked(rota: Rota, job: str, part: str) -> tuple[int, str | None, int, bytes]:
    """Status, `Content-Range`, how many bytes came, and the last of them; read a piece at a time here too."""
    connection = rota.connection()
    connection.request("GET", f"/api/jobs/{job}/logs/stdout", headers={"Range": part} if part else {})
    response = connection.getresponse()
    size, last = 0, b""
    while piece := response.read(1 << 20):
        size, last = size + len(piece), piece[-8:]
    connection.close()
    return response.status, response.headers["Content-Range"], size, last


def test_a_huge_log_costs_a_piece_of_it(rota: Rota, stage: Stage) -> None:
    """LESSONS Processes: whole log read into memory. 300 MB, most of it a hole."""
    pid = rota.start()
    script = f'truncate -s {HUGE} "$ROTA_HOME/jobs/1/stdout.log"; echo; echo the end; echo done > {stage.pipe}'
    job = rota.post(["sh", "-c", script])
    assert stage.hear() == ["done"]
    rota.ended(job)
    size = HUGE + len("\nthe end\n")
    Path(f"/proc/{pid}/clear_refs").write_text("5")  # the peak counts from here
    before = _memory(pid, "VmRSS")
    assert rota.ask("logs", job, "--tail", "1").out == "the end\n"
    assert rota.ask("logs", job, "--bytes", "4").out == "end\n"
    assert rota.json("logs", job, "--bytes", "4")["stdout"] == "end\n"
    assert rota.ask("logs", job, "--tail", "1", "--follow").out == "the end\n"
    assert _asked(rota, job, "bytes=-8") == (206, f"bytes {size - 8}-{size - 1}/{size}", 8, b"the end\n")
    assert _asked(rota, job, f"bytes={HUGE + 1}-{HUGE + 3}") == (206, f"bytes {HUGE + 1}-{HUGE + 3}/{size}", 3, b"the")
    assert _asked(rota, job, f"bytes={HUGE + 5}-") == (206, f"bytes {HUGE + 5}-{size - 1}/{size}", 4, b"end\n")
    assert _asked(rota, job, f"bytes={HUGE + 5}-{size * 9}")[1] == f"bytes {HUGE + 5}-{size - 1}/{size}"
    assert _asked(rota, job, f"bytes={size}-")[:2] == (416, f"bytes */{size}")
    assert _asked(rota, job, "lines=1-2")[0] == 200, "what is not understood is passed over"
    assert _asked(rota, job, "") == (200, None, size, b"the end\n")
    assert _memory(pid, "VmHWM") - before < 30_000, "kilobytes, of 300,000"
    assert rota.api("GET", f"/api/jobs/{job}/logs").json() == {
        "job": job,
        "stdout": {"path": str(rota.home / "jobs/1/stdout.log"), "size": size},
        "stderr": {"path": str(rota.home / "jobs/1/stderr.log"), "size": 0},
        "warning": None,
    }


def test_following_what_is_cut_off_or_replaced(rota: Rota, stage: Stage) -> None:
    rota.start()
    gates = [stage.gate(f"g{number}") for number in range(3)]
    script = f"""
        log=$ROTA_HOME/jobs/1/stdout.log
        echo before; read x < {gates[0]}
        : > $log; echo cut; read x < {gates[1]}
        mv $log $log.1; echo rest of the old one; echo new > $log; read x < {gates[2]}
        printf '\\000\\377' >> $log
    """
    job = rota.post(["sh", "-c", script])
    rota.running(job)
    following = rota.begin("logs", job, "--follow", "--stream", "stdout")
    assert following.stdout is not None
    heard = following.stdout.fileno()
    assert _read(heard, 7) == b"before\n"
    stage.release("g0")
    assert _read(heard, 4) == b"cut\n"
    stage.release("g1")
    assert _read(heard, 24) == b"rest of the old one\nnew\n"
    stage.release("g2")
    out, err = following.communicate(timeout=PATIENCE)
    assert (following.returncode, out, err) == (0, b"\x00\xff", b"")


def test_following_what_never_wrote_and_what_never_ran(rota: Rota, stage: Stage) -> None:
    rota.start()
    silent = rota.post(stage.actor("silent"))
    queued = rota.post(["true"])
    assert stage.hear() == ["silent begins"]
    following = [rota.begin("logs", job, "--follow") for job in (silent, queued)]
    rota.ask("cancel", queued)
    said = rota.end(following[1])
    assert (said.code, said.out, said.err) == (0, "", "")
    assert following[0].poll() is None
    stage.release("silent")
    said = rota.end(following[0])
    assert (said.code, said.out, said.err) == (0, "", "")


def test_a_fifo_in_the_place_of_a_log_holds_nobody_up(rota: Rota, stage: Stage) -> None:
    rota.start()
    job = rota.post(["sh", "-c", f'cd "$ROTA_HOME/jobs/1"; rm stdout.log; mkfifo stdout.log; echo x > {stage.pipe}'])
    assert stage.hear() == ["x"]
    rota.ended(job)
    for words in ((), ("--tail", "3"), ("--follow",)):
        assert rota.ask("logs", job, *words).out == ""


def test_output_beyond_the_limit_is_warned_of_and_kept(rota: Rota, stage: Stage) -> None:
    rota.start()
    job = rota.post(
        ["sh", "-c", f"head -c 5000 /dev/zero >&2; echo said > {stage.pipe}; read x < {stage.gate('gate')}"]
    )
    assert stage.hear() == ["said"]
    rota.running(job)
    assert rota.status()["trouble"] == []
    rota.ask("config", "set", "log.max_bytes", "4999")
    warning = f"{job} has written 5,000 bytes to stderr, more than log.max_bytes (4,999); it is kept whole"
    eventually(lambda: rota.status()["trouble"] == [warning], what="the warning")
    assert f"trouble        {warning}" in rota.ask("status").out
    said = rota.ask("show", job)
    assert said.err == f"rota: warning: {warning}\n"
    assert rota.json("show", job)["status"] == "RUNNING", "it goes on"
    stage.release("gate")
    assert rota.ended(job)["status"] == "COMPLETED"
    assert rota.ask("show", job).err == f"rota: warning: {warning}\n", "also when it has ended"
    assert rota.status()["trouble"] == []
    assert (rota.home / "jobs/1/stderr.log").stat().st_size == 5000
    assert "log.max_bytes cannot be" in rota.ask("config", "set", "log.max_bytes", "0", code=2).err
    rota.ask("config", "set", "log.max_bytes", "5000")
    eventually(lambda: rota.ask("show", job).err == "", what="no warning: it is no more than that")


def _told(messages: list[Message]) -> str:
    """What the pieces come to; each begins where the one before ended."""
    text, end = "", 0
    for message in messages:
        piece = message.json()
        assert piece["offset"] == end
        end += len(piece["text"].encode())
        assert message.id == str(end), "its end, in bytes"
        text += piece["text"]
    return text


def test_following_as_messages_never_cuts_a_character(rota: Rota, stage: Stage) -> None:
    """Written byte by byte, with a pause within every character."""
    rota.start()
    text = "aé✓🎉\n" * 3
    script = (
        "import sys, time\n"
        f"for byte in {text.encode()!r}:\n"
        "    sys.stdout.buffer.write(bytes([byte])); sys.stdout.flush(); time.sleep(0.02)\n"
        f"open({str(stage.pipe)!r}, 'w').write('written\\n'); open({str(stage.gate('end'))!r}).read()\n"
        "sys.stdout.buffer.write(b'\\xe2\\x9c'); sys.exit(3)"
    )
    job = rota.post([sys.executable, "-c", script])
    log = f"/api/jobs/{job}/logs/stdout?follow=1"
    with listening(rota, log) as stream:
        heard: list[Message] = []
        while _told(heard) != text:
            heard += stream.hear()
        assert stage.hear() == ["written"]
        assert len(heard) > 3, "as it was written"
        stage.release("end")
        rest, end = stream.rest()
    size = len(text.encode())
    assert (rest.id, rest.json()) == (str(size + 2), {"stream": "stdout", "offset": size, "text": "\ufffd"})
    assert (end.event, end.id, end.json()) == ("end", rest.id, {"job": job, "status": "FAILED", "exit_code": 3})
    for number, message in enumerate(heard):
        with listening(rota, log, message.id) as stream:
            *later, _end = stream.rest()
        assert "".join(each.json()["text"] for each in later) == (
            "".join(each.json()["text"] for each in heard[number + 1 :]) + "\ufffd"
        )


def test_following_both_streams_of_a_job_that_has_ended(rota: Rota) -> None:
    rota.start()
    job = rota.post(["sh", "-c", "echo out; echo error >&2"])
    rota.ended(job)
    with listening(rota, f"/api/jobs/{job}/logs?follow=1") as stream:
        out, error, end = stream.rest()
    assert (out.id, out.json()) == ("4.0", {"stream": "stdout", "offset": 0, "text": "out\n"})
    assert (error.id, error.json()) == ("4.6", {"stream": "stderr", "offset": 0, "text": "error\n"})
    assert (end.event, end.id, end.json()["status"]) == ("end", "4.6", "COMPLETED")
    with listening(rota, f"/api/jobs/{job}/logs?follow=1", "4.2") as stream:
        error, end = stream.rest()
    assert error.json() == {"stream": "stderr", "offset": 2, "text": "ror\n"}
    for given in ("4", "4.6.8", "x", "-1"):
        asked = {"Accept": "text/event-stream", "Last_Event_ID": given}
        assert rota.api("GET", f"/api/jobs/{job}/logs?follow=1", **asked).status == 422
    assert rota.api("GET", f"/api/jobs/{job}/logs/stdout?follow=1").body == b"out\n", "bytes, where they are asked for"


def test_following_an_earlier_run_tells_what_it_left(rota: Rota) -> None:
    rota.start()
    job = rota.post(["sh", "-c", "echo first; exit 4"])
    run = rota.ended(job)["run"]["id"]
    rota.api("POST", "/api/scheduler/pause", {"scope": "global"})
    rota.ask("rewind", job)
    with listening(rota, f"/api/jobs/{job}/logs/stdout?follow=1&run={run}") as stream:
        piece, end = stream.rest()
    assert piece.json()["text"] == "first\n"
    assert end.json() == {"job": job, "status": "FAILED", "exit_code": 4}

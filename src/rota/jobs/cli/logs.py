"""`rota logs`: print the output of a job byte for byte, each stream to its own descriptor, and follow it on request."""

from __future__ import annotations

import argparse
import selectors
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack

from rota.cli.parser import UsageError, job_id
from rota.cli.terminal import checked_output, print_json, print_notice
from rota.client.problem import ConnectionBroken, NotRunning
from rota.client.requests.jobs import LOG_CHUNK_BYTES, follow_log, get_job, get_log, get_logs, get_run
from rota.client.retrying import STORE_POLL_INTERVAL, StoreOutage
from rota.client.session import SchedulerSession
from rota.client.transport import ResponseStream
from rota.errors import StoreUnavailable
from rota.home import find_home
from rota.jobs.cli.stored_job import StoredJob, StoredLog

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rota.client.requests import Json
    from rota.home import Home

_STREAMS = {"stdout": ("stdout",), "stderr": ("stderr",), "both": ("stdout", "stderr")}
_SEARCH_CHUNK_BYTES = 1 << 16
"""Bytes per read while searching backward from the end."""


def add_logs_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("job", metavar="JOB|RUN", help="The job, with its current run, or one of its runs.")
    parser.add_argument("--run", metavar="RUN", help="Print this run of the job; a rewound job has earlier runs.")
    parser.add_argument("--stream", choices=_STREAMS, default="both", help="Print only this stream (default: both).")
    parser.add_argument(
        "-f", "--follow", action="store_true", help="Follow the output until the job and its retries have ended."
    )
    end = parser.add_mutually_exclusive_group()
    end.add_argument("--tail", type=int, metavar="N", help="Start with the last N lines of each stream.")
    end.add_argument("--bytes", type=int, metavar="N", help="Start with the last N bytes of each stream.")


def run_logs(args: argparse.Namespace) -> int:
    if args.follow and args.json:
        raise UsageError("--follow and --json cannot be combined, because JSON must be complete; remove one of them")
    if args.tail is not None and args.tail < 0:
        raise UsageError("--tail takes the number of lines to show, 0 or more")
    if args.bytes is not None and args.bytes < 0:
        raise UsageError("--bytes takes the number of bytes to show, 0 or more")
    if args.run is not None and args.job.startswith("run-"):
        raise UsageError("--run takes a job as argument; remove --run, or name the job instead of the run")
    session = SchedulerSession(find_home(args.home), is_read_only=True)
    try:
        job = _job_of_run(session, args) if args.job.startswith("run-") else job_id(args.job)
        if args.follow and args.run:
            raise UsageError("--follow follows the current run of a job; remove the run, or remove --follow")
        offsets = _print_logs(ServedJob(session, job), args)
        if args.follow:
            follow_chain(session, job, _STREAMS[args.stream], offsets)
    except NotRunning as error:
        if session.has_answered:
            raise
        _print_stored_logs(session.home, args, error)
    return 0


def _print_stored_logs(home: Home, args: argparse.Namespace, error: NotRunning) -> None:
    """Print the files of a job whose scheduler is stopped."""
    if args.job.startswith("run-"):
        raise NotRunning(
            f"{error.message}\nwithout a scheduler, name the job of the run: `rota logs JOB --run {args.job}`",
            has_stale_socket=error.has_stale_socket,
        ) from None
    stored = StoredJob(home, job_id(args.job), error)
    whole = argparse.Namespace(**{**vars(args), "follow": False})
    _print_logs(stored, whole)
    if args.follow:
        raise error from None
    print_notice(stored.note)


def _print_logs(job: ServedJob | StoredJob, args: argparse.Namespace) -> dict[str, int]:
    """Print the stored output, unless all of it is followed. Return the offset at which each stream continues."""
    logs = {name: job.log(name, args.run) for name in _STREAMS[args.stream]}
    offsets = {name: _start_offset(log, args) for name, log in logs.items()}
    if args.json:
        whole = {name: b"".join(read_chunks(log, offsets[name])) for name, log in logs.items()}
        print_json({"job": job.id, **{name: text.decode("utf-8", "replace") for name, text in whole.items()}})
    elif not args.follow or args.tail is not None or args.bytes is not None:
        for name, log in logs.items():
            for chunk in read_chunks(log, offsets[name]):
                _write_log(name, chunk)
                offsets[name] += len(chunk)
    return offsets


class ServedJob:
    """Logs of a job that the scheduler serves."""

    def __init__(self, session: SchedulerSession, job: str) -> None:
        self.id = job
        self._session = session

    def log(self, stream: str, run: str | None) -> ServedLog:
        return ServedLog(self._session, self.id, stream, run)


class ServedLog:
    def __init__(self, session: SchedulerSession, job: str, stream: str, run: str | None) -> None:
        self._session = session
        self._job = job
        self._stream = stream
        self._run = run

    def size(self) -> int:
        logs = self._session.request_json(get_logs(self._job, run=self._run))
        size: int = logs[self._stream]["size"]
        return size

    def read(self, offset: int, limit: int) -> bytes:
        request = get_log(self._job, self._stream, offset=offset, limit=limit, run=self._run)
        return self._session.request(request).body


def _job_of_run(session: SchedulerSession, args: argparse.Namespace) -> str:
    """Return the job of the run that was given instead of a job."""
    job: str = session.request_json(get_run(args.job))["job"]
    args.run = args.job
    return job


def read_chunks(log: ServedLog | StoredLog, offset: int) -> Iterator[bytes]:
    """Yield the current content of the log from `offset` on, in chunks."""
    while True:
        chunk = log.read(offset, LOG_CHUNK_BYTES)
        if chunk:
            yield chunk
        offset += len(chunk)
        if len(chunk) < LOG_CHUNK_BYTES:
            return


def _start_offset(log: ServedLog | StoredLog, args: argparse.Namespace) -> int:
    """Return the offset of the first byte to print."""
    last: int | None = args.bytes
    if last is not None:
        return max(0, log.size() - last)
    return 0 if args.tail is None else last_lines_offset(log, log.size(), args.tail)


def last_lines_offset(log: ServedLog | StoredLog, size: int, count: int) -> int:
    """Return the offset of the last `count` lines, searching backward with one chunk in memory."""
    if not count:
        return size
    end = size
    while end > 0:
        start = max(0, end - _SEARCH_CHUNK_BYTES)
        chunk = log.read(start, end - start)
        at = len(chunk) - (end == size)  # the last byte ends the last line and starts no other
        while (at := chunk.rfind(b"\n", 0, at)) >= 0:
            count -= 1
            if not count:
                return start + at + 1
        end = start
    return 0


def follow_chain(
    session: SchedulerSession, job: str, streams: Sequence[str], offsets: Mapping[str, int] | None = None
) -> None:
    """Follow the job and its retries, and return when the chain has ended."""
    while True:
        _follow_job(session, job, streams, offsets)
        following = _next_in_chain(session, job)
        if following is None:
            return
        _print_retry(session.request_json(get_job(job)), following)
        job, offsets = following["id"], None


def _next_in_chain(session: SchedulerSession, job: str) -> Json | None:
    """Return the job that retried this one, or None if it is the last of its chain."""
    response: Json = session.request_json(get_job(job, wait=0))
    if response["id"] == job:
        return None
    while response["retry_of"] not in (None, job):
        response = session.request_json(get_job(response["retry_of"]))
    return response


def _print_retry(ended: Json, following: Json) -> None:
    from rota.cli.rendering import reason_text

    note = reason_text(following)
    outcome = f"{ended['id']} {ended['status']}: {ended['reason']}" if ended["reason"] else f"{ended['id']} ended"
    print_notice(f"{outcome}; following {following['id']}" + (f", {note}" if note else ""))


def _follow_job(
    session: SchedulerSession, job: str, streams: Sequence[str], offsets: Mapping[str, int] | None = None
) -> None:
    """Copy the logs byte for byte, and return when the job has ended and its logs are copied."""
    copied = {name: (offsets or {}).get(name, 0) for name in streams}
    outage = StoreOutage()
    with selectors.DefaultSelector() as selector, ExitStack() as opened:

        def open_log(name: str) -> None:
            stream = opened.enter_context(session.open_stream(follow_log(job, name, offset=copied[name])))
            selector.register(stream, selectors.EVENT_READ, (name, stream))

        for name in streams:
            open_log(name)
        while selector.get_map():
            for key, _ in selector.select():
                name, stream = key.data
                must_reopen = _copy_available(stream, name, copied, outage)
                session.has_answered |= not must_reopen
                if must_reopen or stream.is_finished:
                    selector.unregister(stream)
                    stream.close()
                if must_reopen:
                    open_log(name)


def _copy_available(stream: ResponseStream, name: str, copied: dict[str, int], outage: StoreOutage) -> bool:
    """Copy the received bytes. Return whether the connection broke and the rest must be requested again."""
    try:
        data = stream.receive()
    except ConnectionBroken:
        return True
    except StoreUnavailable as error:
        outage.raise_if_too_long(error)
        time.sleep(STORE_POLL_INTERVAL)
        return True
    outage.end()
    _write_log(name, data)
    copied[name] += len(data)
    return False


def _write_log(name: str, data: bytes) -> None:
    if data:
        stream = sys.stdout if name == "stdout" else sys.stderr
        with checked_output():
            stream.buffer.write(data)
            stream.buffer.flush()

"""`rota logs`: what a job wrote, byte for byte, each stream on its own."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from rota.cli.follow import follow_chain, write
from rota.cli.parser import Usage, job_id
from rota.cli.terminal import say_json
from rota.client.ask.log import PIECE, get_log, get_logs
from rota.client.ask.run import get_run
from rota.client.session import Session
from rota.home import find_home

_STREAMS = {"stdout": ("stdout",), "stderr": ("stderr",), "both": ("stdout", "stderr")}
_PIECE = 1 << 16
"""Bytes asked for at a time on the way back from the end."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("job", metavar="JOB|RUN", help="a job as it is now, or one of its runs")
    parser.add_argument("--run", metavar="RUN", help="this run of the job: a rewound job has earlier ones")
    parser.add_argument("--stream", choices=_STREAMS, default="both", help="which of its streams; both unless given")
    parser.add_argument("-f", "--follow", action="store_true", help="go on until the job and its retries have ended")
    end = parser.add_mutually_exclusive_group()
    end.add_argument("--tail", type=int, metavar="N", help="begin with the last N lines of each stream")
    end.add_argument("--bytes", type=int, metavar="N", help="begin with the last N bytes of each stream")


def run(args: argparse.Namespace) -> int:
    if args.follow and args.json:
        raise Usage("--follow and --json do not go together: JSON is complete or nothing")
    if args.tail is not None and args.tail < 0:
        raise Usage("--tail takes the number of lines to show, 0 or more")
    if args.bytes is not None and args.bytes < 0:
        raise Usage("--bytes takes the number of bytes to show, 0 or more")
    session = Session(find_home(args.home))
    job = _of_run(session, args) if args.job.startswith("run-") else job_id(args.job)
    if args.follow and args.run:
        raise Usage("--follow goes on with the job as it is now, so it takes no run")
    streams = _STREAMS[args.stream]
    offsets = _beginnings(session, job, streams, args)
    if args.json:
        whole = {
            name: b"".join(pieces(session, job, name, offset=offsets.get(name, 0), run=args.run)) for name in streams
        }
        say_json({"job": job, **{name: text.decode("utf-8", "replace") for name, text in whole.items()}})
        return 0
    if not args.follow or offsets:
        for name in streams:
            offsets[name] = _print(session, job, name, offsets.get(name, 0), args.run)
    if args.follow:
        follow_chain(session, job, streams, offsets)
    return 0


def _of_run(session: Session, args: argparse.Namespace) -> str:
    """The job of the run that was named instead of a job."""
    if args.run is not None:
        raise Usage("name a job with --run, or a run without it")
    args.run = args.job
    job: str = session.ask(get_run(args.run))["job"]
    return job


def _print(session: Session, job: str, name: str, offset: int, run: str | None) -> int:
    """Print what is there from here on; where that ends."""
    for piece in pieces(session, job, name, offset=offset, run=run):
        write(name, piece)
        offset += len(piece)
    return offset


def pieces(session: Session, job: str, name: str, *, offset: int, run: str | None) -> Iterator[bytes]:
    """What the log holds now, from `offset`, piece by piece."""
    while True:
        piece = session.answer(get_log(job, name, offset=offset, limit=PIECE, run=run)).body
        if piece:
            yield piece
        offset += len(piece)
        if len(piece) < PIECE:
            return


def _beginnings(session: Session, job: str, streams: tuple[str, ...], args: argparse.Namespace) -> dict[str, int]:
    """Where each stream is to begin, if not at its beginning."""
    if args.tail is None and args.bytes is None:
        return {}
    logs = session.ask(get_logs(job, run=args.run))
    sizes = {name: int(logs[name]["size"]) for name in streams}
    if args.bytes is not None:
        return {name: max(0, size - args.bytes) for name, size in sizes.items()}
    return {name: last_lines(session, job, name, size, args.tail, args.run) for name, size in sizes.items()}


def last_lines(session: Session, job: str, name: str, size: int, count: int, run: str | None = None) -> int:
    """Where the last lines of a log of this size begin: found from its end, with one piece of it in memory."""
    if not count:
        return size
    end = size
    while end > 0:
        start = max(0, end - _PIECE)
        piece = session.answer(get_log(job, name, offset=start, limit=end - start, run=run)).body
        at = len(piece) - (end == size)  # the log's last byte ends its last line, and begins none
        while (at := piece.rfind(b"\n", 0, at)) >= 0:
            count -= 1
            if not count:
                return start + at + 1
        end = start
    return 0

"""`rota logs`: what a job wrote, byte for byte, each stream on its own."""

from __future__ import annotations

import argparse
from collections import deque
from collections.abc import Iterable

from rota.cli.follow import follow_chain, write
from rota.cli.parser import Usage, job_id
from rota.cli.terminal import say_json
from rota.client import api
from rota.client.session import Session
from rota.home import find_home

_STREAMS = {"stdout": ("stdout",), "stderr": ("stderr",), "both": ("stdout", "stderr")}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("job", metavar="JOB")
    parser.add_argument("--stream", choices=_STREAMS, default="both", help="which of its streams; both unless given")
    parser.add_argument("-f", "--follow", action="store_true", help="go on until the job and its retries have ended")
    parser.add_argument("--tail", type=int, metavar="N", help="begin with the last N lines of each stream")


def run(args: argparse.Namespace) -> int:
    if args.follow and args.json:
        raise Usage("--follow and --json do not go together: JSON is complete or nothing")
    if args.tail is not None and args.tail < 0:
        raise Usage("--tail takes the number of lines to show, 0 or more")
    job, session = job_id(args.job), Session(find_home(args.home))
    streams = _STREAMS[args.stream]
    if args.json:
        texts = {name: b"".join(_now(session, job, name, args.tail)[0]).decode("utf-8", "replace") for name in streams}
        say_json({"job": job, **texts})
        return 0
    offsets: dict[str, int] = {}
    if not args.follow or args.tail is not None:
        for name in streams:
            offsets[name] = _print_now(session, job, name, args.tail)
    if args.follow:
        follow_chain(session, job, streams, offsets)
    return 0


def _print_now(session: Session, job: str, name: str, tail: int | None) -> int:
    """Print what is there; the number of bytes read so far."""
    if tail is not None:
        pieces, size = _now(session, job, name, tail)
        write(name, b"".join(pieces))
        return size
    size = 0
    for piece in api.log(session, job, name):
        write(name, piece)
        size += len(piece)
    return size


def _now(session: Session, job: str, name: str, tail: int | None) -> tuple[Iterable[bytes], int]:
    size = 0

    def counted() -> Iterable[bytes]:
        nonlocal size
        for piece in api.log(session, job, name):
            size += len(piece)
            yield piece

    pieces = list(counted()) if tail is None else last_lines(counted(), tail)
    return pieces, size


def last_lines(pieces: Iterable[bytes], count: int) -> list[bytes]:
    """The last lines of a log of any size, with no more of it in memory than these and one piece."""
    kept: deque[bytes] = deque(maxlen=count)
    unfinished = b""
    for piece in pieces:
        lines = (unfinished + piece).splitlines(keepends=True)
        unfinished = lines.pop() if lines and not lines[-1].endswith(b"\n") else b""
        kept.extend(lines)
    if unfinished:
        kept.append(unfinished)
    return list(kept)

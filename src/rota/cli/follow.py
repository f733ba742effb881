"""Copy the logs of a job to stdout and stderr while they are written."""

from __future__ import annotations

import selectors
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack

from rota.cli.chain import next_in_chain
from rota.cli.terminal import checked_output, print_notice
from rota.client.outage import STORE_POLL_INTERVAL, StoreOutage
from rota.client.problem import ConnectionBroken
from rota.client.requests.job import get_job
from rota.client.requests.log import follow_log
from rota.client.session import SchedulerSession
from rota.client.transport import ResponseStream
from rota.errors import StoreUnavailable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rota.client.requests import Json


def follow_chain(
    session: SchedulerSession, job: str, streams: Sequence[str], offsets: Mapping[str, int] | None = None
) -> None:
    """Follow the job and its retries, and return when the chain has ended."""
    while True:
        follow(session, job, streams, offsets)
        following = next_in_chain(session, job)
        if following is None:
            return
        _print_retry(session.request_json(get_job(job)), following)
        job, offsets = following["id"], None


def _print_retry(ended: Json, following: Json) -> None:
    from rota.cli.field import reason_text

    note = reason_text(following)
    outcome = f"{ended['id']} {ended['status']}: {ended['reason']}" if ended["reason"] else f"{ended['id']} ended"
    print_notice(f"{outcome}; following {following['id']}" + (f", {note}" if note else ""))


def follow(
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
    write_log(name, data)
    copied[name] += len(data)
    return False


def write_log(name: str, data: bytes) -> None:
    if data:
        stream = sys.stdout if name == "stdout" else sys.stderr
        with checked_output():
            stream.buffer.write(data)
            stream.buffer.flush()

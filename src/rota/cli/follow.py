"""Copy a job's logs to the same streams of ours, as they are written."""

from __future__ import annotations

import selectors
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack

from rota.cli.chain import next_in_chain
from rota.cli.terminal import talk
from rota.client.absence import STORE_LOOK, StoreAbsence
from rota.client.ask.job import get_job
from rota.client.ask.log import follow_log
from rota.client.problem import Broken
from rota.client.session import Session
from rota.client.transport import Stream
from rota.errors import StoreAway

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rota.client.ask import Json


def follow_chain(session: Session, job: str, streams: Sequence[str], offsets: Mapping[str, int] | None = None) -> None:
    """Go on with the chain's next run, and return when the chain has ended."""
    while True:
        follow(session, job, streams, offsets)
        following = next_in_chain(session, job)
        if following is None:
            return
        _announce(session.ask(get_job(job)), following)
        job, offsets = following["id"], None


def _announce(ended: Json, following: Json) -> None:
    from rota.cli.field import excuse

    note = excuse(following)
    outcome = f"{ended['id']} {ended['status']}: {ended['reason']}" if ended["reason"] else f"{ended['id']} ended"
    talk(f"{outcome}; going on with {following['id']}" + (f", {note}" if note else ""))


def follow(session: Session, job: str, streams: Sequence[str], offsets: Mapping[str, int] | None = None) -> None:
    """Return when the job has ended and all it wrote has been copied. Bytes stay as they are."""
    copied = {name: (offsets or {}).get(name, 0) for name in streams}
    absence = StoreAbsence()
    with selectors.DefaultSelector() as selector, ExitStack() as opened:

        def begin(name: str) -> None:
            stream = opened.enter_context(session.open(follow_log(job, name, offset=copied[name])))
            selector.register(stream, selectors.EVENT_READ, (name, stream))

        for name in streams:
            begin(name)
        while selector.get_map():
            for key, _ in selector.select():
                name, stream = key.data
                again = _copy(stream, name, copied, absence)
                session.answered |= not again
                if again or stream.finished:
                    selector.unregister(stream)
                    stream.close()
                if again:
                    begin(name)


def _copy(stream: Stream, name: str, copied: dict[str, int], absence: StoreAbsence) -> bool:
    """Copy what has come; true when the connection broke and the rest is to be asked for again."""
    try:
        data = stream.receive()
    except Broken:
        return True
    except StoreAway as error:
        absence.bear(error)
        time.sleep(STORE_LOOK)
        return True
    absence.over()
    write(name, data)
    copied[name] += len(data)
    return False


def write(name: str, data: bytes) -> None:
    if data:
        stream = sys.stdout if name == "stdout" else sys.stderr
        stream.buffer.write(data)
        stream.buffer.flush()

"""More connections than the scheduler has descriptors for: it stays, says so once, and goes on when they are gone."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager

from e2e.rig import Rota, Stage, eventually

_FULL = "as many connections are open"


def limited(number: int) -> list[str]:
    """Put before a command, it may have so many files open."""
    return ["sh", "-c", f'ulimit -n {number}; exec "$@"', "sh"]


@contextmanager
def idle(rota: Rota, count: int) -> Iterator[list[socket.socket]]:
    """Connections over which nothing is said."""
    with ExitStack() as stack:
        directory = os.open(rota.home, os.O_PATH)
        stack.callback(os.close, directory)
        opened = []
        for _ in range(count):
            each = stack.enter_context(socket.socket(socket.AF_UNIX))
            each.connect(f"/proc/self/fd/{directory}/{rota.socket.name}")
            opened.append(each)
        yield opened


def code_of(rota: Rota) -> tuple[int, str | None, str | None]:
    """Of an answer: its status, the code of its problem, and when to come again."""
    with closing(rota.connection()) as connection:
        connection.request("GET", "/api/scheduler")
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read()).get("code"), answer.getheader("Retry-After")


def test_more_connections_than_descriptors(make_rota: Callable[..., Rota], stage: Stage) -> None:
    rota = make_rota(prefix=limited(256))
    rota.ask("config", "set", "server.port", "off")
    rota.start()
    job = rota.post(stage.actor("job"))
    then = rota.post(stage.walk_on("then"), after=[{"job": job}])
    assert stage.hear() == ["job begins"]
    with idle(rota, 400):
        assert eventually(lambda: said if (said := code_of(rota))[0] == 503 else None) == (503, "busy", "1")
        refused = rota.ask("submit", "--", "true", code=1)
        assert _FULL in refused.err
        # It has what it needs for itself: one job's end is stored, and the next is started.
        stage.release("job")
        assert stage.hear(3) == ["job ends", "then begins", "then ends"]
    eventually(lambda: code_of(rota)[0] != 503, what="that it has noticed who is gone")
    assert rota.ended(then)["status"] == "COMPLETED"
    log = (rota.home / "rota.log").read_text()
    assert log.count(_FULL) == 1, log
    assert len(log) < 10_000


def test_fewer_descriptors_than_it_takes(make_rota: Callable[..., Rota]) -> None:
    rota = make_rota(prefix=limited(64))
    said = rota.ask("up", code=1)
    assert "may have 64 files open here, and the scheduler needs 128" in said.err

"""More connections than the scheduler has descriptors: it refuses them, logs that once, and recovers."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager

import pytest

from tests.e2e.rig import ChildControl, Rota, eventually

pytestmark = pytest.mark.executable

_LIMIT_REACHED = "the connection limit is reached"


def with_file_limit(number: int) -> list[str]:
    """Return a command prefix that limits the number of open files."""
    return ["sh", "-c", f'ulimit -n {number}; exec "$@"', "sh"]


@contextmanager
def idle_connections(rota: Rota, count: int) -> Iterator[list[socket.socket]]:
    """Open connections without sending a request."""
    with ExitStack() as stack:
        directory = os.open(rota.home, os.O_PATH)
        stack.callback(os.close, directory)
        sockets = []
        for _ in range(count):
            connection_socket = stack.enter_context(socket.socket(socket.AF_UNIX))
            connection_socket.connect(f"/proc/self/fd/{directory}/{rota.socket.name}")
            sockets.append(connection_socket)
        yield sockets


def read_problem(rota: Rota) -> tuple[int, str | None, str | None]:
    """Return status, problem code and Retry-After of a response."""
    with closing(rota.connection()) as connection:
        connection.request("GET", "/api/scheduler")
        response = connection.getresponse()
        return response.status, json.loads(response.read()).get("code"), response.getheader("Retry-After")


def test_connections_beyond_the_descriptors_are_refused_and_jobs_continue(
    make_rota: Callable[..., Rota], children: ChildControl
) -> None:
    rota = make_rota(prefix=with_file_limit(256))
    rota.run("config", "set", "server.port", "off")
    rota.start()
    job = rota.post_job(children.gated("job"))
    following = rota.post_job(children.immediate("then"), after=[{"job": job}])
    assert children.read_lines() == ["job begins"]
    with idle_connections(rota, 400):
        assert eventually(lambda: problem if (problem := read_problem(rota))[0] == 503 else None) == (
            503,
            "too-many-connections",
            "1",
        )
        refused = rota.run("submit", "--", "true", code=1)
        assert _LIMIT_REACHED in refused.err
        # The reserve of the scheduler suffices to record the end of a job and to start the next.
        children.release("job")
        assert children.read_lines(3) == ["job ends", "then begins", "then ends"]
    eventually(lambda: read_problem(rota)[0] != 503, description="room for new connections")
    assert rota.wait_for_end(following)["status"] == "COMPLETED"
    log = (rota.home / "rota.log").read_text()
    assert log.count("no descriptors are left for connections") == 1, log
    assert len(log) < 10_000


def test_scheduler_refuses_to_start_with_too_few_descriptors(make_rota: Callable[..., Rota]) -> None:
    rota = make_rota(prefix=with_file_limit(64))
    output = rota.run("up", code=1)
    assert "limit of open files is 64, but the scheduler needs 128" in output.err

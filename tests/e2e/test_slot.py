"""§7 over HTTP: `POST /api/direct`, and `/api/slots` for programs that do the work themselves."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from e2e.client import Client, all_free, ended, kill_client, slot, slots
from e2e.rig import Rota, Stage, ends_within, eventually, lives


def reserve(rota: Rota, **fields: Any) -> dict[str, Any]:
    answer = rota.api("POST", "/api/slots", fields)
    assert answer.status == 201, answer
    shown: dict[str, Any] = answer.json()
    return shown


@contextmanager
def asking(rota: Rota, method: str, target: str, body: Any = None) -> Iterator[http.client.HTTPConnection]:
    """A request that goes on until the test closes its connection."""
    connection = rota.connection()
    connection.request(method, target, None if body is None else json.dumps(body))
    try:
        yield connection
    finally:
        connection.close()


class Frames:
    """A slot's stream, line by line."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self._response = response

    def next(self) -> tuple[dict[str, Any], bytes]:
        line = self._response.readline()
        assert line, "the stream has ended"
        head: dict[str, Any] = json.loads(line)
        return head, self._response.read(head["size"]) if "size" in head else b""

    def until(self, status: str) -> tuple[dict[str, Any], bytes]:
        """The slot as soon as it is so, and what was written before."""
        written = b""
        while True:
            head, payload = self.next()
            written += payload
            if "slot" in head and head["slot"]["status"] == status:
                return head["slot"], written


@contextmanager
def streaming(rota: Rota, method: str, target: str, body: Any = None) -> Iterator[Frames]:
    with asking(rota, method, target, body) as connection:
        response = connection.getresponse()
        assert response.status == 200, response.read()
        yield Frames(response)


# POST /api/direct.


def test_direct_answers_with_the_result(rota: Rota) -> None:
    rota.start()
    body = {"command": ["sh", "-c", "echo out $A; echo err >&2; exit 3"], "env": {"A": "b"}, "name": "n"}
    answer = rota.api("POST", "/api/direct", body)
    assert answer.status == 200
    result = answer.json()
    assert (result["stdout"], result["stderr"]) == ("out b\n", "err\n")
    assert result["truncated"] == {"stdout": False, "stderr": False}
    assert result["warning"] is None
    shown = result["slot"]
    assert (shown["status"], shown["exit_code"], shown["name"]) == ("FAILED", 3, "n")
    assert rota.jobs() == []
    assert slots(rota) == []


def test_direct_has_the_end_of_long_output(rota: Rota) -> None:
    rota.start()
    result = rota.api("POST", "/api/direct", {"command": ["seq", "100000"]}).json()
    assert len(result["stdout"]) == 64 * 1024
    assert result["stdout"].endswith("99999\n100000\n")
    assert result["truncated"] == {"stdout": True, "stderr": False}


def test_direct_waits_its_turn_and_then_says_when_to_try_again(rota: Rota, stage: Stage) -> None:
    rota.start()
    job = rota.post(stage.actor("job"))
    assert stage.hear() == ["job begins"]
    with asking(rota, "POST", "/api/direct", {"command": stage.walk_on("late")[1:], "wait": "200ms"}) as connection:
        response = connection.getresponse()
        problem = json.loads(response.read())
    assert (response.status, response.headers["Retry-After"]) == (503, "10")
    assert (problem["code"], problem["status"]) == ("wait-over", 503)
    assert problem["detail"] == "slot-1: wait over: its turn did not come in time; nothing of it ran"
    with asking(rota, "POST", "/api/direct", {"command": stage.walk_on("direct")[1:]}) as connection:
        eventually(lambda: len(slots(rota)) == 1, what="reserved")
        stage.release("job")
        assert json.loads(connection.getresponse().read())["slot"]["status"] == "COMPLETED"
    rota.wait(job)
    assert stage.heard() == ["job ends", "direct begins", "direct ends"]


@pytest.mark.parametrize("is_running", [True, False], ids=["while it runs", "while it waits"])
def test_direct_ends_with_its_connection(rota: Rota, stage: Stage, is_running: bool) -> None:
    rota.start()
    if not is_running:
        rota.set_global(0)
    with asking(rota, "POST", "/api/direct", {"command": stage.actor("direct")[1:]}):
        eventually(lambda: slots(rota), what="reserved")
        if is_running:
            assert stage.hear() == ["direct begins"]
            pid = eventually(lambda: slot(rota, "slot-1")["pid"], what="its pid")
    shown = ended(rota, "slot-1")
    assert (shown["status"], shown["reason"]) == ("CANCELLED", "its client went away")
    assert not is_running or ends_within(pid)
    rota.set_global(1)
    assert rota.ended(rota.post(["true"]))["status"] == "COMPLETED"


# A program that does the work itself.


def test_a_program_reserves_learns_of_its_turn_renews_and_releases(rota: Rota, stage: Stage) -> None:
    rota.start()
    job = rota.post(stage.actor("job"))
    assert stage.hear() == ["job begins"]
    shown = reserve(rota, name="mine")
    assert (shown["id"], shown["status"], shown["ready"], shown["command"]) == ("slot-1", "WAITING", False, None)
    assert shown["wait"]["detail"] == "waiting on pool global (1/1)"
    assert shown["log_paths"] == {}
    queued = rota.post(stage.walk_on("queued"))
    with asking(rota, "GET", "/api/slots/slot-1?wait=60&seen=WAITING") as connection:
        stage.release("job")
        shown = json.loads(connection.getresponse().read())
    assert (shown["status"], shown["ready"]) == ("RUNNING", True)
    rota.wait(job)
    assert rota.show(queued)["wait"]["detail"] == "waiting on pool global (1/1)", "it counts as used"
    assert rota.api("POST", "/api/slots/slot-1/renew").json()["ready"] is True
    shown = rota.api("POST", "/api/slots/slot-1/release").json()
    assert (shown["status"], shown["exit_code"]) == ("COMPLETED", 0)
    assert rota.ended(queued)["status"] == "COMPLETED"
    assert rota.api("POST", "/api/slots/slot-1/renew").status == 409
    assert rota.api("DELETE", "/api/slots/slot-1").json()["status"] == "COMPLETED", "twice is fine"


def test_a_program_that_dies_with_its_connection_frees_its_place(rota: Rota) -> None:
    rota.start()
    with streaming(rota, "POST", "/api/slots?stream=1", {"name": "mine"}) as frames:
        assert frames.next()[0] == {"id": "slot-1", "wait": pytest.approx(300, abs=20), "warning": None}
        assert frames.until("RUNNING")[0]["ready"] is True
        queued = rota.post(["true"])
        assert rota.show(queued)["status"] == "QUEUED"
    assert rota.ended(queued)["status"] == "COMPLETED"
    assert ended(rota, "slot-1")["reason"] == "its client went away"


def test_released_while_its_stream_is_open(rota: Rota) -> None:
    rota.start()
    with streaming(rota, "POST", "/api/slots?stream=1", {}) as frames:
        frames.until("RUNNING")
        assert rota.api("DELETE", "/api/slots/slot-1").status == 200
        assert frames.until("COMPLETED")[0]["exit_code"] == 0
    assert slot(rota, "slot-1")["status"] == "COMPLETED"


# Presence.


def test_a_silent_client_is_given_up_while_the_scheduler_runs(rota: Rota, stage: Stage) -> None:
    """LESSONS Waiting: an expired reservation blocked until restart."""
    rota.start()
    rota.ask("config", "set", "direct.lease", "400ms")
    rota.set_global(0)
    waiting = reserve(rota, command=stage.walk_on("never")[1:])["id"]
    rota.set_global(1)
    # The first one stands before the rest, until nobody is there for it: then the job has the place.
    silent = reserve(rota)["id"]
    queued = rota.post(stage.walk_on("queued"))
    assert rota.ended(queued)["status"] == "COMPLETED"
    shown = slot(rota, silent)
    assert (shown["status"], shown["reason"]) == ("CANCELLED", "no word of its client for 400ms")
    assert ended(rota, waiting)["status"] == "COMPLETED"
    rota.set_global(0)
    last = reserve(rota)["id"]
    eventually(lambda: slot(rota, last)["status"] == "CANCELLED", what="the lease over")
    assert slot(rota, last)["started_at"] is None
    assert rota.status()["recovery"]["slots_expired"] == 0


def test_who_polls_or_renews_is_there(rota: Rota) -> None:
    rota.start()
    rota.ask("config", "set", "direct.lease", "1s")
    polled, renewed, silent = (reserve(rota, name=name)["id"] for name in ("polled", "renewed", "silent"))
    with asking(rota, "GET", f"/api/slots/{polled}?wait=60"):
        eventually(lambda: _renew(rota, renewed) and slot(rota, silent)["status"] == "CANCELLED", what="the lease over")
        assert slot(rota, polled)["status"] == "RUNNING"
        assert slot(rota, renewed)["status"] == "WAITING"
    eventually(lambda: slot(rota, polled)["status"] == "CANCELLED", what="the lease over")


def _renew(rota: Rota, name: str) -> bool:
    return rota.api("POST", f"/api/slots/{name}/renew").status == 200


def test_who_only_looks_keeps_nothing_alive(rota: Rota, stage: Stage) -> None:
    """A dashboard that polls must not stand in for a client that was killed."""
    rota.start()
    direct = Client(rota, *stage.actor("direct"))
    assert stage.hear() == ["direct begins"]
    with asking(rota, "GET", "/api/slots/slot-1?wait=60") as connection:
        for _ in range(5):  # what came in before these has been heard
            slot(rota, "slot-1")
        kill_client(direct)
        assert json.loads(connection.getresponse().read())["status"] == "CANCELLED"
    all_free(rota)


def test_who_comes_back_has_no_gap_and_no_repeat(rota: Rota, stage: Stage) -> None:
    rota.start()
    gate = stage.gate("gate")
    command = ["sh", "-c", f"echo one; echo ready > {stage.pipe}; read x < {gate}; printf two; exit 4"]
    with streaming(rota, "POST", "/api/slots?stream=1", {"command": command}):
        assert stage.hear() == ["ready"]
        with streaming(rota, "GET", "/api/slots/slot-1/stream?stdout=2") as frames:
            stage.release("gate")
            shown, written = frames.until("FAILED")
    assert (shown["exit_code"], written) == (4, b"e\ntwo")
    with streaming(rota, "GET", "/api/slots/slot-1/stream?stdout=4") as frames:
        assert frames.until("FAILED")[1] == b"two", "of one that has ended too"


def test_the_last_connection_counts(rota: Rota, stage: Stage) -> None:
    rota.start()
    with streaming(rota, "POST", "/api/slots?stream=1", {"command": stage.actor("direct")[1:]}):
        assert stage.hear() == ["direct begins"]
        pid = eventually(lambda: slot(rota, "slot-1")["pid"], what="its pid")
        with streaming(rota, "GET", "/api/slots/slot-1/stream") as second:
            second.until("RUNNING")
        assert rota.api("POST", "/api/slots/slot-1/renew").json()["status"] == "RUNNING"
        assert lives(pid)
    assert ends_within(pid)


# What is refused.


@pytest.mark.parametrize(
    ("method", "target", "body", "status", "says"),
    [
        ("POST", "/api/slots", {"priority": 3}, 422, "unknown field `priority`"),
        ("POST", "/api/slots", {"timeout": "1s"}, 422, "timeouts are for a command"),
        ("POST", "/api/slots", {"command": []}, 422, "command is empty"),
        ("POST", "/api/slots", {"wait": "soon"}, 422, "soon"),
        ("POST", "/api/slots", {"command": ["true"], "retries": 3}, 422, "unknown field `retries`"),
        ("POST", "/api/direct", {}, 422, "needs a command"),
        ("GET", "/api/slots/slot-9", None, 404, "no such slot: slot-9"),
        ("GET", "/api/slots/9", None, 422, "not a slot id"),
        ("GET", "/api/slots/slot-9/stream", None, 404, "no such slot"),
        ("POST", "/api/slots/slot-9/renew", None, 404, "no such slot"),
        ("POST", "/api/slots/slot-9/release", None, 404, "no such slot"),
        ("POST", "/api/slots/slot-9/cancel", None, 404, "no such slot"),
        ("POST", "/api/slots/slot-9/signal", {"signal": "HUP"}, 404, "no such slot"),
        ("POST", "/api/slots/slot-9/signal", {"signal": "BOO"}, 422, "there is no signal 'BOO'"),
        ("POST", "/api/slots/slot-9/signal", {"signal": "KILL"}, 422, "is not passed on"),
    ],
)
def test_refusals(untouched: Rota, method: str, target: str, body: Any, status: int, says: str) -> None:
    answer = untouched.api(method, target, body)
    assert answer.status == status
    assert says in answer.json()["detail"]
    assert slots(untouched) == []


def test_what_is_in_another_state_is_a_conflict(rota: Rota, stage: Stage) -> None:
    rota.start()
    direct = Client(rota, *stage.actor("direct"))
    assert stage.hear() == ["direct begins"]
    mine = reserve(rota)["id"]
    assert "runs a command" in rota.api("POST", "/api/slots/slot-1/release").json()["detail"]
    refused = rota.api("POST", f"/api/slots/{mine}/signal", {"signal": "HUP"})
    assert (refused.status, refused.json()["code"]) == (409, "conflict")
    stage.release("direct")
    direct.end(0)
    assert rota.api("POST", "/api/slots/slot-1/cancel").status == 409
    assert rota.api("POST", f"/api/slots/{mine}/cancel").json()["status"] == "CANCELLED"
    assert rota.api("POST", f"/api/slots/{mine}/cancel").json()["status"] == "CANCELLED", "twice is fine"


def test_a_signal_goes_to_the_command(rota: Rota, stage: Stage) -> None:
    rota.start()
    direct = Client(rota, "--", "sh", "-c", f"trap 'exit 21' USR1; echo on > {stage.pipe}; while :; do sleep 1; done")
    assert stage.hear() == ["on"]
    assert rota.api("POST", "/api/slots/slot-1/signal", {"signal": "usr1"}).status == 200
    direct.end(21)


def test_who_looks_at_its_stream_ends_nothing_and_keeps_nothing(rota: Rota, stage: Stage) -> None:
    rota.start()
    mine = reserve(rota, command=stage.actor("mine")[1:])["id"]
    assert stage.hear() == ["mine begins"]
    with asking(rota, "GET", f"/api/slots/{mine}/stream?stdout=0&stderr=0") as looking:
        assert looking.getresponse().status == 200
    stage.release("mine")
    assert ended(rota, mine)["status"] == "COMPLETED"
    direct = Client(rota, *stage.actor("direct"))
    assert stage.hear() == ["mine ends"]
    assert stage.hear() == ["direct begins"]
    (open_one,) = (each["id"] for each in slots(rota))
    with asking(rota, "GET", f"/api/slots/{open_one}/stream?stdout=0&stderr=0") as looking:
        assert looking.getresponse().status == 200
        direct.kill()
        assert ended(rota, open_one)["status"] == "CANCELLED"
    direct.close()

"""Direct execution over HTTP: `POST /api/direct`, and `/api/reservations` for programs that do the work themselves."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.e2e.direct_client import (
    DirectClient,
    get_reservation,
    kill_client,
    list_reservations,
    wait_for_reservation_end,
    wait_until_no_reservations,
)
from tests.e2e.rig import ChildControl, Rota, eventually, exits_within, is_alive


def reserve(rota: Rota, **fields: Any) -> dict[str, Any]:
    response = rota.api("POST", "/api/reservations", fields)
    assert response.status == 201, response
    shown: dict[str, Any] = response.json()
    return shown


@contextmanager
def open_request(rota: Rota, method: str, target: str, body: Any = None) -> Iterator[http.client.HTTPConnection]:
    """An open request; its connection closes at the end of the block."""
    connection = rota.connection()
    connection.request(method, target, None if body is None else json.dumps(body))
    try:
        yield connection
    finally:
        connection.close()


class Frames:
    """The stream of a reservation, read frame by frame."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self._response = response

    def next(self) -> tuple[dict[str, Any], bytes]:
        line = self._response.readline()
        assert line, "the stream has ended"
        head: dict[str, Any] = json.loads(line)
        return head, self._response.read(head["size"]) if "size" in head else b""

    def read_until(self, status: str) -> tuple[dict[str, Any], bytes]:
        """Read until the reservation has this status; return it and the output before."""
        written = b""
        while True:
            head, payload = self.next()
            written += payload
            if "reservation" in head and head["reservation"]["status"] == status:
                return head["reservation"], written


@contextmanager
def open_stream(rota: Rota, method: str, target: str, body: Any = None) -> Iterator[Frames]:
    with open_request(rota, method, target, body) as connection:
        response = connection.getresponse()
        assert response.status == 200, response.read()
        yield Frames(response)


# POST /api/direct.


def test_direct_returns_the_result(rota: Rota) -> None:
    rota.start()
    body = {"command": ["sh", "-c", "echo out $A; echo err >&2; exit 3"], "env": {"A": "b"}, "name": "n"}
    response = rota.api("POST", "/api/direct", body)
    assert response.status == 200
    result = response.json()
    assert (result["stdout"], result["stderr"]) == ("out b\n", "err\n")
    assert result["truncated"] == {"stdout": False, "stderr": False}
    assert result["warning"] is None
    shown = result["reservation"]
    assert (shown["status"], shown["exit_code"], shown["name"]) == ("FAILED", 3, "n")
    assert rota.jobs() == []
    assert list_reservations(rota) == []


def test_direct_returns_the_end_of_long_output(rota: Rota) -> None:
    rota.start()
    result = rota.api("POST", "/api/direct", {"command": ["seq", "100000"]}).json()
    assert len(result["stdout"]) == 64 * 1024
    assert result["stdout"].endswith("99999\n100000\n")
    assert result["truncated"] == {"stdout": True, "stderr": False}


def test_direct_waits_for_its_turn_or_returns_retry_after(rota: Rota, children: ChildControl) -> None:
    rota.start()
    job = rota.post_job(children.gated("job"))
    assert children.read_lines() == ["job begins"]
    with open_request(
        rota, "POST", "/api/direct", {"command": children.immediate_argv("late"), "wait": "200ms"}
    ) as connection:
        response = connection.getresponse()
        problem = json.loads(response.read())
    assert (response.status, response.headers["Retry-After"]) == (503, "10")
    assert (problem["code"], problem["status"]) == ("reservation-timeout", 503)
    assert problem["detail"] == "reservation-1: it did not start in time; nothing of it ran"
    with open_request(rota, "POST", "/api/direct", {"command": children.immediate_argv("direct")}) as connection:
        eventually(lambda: len(list_reservations(rota)) == 1, description="a reservation")
        children.release("job")
        assert json.loads(connection.getresponse().read())["reservation"]["status"] == "COMPLETED"
    rota.wait(job)
    assert children.read_available() == ["job ends", "direct begins", "direct ends"]


@pytest.mark.parametrize("is_running", [True, False], ids=["while it runs", "while it waits"])
def test_direct_ends_with_its_connection(rota: Rota, children: ChildControl, is_running: bool) -> None:
    rota.start()
    if not is_running:
        rota.set_global_size(0)
    with open_request(rota, "POST", "/api/direct", {"command": children.gated_argv("direct")}):
        eventually(lambda: list_reservations(rota), description="a reservation")
        if is_running:
            assert children.read_lines() == ["direct begins"]
            pid = eventually(lambda: get_reservation(rota, "reservation-1")["pid"], description="its pid")
    shown = wait_for_reservation_end(rota, "reservation-1")
    assert (shown["status"], shown["reason"]) == ("CANCELLED", "its client disconnected")
    assert not is_running or exits_within(pid)
    rota.set_global_size(1)
    assert rota.wait_for_end(rota.post_job(["true"]))["status"] == "COMPLETED"


# Reservations without a command.


def test_reserve_wait_renew_and_release(rota: Rota, children: ChildControl) -> None:
    rota.start()
    job = rota.post_job(children.gated("job"))
    assert children.read_lines() == ["job begins"]
    shown = reserve(rota, name="mine")
    assert (shown["id"], shown["status"], shown["ready"], shown["command"]) == ("reservation-1", "WAITING", False, None)
    assert shown["wait"]["detail"] == "waiting on pool global (1/1)"
    assert shown["log_paths"] == {}
    queued = rota.post_job(children.immediate("queued"))
    with open_request(rota, "GET", "/api/reservations/reservation-1?wait=60&last_seen=WAITING") as connection:
        children.release("job")
        shown = json.loads(connection.getresponse().read())
    assert (shown["status"], shown["ready"]) == ("RUNNING", True)
    rota.wait(job)
    assert rota.show(queued)["wait"]["detail"] == "waiting on pool global (1/1)", "a reservation counts as used"
    assert rota.api("POST", "/api/reservations/reservation-1/renew").json()["ready"] is True
    shown = rota.api("POST", "/api/reservations/reservation-1/release").json()
    assert (shown["status"], shown["exit_code"]) == ("COMPLETED", 0)
    assert rota.wait_for_end(queued)["status"] == "COMPLETED"
    assert rota.api("POST", "/api/reservations/reservation-1/renew").status == 409
    assert rota.api("DELETE", "/api/reservations/reservation-1").json()["status"] == "COMPLETED", (
        "repeated, with the same result"
    )


def test_closed_stream_releases_the_reservation(rota: Rota) -> None:
    rota.start()
    with open_stream(rota, "POST", "/api/reservations?stream=1", {"name": "mine"}) as frames:
        assert frames.next()[0] == {"id": "reservation-1", "wait": pytest.approx(300, abs=20), "warning": None}
        assert frames.read_until("RUNNING")[0]["ready"] is True
        queued = rota.post_job(["true"])
        assert rota.show(queued)["status"] == "QUEUED"
    assert rota.wait_for_end(queued)["status"] == "COMPLETED"
    assert wait_for_reservation_end(rota, "reservation-1")["reason"] == "its client disconnected"


def test_release_while_the_stream_is_open(rota: Rota) -> None:
    rota.start()
    with open_stream(rota, "POST", "/api/reservations?stream=1", {}) as frames:
        frames.read_until("RUNNING")
        assert rota.api("DELETE", "/api/reservations/reservation-1").status == 200
        assert frames.read_until("COMPLETED")[0]["exit_code"] == 0
    assert get_reservation(rota, "reservation-1")["status"] == "COMPLETED"


# Client leases.


def test_lease_of_a_silent_client_expires(rota: Rota, children: ChildControl) -> None:
    """LESSONS Waiting: an expired reservation blocked until restart."""
    rota.start()
    rota.run("config", "set", "direct.lease", "400ms")
    rota.set_global_size(0)
    waiting = reserve(rota, command=children.immediate_argv("never"))["id"]
    rota.set_global_size(1)
    # The silent reservation blocks the job until its lease expires.
    silent = reserve(rota)["id"]
    queued = rota.post_job(children.immediate("queued"))
    assert rota.wait_for_end(queued)["status"] == "COMPLETED"
    shown = get_reservation(rota, silent)
    assert (shown["status"], shown["reason"]) == ("CANCELLED", "its client was silent for 400ms")
    assert wait_for_reservation_end(rota, waiting)["status"] == "COMPLETED"
    rota.set_global_size(0)
    last = reserve(rota)["id"]
    eventually(lambda: get_reservation(rota, last)["status"] == "CANCELLED", description="the lease expired")
    assert get_reservation(rota, last)["started_at"] is None
    assert rota.status()["recovery"]["reservations_expired"] == 0


def test_polling_or_renewing_keeps_the_lease(rota: Rota) -> None:
    rota.start()
    rota.run("config", "set", "direct.lease", "1s")
    polled, renewed, silent = (reserve(rota, name=name)["id"] for name in ("polled", "renewed", "silent"))
    with open_request(rota, "GET", f"/api/reservations/{polled}?wait=60"):
        eventually(
            lambda: _renew(rota, renewed) and get_reservation(rota, silent)["status"] == "CANCELLED",
            description="the lease expired",
        )
        assert get_reservation(rota, polled)["status"] == "RUNNING"
        assert get_reservation(rota, renewed)["status"] == "WAITING"
    eventually(lambda: get_reservation(rota, polled)["status"] == "CANCELLED", description="the lease expired")


def _renew(rota: Rota, name: str) -> bool:
    return rota.api("POST", f"/api/reservations/{name}/renew").status == 200


def test_polling_observer_does_not_keep_the_lease(rota: Rota, children: ChildControl) -> None:
    """A polling dashboard must not replace a killed client."""
    rota.start()
    direct = DirectClient(rota, *children.gated("direct"))
    assert children.read_lines() == ["direct begins"]
    with open_request(rota, "GET", "/api/reservations/reservation-1?wait=60") as connection:
        for _ in range(5):  # the scheduler has handled earlier requests
            get_reservation(rota, "reservation-1")
        kill_client(direct)
        assert json.loads(connection.getresponse().read())["status"] == "CANCELLED"
    wait_until_no_reservations(rota)


def test_resumed_stream_has_no_gap_and_no_repeat(rota: Rota, children: ChildControl) -> None:
    rota.start()
    gate = children.make_gate("gate")
    command = ["sh", "-c", f"echo one; echo ready > {children.pipe}; read x < {gate}; printf two; exit 4"]
    with open_stream(rota, "POST", "/api/reservations?stream=1", {"command": command}):
        assert children.read_lines() == ["ready"]
        with open_stream(rota, "GET", "/api/reservations/reservation-1/stream?stdout=2") as frames:
            children.release("gate")
            shown, written = frames.read_until("FAILED")
    assert (shown["exit_code"], written) == (4, b"e\ntwo")
    with open_stream(rota, "GET", "/api/reservations/reservation-1/stream?stdout=4") as frames:
        assert frames.read_until("FAILED")[1] == b"two", "also after the end"


def test_reservation_lives_until_its_last_connection_closes(rota: Rota, children: ChildControl) -> None:
    rota.start()
    with open_stream(rota, "POST", "/api/reservations?stream=1", {"command": children.gated_argv("direct")}):
        assert children.read_lines() == ["direct begins"]
        pid = eventually(lambda: get_reservation(rota, "reservation-1")["pid"], description="its pid")
        with open_stream(rota, "GET", "/api/reservations/reservation-1/stream") as second:
            second.read_until("RUNNING")
        assert rota.api("POST", "/api/reservations/reservation-1/renew").json()["status"] == "RUNNING"
        assert is_alive(pid)
    assert exits_within(pid)


# Refusals.


@pytest.mark.parametrize(
    ("method", "target", "body", "status", "detail"),
    [
        ("POST", "/api/reservations", {"priority": 3}, 422, "unknown field `priority`"),
        ("POST", "/api/reservations", {"timeout": "1s"}, 422, "timeouts need a command"),
        ("POST", "/api/reservations", {"command": []}, 422, "command is empty"),
        ("POST", "/api/reservations", {"wait": "soon"}, 422, "soon"),
        ("POST", "/api/reservations", {"command": ["true"], "retries": 3}, 422, "unknown field `retries`"),
        ("POST", "/api/direct", {}, 422, "needs a command"),
        ("GET", "/api/reservations/reservation-9", None, 404, "no such reservation: reservation-9"),
        ("GET", "/api/reservations/9", None, 422, "not a reservation id"),
        ("GET", "/api/reservations/reservation-9/stream", None, 404, "no such reservation"),
        ("POST", "/api/reservations/reservation-9/renew", None, 404, "no such reservation"),
        ("POST", "/api/reservations/reservation-9/release", None, 404, "no such reservation"),
        ("POST", "/api/reservations/reservation-9/cancel", None, 404, "no such reservation"),
        ("POST", "/api/reservations/reservation-9/signal", {"signal": "HUP"}, 404, "no such reservation"),
        ("POST", "/api/reservations/reservation-9/signal", {"signal": "BOO"}, 422, "unknown signal 'BOO'"),
        ("POST", "/api/reservations/reservation-9/signal", {"signal": "KILL"}, 422, "is not forwarded"),
    ],
)
def test_invalid_request_is_refused(
    read_only_rota: Rota, method: str, target: str, body: Any, status: int, detail: str
) -> None:
    response = read_only_rota.api(method, target, body)
    assert response.status == status
    assert detail in response.json()["detail"]
    assert list_reservations(read_only_rota) == []


def test_operation_in_the_wrong_state_is_a_conflict(rota: Rota, children: ChildControl) -> None:
    rota.start()
    direct = DirectClient(rota, *children.gated("direct"))
    assert children.read_lines() == ["direct begins"]
    reservation_id = reserve(rota)["id"]
    assert "runs a command" in rota.api("POST", "/api/reservations/reservation-1/release").json()["detail"]
    refused = rota.api("POST", f"/api/reservations/{reservation_id}/signal", {"signal": "HUP"})
    assert (refused.status, refused.json()["code"]) == (409, "conflict")
    children.release("direct")
    direct.finish(0)
    assert rota.api("POST", "/api/reservations/reservation-1/cancel").status == 409
    assert rota.api("POST", f"/api/reservations/{reservation_id}/cancel").json()["status"] == "CANCELLED"
    assert rota.api("POST", f"/api/reservations/{reservation_id}/cancel").json()["status"] == "CANCELLED", (
        "repeated, with the same result"
    )


def test_signal_is_sent_to_the_command(rota: Rota, children: ChildControl) -> None:
    rota.start()
    direct = DirectClient(
        rota, "--", "sh", "-c", f"trap 'exit 21' USR1; echo on > {children.pipe}; while :; do sleep 1; done"
    )
    assert children.read_lines() == ["on"]
    assert rota.api("POST", "/api/reservations/reservation-1/signal", {"signal": "usr1"}).status == 200
    direct.finish(21)


def test_stream_observer_neither_ends_nor_keeps_a_reservation(rota: Rota, children: ChildControl) -> None:
    rota.start()
    reservation_id = reserve(rota, command=children.gated_argv("mine"))["id"]
    assert children.read_lines() == ["mine begins"]
    with open_request(rota, "GET", f"/api/reservations/{reservation_id}/stream?stdout=0&stderr=0") as observer:
        assert observer.getresponse().status == 200
    children.release("mine")
    assert wait_for_reservation_end(rota, reservation_id)["status"] == "COMPLETED"
    direct = DirectClient(rota, *children.gated("direct"))
    assert children.read_lines() == ["mine ends"]
    assert children.read_lines() == ["direct begins"]
    (open_id,) = (reservation["id"] for reservation in list_reservations(rota))
    with open_request(rota, "GET", f"/api/reservations/{open_id}/stream?stdout=0&stderr=0") as observer:
        assert observer.getresponse().status == 200
        direct.kill()
        assert wait_for_reservation_end(rota, open_id)["status"] == "CANCELLED"
    direct.close()

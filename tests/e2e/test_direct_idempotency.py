"""Idempotency keys of direct executions, reservations and artifacts: a repeated request has no second effect and gets
the stored response, also from a restarted scheduler."""

from __future__ import annotations

import http.client
import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any

from tests.e2e.direct_client import get_reservation, list_reservations, wait_for_reservation_end
from tests.e2e.rig import ChildControl, Rota, eventually

KEY = {"Idempotency-Key": "k"}


@contextmanager
def open_request(rota: Rota, body: Any, target: str = "/api/direct") -> Iterator[http.client.HTTPConnection]:
    """Send a request with the key. Close its connection at the end of the block."""
    connection = rota.connection()
    connection.request("POST", target, json.dumps(body), KEY)
    try:
        yield connection
    finally:
        connection.close()


class ReceivedResponse:
    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers  # type: ignore[assignment]
        self.body = response.read()

    @property
    def is_repeated(self) -> bool:
        return self.headers.get("Idempotent-Replayed") == "true"

    def json(self) -> Any:
        return json.loads(self.body)


def send(rota: Rota, body: Any, target: str = "/api/direct") -> ReceivedResponse:
    with open_request(rota, body, target) as connection:
        return ReceivedResponse(connection.getresponse())


def wait_for_pid(rota: Rota, name: str = "reservation-1") -> None:
    eventually(lambda: get_reservation(rota, name)["pid"], description="the pid")


def test_response_survives_scheduler_and_reservation(rota_on_each_store: Rota, children: ChildControl) -> None:
    body = {"command": ["sh", "-c", f"{' '.join(children.immediate_argv('once'))}; echo out; exit 3"]}
    first, repeated = send(rota_on_each_store, body), send(rota_on_each_store, body)
    assert (first.status, first.json()["reservation"]["exit_code"], first.json()["stdout"]) == (200, 3, "out\n")
    assert (repeated.status, repeated.body) == (200, first.body)
    assert (first.is_repeated, repeated.is_repeated) == (False, True)
    rota_on_each_store.crash()
    rota_on_each_store.start()
    assert rota_on_each_store.api("POST", "/api/scheduler/gc", {"days": 0}).json()["removed"]["reservations"] == 1
    late = send(rota_on_each_store, body)
    assert (late.body, late.is_repeated) == (first.body, True)
    other = send(rota_on_each_store, {"command": ["true"]})
    assert (other.status, other.json()["code"]) == (422, "idempotency-key-reused")
    assert children.read_available() == ["once begins", "once ends"]


def test_repeated_request_is_refused_while_the_command_runs(rota: Rota, children: ChildControl) -> None:
    rota.start()
    body = {"command": children.gated_argv("direct")}
    with open_request(rota, body) as connection:
        assert children.read_lines() == ["direct begins"]
        refused = send(rota, body)
        assert (refused.status, refused.json()["code"], refused.headers["Retry-After"]) == (
            409,
            "request-in-progress",
            "1",
        )
        children.release("direct", 4)
        assert ReceivedResponse(connection.getresponse()).json()["reservation"]["exit_code"] == 4
    assert send(rota, body).json()["reservation"]["exit_code"] == 4
    assert list_reservations(rota) == []


def test_repeated_request_after_a_crash_attaches_to_the_command(
    rota_on_each_store: Rota, children: ChildControl
) -> None:
    body = {"command": ["sh", "-c", f"{' '.join(children.gated_argv('direct'))}; echo all of it"]}
    with open_request(rota_on_each_store, body):
        assert children.read_lines() == ["direct begins"]
        wait_for_pid(rota_on_each_store)
        rota_on_each_store.crash()
    rota_on_each_store.start()
    with open_request(rota_on_each_store, body) as connection:
        eventually(lambda: send(rota_on_each_store, body).status == 409, description="the same request in progress")
        children.release("direct")
        result = ReceivedResponse(connection.getresponse())
    assert (result.json()["reservation"]["id"], result.json()["reservation"]["status"]) == (
        "reservation-1",
        "COMPLETED",
    )
    assert result.json()["stdout"] == "all of it\n"
    assert send(rota_on_each_store, body).body == result.body
    assert children.read_available() == ["direct ends"], "the command ran once"


def test_command_that_ended_without_a_client_is_reported_from_its_record(rota: Rota, children: ChildControl) -> None:
    rota.start()
    body = {"command": ["sh", "-c", f"{' '.join(children.gated_argv('direct'))}; echo late; exit 5"]}
    with open_request(rota, body):
        assert children.read_lines() == ["direct begins"]
        wait_for_pid(rota)
        rota.crash()
    children.release("direct")
    assert children.read_lines() == ["direct ends"]
    rota.start()
    wait_for_reservation_end(rota, "reservation-1")
    result = send(rota, body)
    assert (result.status, result.json()["reservation"]["exit_code"], result.json()["stdout"]) == (200, 5, "late\n")
    assert not result.is_repeated, "no client received the response before"
    assert (send(rota, body).is_repeated, send(rota, body).body) == (True, result.body)


def test_unreported_reservation_is_kept_by_gc_and_not_run_again(rota: Rota, children: ChildControl) -> None:
    rota.start()
    body = {"command": children.gated_argv("direct")}
    with open_request(rota, body):
        assert children.read_lines() == ["direct begins"]
        wait_for_pid(rota)
        rota.crash()
    children.release("direct", 5)
    assert children.read_lines() == ["direct ends"]
    rota.start()
    wait_for_reservation_end(rota, "reservation-1")
    assert rota.api("POST", "/api/scheduler/gc", {"days": 0}).json()["removed"]["reservations"] == 0
    result = send(rota, body).json()["reservation"]
    assert (result["id"], result["exit_code"]) == ("reservation-1", 5)
    assert rota.api("POST", "/api/scheduler/gc", {"days": 0}).json()["removed"]["reservations"] == 1
    assert send(rota, body).json()["reservation"] == result
    assert children.read_available() == []


def test_lost_reservation_is_reported_as_possibly_executed(rota: Rota, children: ChildControl) -> None:
    rota.start()
    body = {"command": children.gated_argv("direct")}
    with open_request(rota, body):
        assert children.read_lines() == ["direct begins"]
        wait_for_pid(rota)
        rota.crash()
    children.release("direct")
    assert children.read_lines() == ["direct ends"]
    rota.start()
    wait_for_reservation_end(rota, "reservation-1")
    rota.crash()
    with closing(sqlite3.connect(rota.home / "rota.db")) as database, database:
        database.execute("DELETE FROM reservation")
    rota.run("up", "--accept-loss")
    refused = send(rota, body)
    assert (refused.status, refused.json()["code"]) == (409, "conflict")
    assert "reservation-1, whose record is lost: the command may have run" in refused.json()["detail"]
    assert children.read_available() == []


def test_client_that_disconnected_gets_the_cancelled_reservation(rota: Rota, children: ChildControl) -> None:
    rota.start()
    body = {"command": children.gated_argv("direct")}
    with open_request(rota, body):
        assert children.read_lines() == ["direct begins"]
        wait_for_pid(rota)
    result = send(rota, body).json()["reservation"]
    assert (result["id"], result["status"], result["reason"]) == (
        "reservation-1",
        "CANCELLED",
        "its client disconnected",
    )
    assert list_reservations(rota) == []


def test_client_that_disconnected_while_waiting_may_repeat_the_request(rota: Rota, children: ChildControl) -> None:
    rota.start()
    rota.set_global_size(0)
    body = {"command": children.immediate_argv("direct")}
    with open_request(rota, body):
        eventually(lambda: list_reservations(rota), description="reserved")
    with open_request(rota, body) as connection:
        # The first reservation may not be withdrawn yet. In the end it is, and the second request has its own.
        eventually(
            lambda: [item["id"] for item in list_reservations(rota)] == ["reservation-2"],
            description="a second reservation",
        )
        rota.set_global_size(1)
        result = ReceivedResponse(connection.getresponse()).json()["reservation"]
    assert (result["id"], result["status"]) == ("reservation-2", "COMPLETED")
    assert get_reservation(rota, "reservation-1")["reason"] == "its client disconnected"
    assert children.read_available() == ["direct begins", "direct ends"]


def test_repeated_request_after_a_timeout_waits_again(rota: Rota) -> None:
    rota.start()
    rota.set_global_size(0)
    body = {"command": ["true"], "wait": "100ms"}
    assert send(rota, body).json()["code"] == "reservation-timeout"
    assert send(rota, body).json()["detail"].startswith("reservation-2: it did not start in time")
    rota.set_global_size(1)
    assert send(rota, body).json()["reservation"]["id"] == "reservation-3"


def test_repeated_request_is_answered_although_its_template_is_archived(rota: Rota, children: ChildControl) -> None:
    rota.start()
    template = {"name": "t", "command": children.gated_argv("direct")}
    assert rota.api("POST", "/api/job-templates", template).status == 201
    rota.run("config", "set", "direct.routes./run/t", "t")
    with open_request(rota, {}, "/run/t"):
        assert children.read_lines() == ["direct begins"]
        wait_for_pid(rota)
        rota.crash()
    rota.start()
    rota.run("template", "archive", "t")
    with open_request(rota, {}, "/run/t") as connection:
        eventually(lambda: send(rota, {}, "/run/t").status == 409, description="the request in progress")
        children.release("direct")
        assert ReceivedResponse(connection.getresponse()).json()["reservation"]["id"] == "reservation-1"
    connection_with_get = rota.connection()
    connection_with_get.request("GET", "/run/t")
    refused = ReceivedResponse(connection_with_get.getresponse())
    assert (refused.status, refused.headers["Allow"]) == (405, "POST")
    assert refused.json()["detail"] == "/run/t does not support GET; use POST"
    connection_with_get.close()
    with open_request(rota, {"a": 1}, "/run/t") as connection:
        assert ReceivedResponse(connection.getresponse()).json()["code"] == "idempotency-key-reused"


def test_repeated_reservation_request_reserves_once(rota_on_each_store: Rota) -> None:
    body = {"name": "mine", "type": "story"}
    refused = send(rota_on_each_store, body, "/api/reservations?stream=1")
    assert (refused.status, "leave out the Idempotency-Key" in refused.json()["detail"]) == (422, True)
    first, repeated = (
        send(rota_on_each_store, body, "/api/reservations"),
        send(rota_on_each_store, body, "/api/reservations"),
    )
    assert (first.status, first.json()["id"]) == (201, "reservation-1")
    assert (repeated.status, repeated.body, repeated.is_repeated) == (201, first.body, True)
    rota_on_each_store.crash()
    rota_on_each_store.start()
    assert send(rota_on_each_store, body, "/api/reservations").body == first.body
    assert [item["id"] for item in list_reservations(rota_on_each_store)] == ["reservation-1"]
    assert rota_on_each_store.api("POST", "/api/reservations/reservation-1/release").status == 200
    assert send(rota_on_each_store, body, "/api/reservations").body == first.body, (
        "the response does not depend on the current state"
    )


def test_repeated_artifact_request_puts_once(rota_on_each_store: Rota) -> None:
    body = {"artifact": "custom:review:a", "payload": "good"}
    first = send(rota_on_each_store, body, "/api/artifacts")
    assert (first.status, first.json()["payload"]) == (201, "good")
    assert rota_on_each_store.api("DELETE", "/api/artifacts/custom:review:a").status == 200
    rota_on_each_store.crash()
    rota_on_each_store.start()
    repeated = send(rota_on_each_store, body, "/api/artifacts")
    assert (repeated.body, repeated.is_repeated) == (first.body, True)
    assert rota_on_each_store.api("GET", "/api/artifacts").json() == {"artifacts": [], "next": None}, (
        "the artifact was not put again"
    )

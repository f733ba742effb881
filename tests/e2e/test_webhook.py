"""Webhooks with real receivers on loopback and real kills."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

import pytest
from standardwebhooks.webhooks import Webhook as Verifier
from standardwebhooks.webhooks import WebhookVerificationError

from tests.e2e.rig import TIMEOUT, ChildControl, Rota, eventually, kill


class ReceivedRequest(NamedTuple):
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def message(self) -> str:
        return self.headers["webhook-id"]

    def json(self) -> Any:
        return json.loads(self.body)


class Receiver:
    """An HTTP server that answers `/ok` with 204, `/bad` with 500, `/gone` with 410 and `/away` with a redirect.

    `/hang` blocks until `close`. `/next` answers with the next of `statuses`.
    """

    def __init__(self) -> None:
        self.requests: queue.Queue[ReceivedRequest] = queue.Queue()
        self.statuses: list[int] = []
        self.closed = threading.Event()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                receiver.requests.put(ReceivedRequest(self.path, headers, body))
                receiver.respond(self)

            def log_message(self, *_: object) -> None: ...

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: object) -> None: ...

        self._server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def respond(self, request: BaseHTTPRequestHandler) -> None:
        if request.path.startswith("/hang"):
            self.closed.wait()
            return
        fixed_statuses = {"/ok": 204, "/bad": 500, "/gone": 410, "/away": 302}
        status = fixed_statuses.get(request.path) or (self.statuses.pop(0) if self.statuses else 204)
        request.send_response(status)
        if status == 302:
            request.send_header("Location", f"{self.url}/elsewhere")
        request.send_header("Content-Length", "0")
        request.end_headers()

    def next(self) -> ReceivedRequest:
        return self.requests.get(timeout=TIMEOUT)

    def take_all(self) -> list[ReceivedRequest]:
        """Requests received until now."""
        return [self.requests.get_nowait() for _ in range(self.requests.qsize())]

    def close(self) -> None:
        self.closed.set()
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    created = Receiver()
    yield created
    created.close()


def deliveries(rota: Rota, query: str = "") -> list[dict[str, Any]]:
    """Deliveries, oldest first."""
    listed: list[dict[str, Any]] = rota.api("GET", f"/api/webhook-deliveries{query}").json()["deliveries"]
    return listed[::-1]


def wait_until_settled(rota: Rota, count: int = 1) -> list[dict[str, Any]]:
    """Wait for `count` deliveries of which none is pending."""

    def read_deliveries() -> list[dict[str, Any]] | None:
        listed = deliveries(rota)
        is_settled = len(listed) >= count and all(delivery["state"] != "PENDING" for delivery in listed)
        return listed if is_settled else None

    return eventually(read_deliveries, description="settled deliveries")


def wait_for_attempts(rota: Rota, count: int) -> dict[str, Any]:
    def read_deliveries() -> dict[str, Any] | None:
        listed = deliveries(rota)
        return listed[0] if listed and len(listed[0]["attempts"]) >= count else None

    return eventually(read_deliveries, description=f"{count} attempts")


def test_message_contains_the_api_job_and_a_valid_signature(rota: Rota, receiver: Receiver) -> None:
    created = rota.json("webhook", "add", f"{receiver.url}/ok")
    job = rota.submit("--name", "ä", "--", "sh", "-c", "echo /tmp/s > $ROTA_SESSION_FILE; exit 3")
    received = receiver.next()
    payload = received.json()
    assert payload["type"] == "job.run.failed"
    stored = {**rota.show(job), "policies": None}  # only `show` includes the policies
    assert payload["data"]["job"] == stored
    assert payload["data"]["run"] == stored["run"]
    assert json.dumps(payload["data"]["job"]) == json.dumps(stored)  # in the same order
    assert payload["data"]["job"]["session_path"] == "/tmp/s"
    assert Verifier(created["secret"]).verify(received.body, received.headers) == payload
    with pytest.raises(WebhookVerificationError):
        Verifier(created["secret"]).verify(received.body + b" ", received.headers)
    (delivery,) = wait_until_settled(rota)
    assert (delivery["state"], delivery["attempts"][0]["status"], delivery["message"]) == (
        "DELIVERED",
        204,
        received.message,
    )
    shown = rota.run("show", job).lines[-1]
    assert shown.split()[:4] == ["webhook", "delivery-1", "DELIVERED", "(204)"]
    assert receiver.url in shown


def test_job_urls_are_signed_with_the_home_secret(rota: Rota, receiver: Receiver) -> None:
    rota.submit("--webhook", f"{receiver.url}/ok", "--webhook-event", "job.run.completed", "--", "true")
    received = receiver.next()
    secret = rota.run("webhook", "secret").lines[0]
    assert Verifier(secret).verify(received.body, received.headers)["type"] == "job.run.completed"


def test_dec_009_message_survives_a_kill_after_the_commit(rota: Rota, receiver: Receiver) -> None:
    """At least once: the message was sent, but its response is unknown."""
    rota.run("webhook", "add", f"{receiver.url}/hang")
    rota.submit("--", "true")
    first = receiver.next()
    rota.crash()
    rota.start()
    repeated = receiver.next()
    assert (repeated.message, repeated.body) == (first.message, first.body)


def test_dec_009_restart_between_attempts_continues_the_delivery(rota: Rota, receiver: Receiver) -> None:
    rota.run("config", "set", "webhooks.base", "2s")
    receiver.statuses = [500, 503, 200]
    rota.run("webhook", "add", f"{receiver.url}/next")
    job = rota.submit("--", "true")
    messages = {receiver.next().message}
    wait_for_attempts(rota, 1)
    kill(rota.scheduler_pid)
    rota.start()
    messages |= {receiver.next().message}
    wait_for_attempts(rota, 2)
    rota.run("config", "set", "webhooks.base", "10ms")
    kill(rota.scheduler_pid)
    rota.start()
    messages |= {receiver.next().message}
    (delivery,) = wait_until_settled(rota)
    assert [attempt["status"] for attempt in delivery["attempts"]] == [500, 503, 200]
    assert (delivery["state"], len(messages), delivery["job"]) == ("DELIVERED", 1, job)


def test_dec_009_failed_delivery_is_sent_again_only_by_redeliver(rota: Rota, receiver: Receiver) -> None:
    rota.run("config", "set", "webhooks.base", "10ms")
    receiver.statuses = [500, 500, 500, 500]
    rota.run("webhook", "add", f"{receiver.url}/next")
    job = rota.submit("--", "true")
    (failed,) = wait_until_settled(rota)
    assert (failed["state"], len(failed["attempts"]), failed["reason"]) == ("FAILED", 4, "answered 500")
    assert "FAILED (500)" in rota.run("show", job).out
    assert rota.run("webhook", "redeliver", "delivery-1").lines == ["delivery-1 PENDING"]
    (repeated,) = wait_until_settled(rota)
    assert (repeated["state"], [attempt["status"] for attempt in repeated["attempts"]]) == (
        "DELIVERED",
        [500, 500, 500, 500, 204],
    )
    assert len({receiver.next().message for _ in range(5)}) == 1
    assert rota.run("webhook", "redeliver", "9", code=3).err.startswith("rota: no such delivery: delivery-9")


def test_hanging_receiver_blocks_neither_jobs_nor_other_receivers(
    rota: Rota, receiver: Receiver, children: ChildControl
) -> None:
    rota.run("webhook", "add", f"{receiver.url}/hang")
    rota.run("webhook", "add", f"{receiver.url}/ok")
    jobs = [rota.post_job(children.immediate(f"w{n}")) for n in range(30)]
    assert children.read_lines(60) == [f"w{n} {act}" for n in range(30) for act in ("begins", "ends")]
    rota.wait_for_end(jobs[-1])
    eventually(
        lambda: len(deliveries(rota, "?webhook=webhook-2&state=DELIVERED")) == 30,
        description="all deliveries to webhook-2",
    )
    assert deliveries(rota, "?webhook=webhook-1&state=DELIVERED") == []
    assert rota.json("webhook", "list")["webhooks"][0]["pending"] == 30
    rota.run("down", "--grace", "1s")  # the pending deliveries do not delay the shutdown
    assert rota.schedulers() == []


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/away", "answered 302: redirect to 127.0.0.1 not followed"),
        ("/gone", "answered 410"),
        ("/bad", "answered 500"),
    ],
)
def test_redirect_gone_and_error_responses_fail_the_delivery(
    rota: Rota, receiver: Receiver, path: str, reason: str
) -> None:
    rota.run("config", "set", "webhooks.base", "1ms")
    rota.run("webhook", "add", f"{receiver.url}{path}")
    rota.submit("--", "true")
    (delivery,) = wait_until_settled(rota)
    assert delivery["state"] == "FAILED"
    assert delivery["reason"].startswith(reason)
    assert not any(request.path == "/elsewhere" for request in list(receiver.requests.queue))
    if path == "/gone":
        assert len(delivery["attempts"]) == 1
        assert rota.json("webhook", "list")["webhooks"][0]["state"] == "disabled"
        assert "webhook-1 disabled" in rota.run("status").out
        assert rota.run("webhook", "enable", "1").lines == ["webhook-1 enabled"]


def test_webhook_test_reports_its_result(rota: Rota, receiver: Receiver) -> None:
    rota.run("webhook", "add", f"{receiver.url}/ok")
    rota.run("webhook", "add", f"{receiver.url}/bad")
    good = rota.run("webhook", "test", "webhook-1")
    assert good.out.startswith("webhook-1 delivered: 204 in ")
    assert receiver.next().json()["type"] == "webhook.test"
    bad = rota.run("webhook", "test", "2", code=1)
    assert bad.out.startswith("webhook-2 failed: 500 in ")
    assert bad.err == "rota: answered 500\n"
    assert rota.json("webhook", "test", "2", code=1)["delivered"] is False
    assert deliveries(rota) == []


def test_rotated_secret_overlaps_and_is_never_shown(rota: Rota, receiver: Receiver) -> None:
    before = rota.json("webhook", "add", f"{receiver.url}/ok")["secret"]
    after = rota.run("webhook", "rotate", "webhook-1").lines[0]
    rota.submit("--", "true")
    received = receiver.next()
    for secret in (before, after):
        assert Verifier(secret).verify(received.body, received.headers)
    last = rota.run("webhook", "rotate", "webhook-1", "--keep", "0s").lines[0]
    rota.submit("--", "true")
    received = receiver.next()
    assert Verifier(last).verify(received.body, received.headers)
    with pytest.raises(WebhookVerificationError):
        Verifier(after).verify(received.body, received.headers)
    assert last in rota.run("webhook", "show", "1", "--secret").out
    output = rota.run("webhook", "show", "1").out + rota.run("webhook", "list", "--json").out
    output += (rota.home / "rota.log").read_text() + json.dumps(deliveries(rota))
    assert "whsec_" not in output


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["add", "ftp://example.org"], 2, "must begin with http:// or https://"),
        (["add", "http://169.254.169.254/latest"], 2, "a metadata service"),
        (["add", "http://0xa9fea9fe/"], 2, "four numbers"),
        (["add", "http://[::ffff:169.254.169.254]/"], 2, "is refused"),
        (["add", "http://me:secret@127.0.0.1/"], 2, "user or password"),
        (["add", "http://127.0.0.1/", "--event", "nonsense"], 2, "unknown event kind 'nonsense'"),
        (["add", "http://127.0.0.1/", "--secret", "x"], 2, "not a usable secret"),
        (["show", "webhook-7"], 3, "no such webhook: webhook-7"),
        (["disable", "seven"], 2, "not a webhook id"),
        (["deliveries", "--state", "lost"], 2, "unknown state lost"),
    ],
)
def test_invalid_webhook_is_refused_and_not_stored(
    read_only_rota: Rota, words: list[str], code: int, message: str
) -> None:
    assert message in read_only_rota.run("webhook", *words, code=code).err
    assert read_only_rota.json("webhook", "list") == {"webhooks": []}


def test_job_with_a_refused_url_is_not_stored(read_only_rota: Rota) -> None:
    assert "is refused" in read_only_rota.run("submit", "--webhook", "http://169.254.0.1/", "--", "true", code=2).err
    assert read_only_rota.jobs() == []


def test_unresolvable_host_name_is_refused(read_only_rota: Rota) -> None:
    output = read_only_rota.run("webhook", "add", "http://nowhere.invalid/", code=2)
    assert "nowhere.invalid has no address now (" in output.err
    assert "nothing was added: check the name, or try again when it resolves" in output.err
    assert read_only_rota.run("webhook", "list", "--json").json()["webhooks"] == []


def test_url_of_a_job_gets_no_messages_of_other_jobs(rota: Rota, receiver: Receiver) -> None:
    result, other_job = rota.submit("--webhook", f"{receiver.url}/ok", "--", "true"), rota.submit("--", "true")
    rota.wait_for_end(other_job)
    assert [delivery["job"] for delivery in wait_until_settled(rota)] == [result]


def test_deliveries_are_paginated(rota: Rota, receiver: Receiver) -> None:
    rota.run("webhook", "add", f"{receiver.url}/ok")
    jobs = [rota.post_job(["true"]) for _ in range(5)]
    wait_until_settled(rota, 5)
    page = rota.api("GET", "/api/webhook-deliveries?limit=2").json()
    rest = rota.api("GET", f"/api/webhook-deliveries?limit=10&cursor={page['next']}").json()
    listed = [delivery["job"] for delivery in page["deliveries"] + rest["deliveries"]]
    assert (listed, rest["next"]) == (jobs[::-1], None)
    whole = rota.api("GET", "/api/webhook-deliveries/delivery-1").json()
    assert whole["payload"]["data"]["job"]["id"] == whole["job"]
    assert len(rota.run("webhook", "deliveries", "--job", jobs[0]).lines) == 2
    assert len(rota.api("GET", "/api/webhook-deliveries?state=delivered&limit=5").json()["deliveries"]) == 5
    assert rota.api("GET", "/api/webhook-deliveries?limit=5").json()["next"] is None, "no empty last page"
    for query, where in (("state=sent", "$.state"), ("job=1", "$.job"), ("webhook=1", "$.webhook")):
        refused = rota.api("GET", f"/api/webhook-deliveries?{query}")
        assert (refused.status, refused.json()["path"]) == (422, where)


def test_empty_lists_and_help(read_only_rota: Rota) -> None:
    assert "there are no webhooks" in read_only_rota.run("webhook").err
    assert "there are no deliveries" in read_only_rota.run("webhook", "deliveries").err
    assert "redeliver" in read_only_rota.run("webhook", "--help").out

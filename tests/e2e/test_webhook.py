"""Webhooks as a person uses them: real receivers on loopback, real kills."""

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

from e2e.rig import PATIENCE, Rota, Stage, eventually, kill


class Heard(NamedTuple):
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def message(self) -> str:
        return self.headers["webhook-id"]

    def json(self) -> Any:
        return json.loads(self.body)


class Receiver:
    """Takes what is sent to `/ok`, answers 500 to `/bad`, 410 to `/gone`, redirects `/away`, and holds `/hang` until
    the end. `/next` answers as `answers` says, in turn."""

    def __init__(self) -> None:
        self.heard: queue.Queue[Heard] = queue.Queue()
        self.answers: list[int] = []
        self.over = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                outer.heard.put(Heard(self.path, headers, body))
                outer.answer(self)

            def log_message(self, *_: object) -> None: ...

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: object) -> None: ...

        self._server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def answer(self, to: BaseHTTPRequestHandler) -> None:
        if to.path.startswith("/hang"):
            self.over.wait()
            return
        known = {"/ok": 204, "/bad": 500, "/gone": 410, "/away": 302}
        status = known.get(to.path) or (self.answers.pop(0) if self.answers else 204)
        to.send_response(status)
        if status == 302:
            to.send_header("Location", f"{self.url}/elsewhere")
        to.send_header("Content-Length", "0")
        to.end_headers()

    def next(self) -> Heard:
        return self.heard.get(timeout=PATIENCE)

    def all(self) -> list[Heard]:
        """What has come until now."""
        return [self.heard.get_nowait() for _ in range(self.heard.qsize())]

    def close(self) -> None:
        self.over.set()
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.close()


def deliveries(rota: Rota, query: str = "") -> list[dict[str, Any]]:
    """The oldest first."""
    found: list[dict[str, Any]] = rota.api("GET", f"/api/webhook-deliveries{query}").json()["deliveries"]
    return found[::-1]


def settled(rota: Rota, count: int = 1) -> list[dict[str, Any]]:
    """As soon as so many are there and none is pending."""

    def look() -> list[dict[str, Any]] | None:
        found = deliveries(rota)
        is_so = len(found) >= count and all(each["state"] != "PENDING" for each in found)
        return found if is_so else None

    return eventually(look, what="deliveries that are settled")


def tried(rota: Rota, times: int) -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        found = deliveries(rota)
        return found[0] if found and len(found[0]["tries"]) >= times else None

    return eventually(look, what=f"{times} tries")


def test_an_endpoint_is_told_what_the_api_says_and_can_verify_it(rota: Rota, receiver: Receiver) -> None:
    made = rota.json("webhook", "add", f"{receiver.url}/ok")
    job = rota.submit("--name", "ä", "--", "sh", "-c", "echo /tmp/s > $ROTA_SESSION_FILE; exit 3")
    heard = receiver.next()
    said = heard.json()
    assert said["type"] == "job.run.failed"
    assert said["data"]["job"] == rota.show(job)
    assert said["data"]["run"] == rota.show(job)["run"]
    assert json.dumps(said["data"]["job"]) == json.dumps(rota.show(job))  # in the same order, too
    assert said["data"]["job"]["session_path"] == "/tmp/s"
    assert Verifier(made["secret"]).verify(heard.body, heard.headers) == said
    with pytest.raises(WebhookVerificationError):
        Verifier(made["secret"]).verify(heard.body + b" ", heard.headers)
    (only,) = settled(rota)
    assert (only["state"], only["tries"][0]["status"], only["message"]) == ("DELIVERED", 204, heard.message)
    shown = rota.ask("show", job).lines[-1]
    assert shown.split()[:4] == ["webhook", "delivery-1", "DELIVERED", "(204)"]
    assert receiver.url in shown


def test_a_jobs_own_urls_are_signed_with_the_homes_secret(rota: Rota, receiver: Receiver) -> None:
    rota.submit("--webhook", f"{receiver.url}/ok", "--webhook-event", "job.run.completed", "--", "true")
    heard = receiver.next()
    secret = rota.ask("webhook", "secret").lines[0]
    assert Verifier(secret).verify(heard.body, heard.headers)["type"] == "job.run.completed"


def test_dec_009_a_scheduler_killed_right_after_the_commit_loses_nothing(rota: Rota, receiver: Receiver) -> None:
    """At least once: it had been sent, and nobody knew how it was taken."""
    rota.ask("webhook", "add", f"{receiver.url}/hang")
    rota.submit("--", "true")
    first = receiver.next()
    rota.crash()
    rota.start()
    again = receiver.next()
    assert (again.message, again.body) == (first.message, first.body)


def test_dec_009_a_restart_in_the_middle_of_its_tries_goes_on_where_it_was(rota: Rota, receiver: Receiver) -> None:
    rota.ask("config", "set", "webhooks.base", "2s")
    receiver.answers = [500, 503, 200]
    rota.ask("webhook", "add", f"{receiver.url}/next")
    job = rota.submit("--", "true")
    messages = {receiver.next().message}
    tried(rota, 1)
    kill(rota.scheduler)
    rota.start()
    messages |= {receiver.next().message}
    tried(rota, 2)
    rota.ask("config", "set", "webhooks.base", "10ms")
    kill(rota.scheduler)
    rota.start()
    messages |= {receiver.next().message}
    (only,) = settled(rota)
    assert [each["status"] for each in only["tries"]] == [500, 503, 200]
    assert (only["state"], len(messages), only["job"]) == ("DELIVERED", 1, job)


def test_dec_009_after_its_tries_only_a_person_sends_it(rota: Rota, receiver: Receiver) -> None:
    rota.ask("config", "set", "webhooks.base", "10ms")
    receiver.answers = [500, 500, 500, 500]
    rota.ask("webhook", "add", f"{receiver.url}/next")
    job = rota.submit("--", "true")
    (failed,) = settled(rota)
    assert (failed["state"], len(failed["tries"]), failed["reason"]) == ("FAILED", 4, "answered 500")
    assert "FAILED (500)" in rota.ask("show", job).out
    assert rota.ask("webhook", "redeliver", "delivery-1").lines == ["delivery-1 PENDING"]
    (again,) = settled(rota)
    assert (again["state"], [each["status"] for each in again["tries"]]) == ("DELIVERED", [500, 500, 500, 500, 204])
    assert len({receiver.next().message for _ in range(5)}) == 1
    assert rota.ask("webhook", "redeliver", "9", code=3).err.startswith("rota: no such delivery: delivery-9")


def test_jobs_go_on_while_a_receiver_hangs_and_the_others_are_told(
    rota: Rota, receiver: Receiver, stage: Stage
) -> None:
    rota.ask("webhook", "add", f"{receiver.url}/hang")
    rota.ask("webhook", "add", f"{receiver.url}/ok")
    jobs = [rota.post(stage.walk_on(f"w{n}")) for n in range(30)]
    assert stage.hear(60) == [f"w{n} {what}" for n in range(30) for what in ("begins", "ends")]
    rota.ended(jobs[-1])
    eventually(lambda: len(deliveries(rota, "?webhook=webhook-2&state=DELIVERED")) == 30, what="all for the other")
    assert deliveries(rota, "?webhook=webhook-1&state=DELIVERED") == []
    assert rota.json("webhook", "list")["webhooks"][0]["pending"] == 30
    rota.ask("down", "--grace", "1s")  # and it does not hold up the end
    assert rota.schedulers() == []


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/away", "answered 302: it redirects to 127.0.0.1, which is not followed"),
        ("/gone", "answered 410"),
        ("/bad", "answered 500"),
    ],
)
def test_what_a_receiver_must_not_do(rota: Rota, receiver: Receiver, path: str, reason: str) -> None:
    rota.ask("config", "set", "webhooks.base", "1ms")
    rota.ask("webhook", "add", f"{receiver.url}{path}")
    rota.submit("--", "true")
    (only,) = settled(rota)
    assert only["state"] == "FAILED"
    assert only["reason"].startswith(reason)
    assert not any(heard.path == "/elsewhere" for heard in list(receiver.heard.queue))
    if path == "/gone":
        assert len(only["tries"]) == 1
        assert rota.json("webhook", "list")["webhooks"][0]["state"] == "disabled"
        assert "webhook-1 disabled" in rota.ask("status").out
        assert rota.ask("webhook", "enable", "1").lines == ["webhook-1 enabled"]


def test_a_test_says_how_it_went(rota: Rota, receiver: Receiver) -> None:
    rota.ask("webhook", "add", f"{receiver.url}/ok")
    rota.ask("webhook", "add", f"{receiver.url}/bad")
    good = rota.ask("webhook", "test", "webhook-1")
    assert good.out.startswith("webhook-1 delivered: 204 in ")
    assert receiver.next().json()["type"] == "webhook.test"
    bad = rota.ask("webhook", "test", "2", code=1)
    assert bad.out.startswith("webhook-2 failed: 500 in ")
    assert bad.err == "rota: answered 500\n"
    assert rota.json("webhook", "test", "2", code=1)["delivered"] is False
    assert deliveries(rota) == []


def test_a_secret_is_changed_over_and_said_to_nobody_else(rota: Rota, receiver: Receiver) -> None:
    before = rota.json("webhook", "add", f"{receiver.url}/ok")["secret"]
    after = rota.ask("webhook", "rotate", "webhook-1").lines[0]
    rota.submit("--", "true")
    heard = receiver.next()
    for secret in (before, after):
        assert Verifier(secret).verify(heard.body, heard.headers)
    last = rota.ask("webhook", "rotate", "webhook-1", "--keep", "0s").lines[0]
    rota.submit("--", "true")
    heard = receiver.next()
    assert Verifier(last).verify(heard.body, heard.headers)
    with pytest.raises(WebhookVerificationError):
        Verifier(after).verify(heard.body, heard.headers)
    assert last in rota.ask("webhook", "show", "1", "--secret").out
    said = rota.ask("webhook", "show", "1").out + rota.ask("webhook", "list", "--json").out
    said += (rota.home / "rota.log").read_text() + json.dumps(deliveries(rota))
    assert "whsec_" not in said


@pytest.mark.parametrize(
    ("words", "code", "why"),
    [
        (["add", "ftp://example.org"], 2, "begins with http:// or https://"),
        (["add", "http://169.254.169.254/latest"], 2, "a metadata service"),
        (["add", "http://0xa9fea9fe/"], 2, "four numbers"),
        (["add", "http://[::ffff:169.254.169.254]/"], 2, "is refused"),
        (["add", "http://me:secret@127.0.0.1/"], 2, "user or password"),
        (["add", "http://127.0.0.1/", "--event", "nonsense"], 2, "nobody is told of 'nonsense'"),
        (["add", "http://127.0.0.1/", "--secret", "x"], 2, "not a usable secret"),
        (["show", "webhook-7"], 3, "no such webhook: webhook-7"),
        (["disable", "seven"], 2, "not a webhook id"),
        (["deliveries", "--state", "lost"], 2, "unknown state lost"),
    ],
)
def test_bad_input_is_refused_and_leaves_nothing(untouched: Rota, words: list[str], code: int, why: str) -> None:
    assert why in untouched.ask("webhook", *words, code=code).err
    assert untouched.json("webhook", "list") == {"webhooks": []}


def test_a_refused_url_of_a_job_leaves_no_job(untouched: Rota) -> None:
    assert "is refused" in untouched.ask("submit", "--webhook", "http://169.254.0.1/", "--", "true", code=2).err
    assert untouched.jobs() == []


def test_a_name_without_an_address_is_warned_of(rota: Rota) -> None:
    said = rota.ask("webhook", "add", "http://nowhere.invalid/")
    assert said.lines == ["webhook-1"]
    assert "warning: nowhere.invalid has no address now" in said.err


def test_a_url_of_a_job_is_no_endpoint_for_others(rota: Rota, receiver: Receiver) -> None:
    told, untold = rota.submit("--webhook", f"{receiver.url}/ok", "--", "true"), rota.submit("--", "true")
    rota.ended(untold)
    assert [each["job"] for each in settled(rota)] == [told]


def test_deliveries_are_listed_in_pages(rota: Rota, receiver: Receiver) -> None:
    rota.ask("webhook", "add", f"{receiver.url}/ok")
    jobs = [rota.post(["true"]) for _ in range(5)]
    settled(rota, 5)
    page = rota.api("GET", "/api/webhook-deliveries?limit=2").json()
    rest = rota.api("GET", f"/api/webhook-deliveries?limit=10&cursor={page['next']}").json()
    found = [each["job"] for each in page["deliveries"] + rest["deliveries"]]
    assert (found, rest["next"]) == (jobs[::-1], None)
    whole = rota.api("GET", "/api/webhook-deliveries/delivery-1").json()
    assert whole["payload"]["data"]["job"]["id"] == whole["job"]
    assert len(rota.ask("webhook", "deliveries", "--job", jobs[0]).lines) == 2
    assert len(rota.api("GET", "/api/webhook-deliveries?state=delivered&limit=5").json()["deliveries"]) == 5
    assert rota.api("GET", "/api/webhook-deliveries?limit=5").json()["next"] is None, "there is no empty page"
    for query, where in (("state=sent", "$.state"), ("job=1", "$.job"), ("webhook=1", "$.webhook")):
        refused = rota.api("GET", f"/api/webhook-deliveries?{query}")
        assert (refused.status, refused.json()["path"]) == (422, where)


def test_lists_and_help_are_there_before_anything_is(untouched: Rota) -> None:
    assert "there are no webhooks" in untouched.ask("webhook").err
    assert "nothing was sent" in untouched.ask("webhook", "deliveries").err
    assert "redeliver" in untouched.ask("webhook", "--help").out

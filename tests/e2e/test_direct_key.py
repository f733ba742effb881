"""A direct execution, a reserved place and an artifact that are asked for again with their key: done once, and answered
as before, also by another scheduler."""

from __future__ import annotations

import http.client
import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any

from e2e.client import ended, slot, slots
from e2e.rig import Rota, Stage, eventually

KEY = {"Idempotency-Key": "k"}


@contextmanager
def sent(rota: Rota, body: Any, target: str = "/api/direct") -> Iterator[http.client.HTTPConnection]:
    """A request with the key, until the test closes its connection."""
    connection = rota.connection()
    connection.request("POST", target, json.dumps(body), KEY)
    try:
        yield connection
    finally:
        connection.close()


class Told:
    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers  # type: ignore[assignment]
        self.body = response.read()

    @property
    def is_repeated(self) -> bool:
        return self.headers.get("Idempotent-Replayed") == "true"

    def json(self) -> Any:
        return json.loads(self.body)


def ask(rota: Rota, body: Any, target: str = "/api/direct") -> Told:
    with sent(rota, body, target) as connection:
        return Told(connection.getresponse())


def begun(rota: Rota, name: str = "slot-1") -> None:
    eventually(lambda: slot(rota, name)["pid"], what="its child")


def test_it_runs_once_and_the_answer_outlasts_scheduler_and_slot(keeper: Rota, stage: Stage) -> None:
    body = {"command": ["sh", "-c", f"{' '.join(stage.walk_on('once')[1:])}; echo out; exit 3"]}
    first, again = ask(keeper, body), ask(keeper, body)
    assert (first.status, first.json()["slot"]["exit_code"], first.json()["stdout"]) == (200, 3, "out\n")
    assert (again.status, again.body) == (200, first.body)
    assert (first.is_repeated, again.is_repeated) == (False, True)
    keeper.crash()
    keeper.start()
    assert keeper.api("POST", "/api/scheduler/gc", {"days": 0}).json()["removed"]["slots"] == 1
    late = ask(keeper, body)
    assert (late.body, late.is_repeated) == (first.body, True)
    other = ask(keeper, {"command": ["true"]})
    assert (other.status, other.json()["code"]) == (422, "key-reused")
    assert stage.heard() == ["once begins", "once ends"]


def test_while_it_runs_it_is_in_flight(rota: Rota, stage: Stage) -> None:
    rota.start()
    body = {"command": stage.actor("direct")[1:]}
    with sent(rota, body) as connection:
        assert stage.hear() == ["direct begins"]
        refused = ask(rota, body)
        assert (refused.status, refused.json()["code"], refused.headers["Retry-After"]) == (409, "in-flight", "1")
        stage.release("direct", 4)
        assert Told(connection.getresponse()).json()["slot"]["exit_code"] == 4
    assert ask(rota, body).json()["slot"]["exit_code"] == 4
    assert slots(rota) == []


def test_after_a_crash_it_is_the_client_that_comes_back(keeper: Rota, stage: Stage) -> None:
    body = {"command": ["sh", "-c", f"{' '.join(stage.actor('direct')[1:])}; echo all of it"]}
    with sent(keeper, body):
        assert stage.hear() == ["direct begins"]
        begun(keeper)
        keeper.crash()
    keeper.start()
    with sent(keeper, body) as connection:
        eventually(lambda: ask(keeper, body).status == 409, what="the same request, in flight again")
        stage.release("direct")
        told = Told(connection.getresponse())
    assert (told.json()["slot"]["id"], told.json()["slot"]["status"]) == ("slot-1", "COMPLETED")
    assert told.json()["stdout"] == "all of it\n"
    assert ask(keeper, body).body == told.body
    assert stage.heard() == ["direct ends"], "once"


def test_what_ended_while_nobody_was_there_is_told_from_its_slot_and_its_files(rota: Rota, stage: Stage) -> None:
    rota.start()
    body = {"command": ["sh", "-c", f"{' '.join(stage.actor('direct')[1:])}; echo late; exit 5"]}
    with sent(rota, body):
        assert stage.hear() == ["direct begins"]
        begun(rota)
        rota.crash()
    stage.release("direct")
    assert stage.hear() == ["direct ends"]
    rota.start()
    ended(rota, "slot-1")
    told = ask(rota, body)
    assert (told.status, told.json()["slot"]["exit_code"], told.json()["stdout"]) == (200, 5, "late\n")
    assert not told.is_repeated, "nobody had been told"
    assert (ask(rota, body).is_repeated, ask(rota, body).body) == (True, told.body)


def test_what_nobody_was_told_is_not_collected_and_does_not_run_again(rota: Rota, stage: Stage) -> None:
    rota.start()
    body = {"command": stage.actor("direct")[1:]}
    with sent(rota, body):
        assert stage.hear() == ["direct begins"]
        begun(rota)
        rota.crash()
    stage.release("direct", 5)
    assert stage.hear() == ["direct ends"]
    rota.start()
    ended(rota, "slot-1")
    assert rota.api("POST", "/api/scheduler/gc", {"days": 0}).json()["removed"]["slots"] == 0
    told = ask(rota, body).json()["slot"]
    assert (told["id"], told["exit_code"]) == ("slot-1", 5)
    assert rota.api("POST", "/api/scheduler/gc", {"days": 0}).json()["removed"]["slots"] == 1
    assert ask(rota, body).json()["slot"] == told
    assert stage.heard() == []


def test_of_what_nothing_is_stored_any_more_nobody_says_that_it_did_not_run(rota: Rota, stage: Stage) -> None:
    rota.start()
    body = {"command": stage.actor("direct")[1:]}
    with sent(rota, body):
        assert stage.hear() == ["direct begins"]
        begun(rota)
        rota.crash()
    stage.release("direct")
    assert stage.hear() == ["direct ends"]
    rota.start()
    ended(rota, "slot-1")
    rota.crash()
    with closing(sqlite3.connect(rota.home / "rota.db")) as database, database:
        database.execute("DELETE FROM slot")
    rota.start()
    refused = ask(rota, body)
    assert (refused.status, refused.json()["code"]) == (409, "conflict")
    assert "as slot-1, of which nothing is stored any more: it may have run" in refused.json()["detail"]
    assert stage.heard() == []


def test_who_goes_away_while_it_runs_is_told_later_that_it_was_cancelled(rota: Rota, stage: Stage) -> None:
    rota.start()
    body = {"command": stage.actor("direct")[1:]}
    with sent(rota, body):
        assert stage.hear() == ["direct begins"]
        begun(rota)
    told = ask(rota, body).json()["slot"]
    assert (told["id"], told["status"], told["reason"]) == ("slot-1", "CANCELLED", "its client went away")
    assert slots(rota) == []


def test_who_goes_away_while_it_waits_may_ask_again(rota: Rota, stage: Stage) -> None:
    rota.start()
    rota.set_global(0)
    body = {"command": stage.walk_on("direct")[1:]}
    with sent(rota, body):
        eventually(lambda: slots(rota), what="reserved")
    with sent(rota, body) as connection:
        # By then the first may be withdrawn or not: in the end it is, and this one has a place of its own.
        eventually(lambda: [each["id"] for each in slots(rota)] == ["slot-2"], what="a place of its own")
        rota.set_global(1)
        told = Told(connection.getresponse()).json()["slot"]
    assert (told["id"], told["status"]) == ("slot-2", "COMPLETED")
    assert slot(rota, "slot-1")["reason"] == "its client went away"
    assert stage.heard() == ["direct begins", "direct ends"]


def test_a_turn_that_did_not_come_is_waited_for_anew(rota: Rota) -> None:
    rota.start()
    rota.set_global(0)
    body = {"command": ["true"], "wait": "100ms"}
    assert ask(rota, body).json()["code"] == "wait-over"
    assert ask(rota, body).json()["detail"].startswith("slot-2: wait over")
    rota.set_global(1)
    assert ask(rota, body).json()["slot"]["id"] == "slot-3"


def test_what_could_not_be_asked_for_any_more_is_answered_all_the_same(rota: Rota, stage: Stage) -> None:
    rota.start()
    template = {"name": "t", "command": stage.actor("direct")[1:]}
    assert rota.api("POST", "/api/job-templates", template).status == 201
    rota.ask("config", "set", "direct.routes./run/t", "t")
    with sent(rota, {}, "/run/t"):
        assert stage.hear() == ["direct begins"]
        begun(rota)
        rota.crash()
    rota.start()
    rota.ask("template", "archive", "t")
    with sent(rota, {}, "/run/t") as connection:
        eventually(lambda: ask(rota, {}, "/run/t").status == 409, what="in flight")
        stage.release("direct")
        assert Told(connection.getresponse()).json()["slot"]["id"] == "slot-1"
    wrong = rota.connection()
    wrong.request("GET", "/run/t")
    refused = Told(wrong.getresponse())
    assert (refused.status, refused.headers["Allow"]) == (405, "POST")
    assert refused.json()["detail"] == "/run/t cannot be asked with GET, only with POST"
    wrong.close()
    with sent(rota, {"a": 1}, "/run/t") as connection:
        assert Told(connection.getresponse()).json()["code"] == "key-reused"


def test_a_place_is_reserved_once(keeper: Rota) -> None:
    body = {"name": "mine", "type": "story"}
    refused = ask(keeper, body, "/api/slots?stream=1")
    assert (refused.status, "leave out the Idempotency-Key" in refused.json()["detail"]) == (422, True)
    first, again = ask(keeper, body, "/api/slots"), ask(keeper, body, "/api/slots")
    assert (first.status, first.json()["id"]) == (201, "slot-1")
    assert (again.status, again.body, again.is_repeated) == (201, first.body, True)
    keeper.crash()
    keeper.start()
    assert ask(keeper, body, "/api/slots").body == first.body
    assert [each["id"] for each in slots(keeper)] == ["slot-1"]
    assert keeper.api("POST", "/api/slots/slot-1/release").status == 200
    assert ask(keeper, body, "/api/slots").body == first.body, "whatever has become of it"


def test_an_artifact_is_put_once(keeper: Rota) -> None:
    body = {"artifact": "custom:review:a", "payload": "good"}
    first = ask(keeper, body, "/api/artifacts")
    assert (first.status, first.json()["payload"]) == (201, "good")
    assert keeper.api("DELETE", "/api/artifacts/custom:review:a").status == 200
    keeper.crash()
    keeper.start()
    again = ask(keeper, body, "/api/artifacts")
    assert (again.body, again.is_repeated) == (first.body, True)
    assert keeper.api("GET", "/api/artifacts").json() == {"artifacts": [], "next": None}, "it was not put again"


def test_slots_artifacts_and_breakers_come_in_pages(keeper: Rota) -> None:
    for n in range(3):
        assert keeper.api("POST", "/api/slots", {"name": f"s{n}"}).status == 201
        put = {"artifact": f"custom:review:{n}. a/b", "cwd": "/"}
        assert keeper.api("POST", "/api/artifacts", put).status == 201
    assert pages(keeper, "slots", "name") == [["s0", "s1"], ["s2"]]
    names = [f"custom:review:{n}. a/b" for n in range(3)]
    assert pages(keeper, "artifacts", "artifact") == [names[:2], names[2:]]
    assert [each["name"] for each in keeper.json("slot", "list")["slots"]] == ["s0", "s1", "s2"]
    assert [each["artifact"] for each in keeper.json("artifact", "list")["artifacts"]] == names
    assert keeper.api("GET", "/api/breakers?limit=1").json() == {"breakers": [], "next": None}
    for path in ("slots", "artifacts", "queue", "jobs"):
        refused = keeper.api("GET", f"/api/{path}?cursor=x")
        assert (refused.status, refused.json()["path"]) == (422, "$.cursor"), path
        assert keeper.api("GET", f"/api/{path}?limit=0").json()["path"] == "$.limit"


def pages(rota: Rota, noun: str, field: str) -> list[list[str]]:
    first = rota.api("GET", f"/api/{noun}?limit=2").json()
    connection = rota.connection()
    connection.request("GET", f"/api/{noun}?limit=2&cursor={first['next'].replace('/', '%2F').replace(' ', '%20')}")
    second = json.loads(connection.getresponse().read())
    connection.close()
    assert second["next"] is None
    return [[each[field] for each in page[noun]] for page in (first, second)]


def test_a_name_with_a_nul_is_nobodys(keeper: Rota) -> None:
    """PostgreSQL has no such text; that is no defect of anybody."""
    for target in ("/api/locks?key=%00", "/api/job-runs?worker=a%00", "/api/breakers?cursor=%00", "/api/jobs?name=%00"):
        assert keeper.api("GET", target).status in (200, 422), target
    for target in ("/api/breakers/%00/reset", "/api/job-templates/%00", "/api/job-groups/%00/close"):
        method = "GET" if "templates" in target else "POST"
        assert keeper.api(method, target).status in (404, 422), target
    assert keeper.api("POST", "/api/slots", {"template": "a\0"}).status in (404, 422)


def test_what_nobody_answers(untouched: Rota) -> None:
    nowhere = untouched.api("GET", "/api/nothing")
    assert (nowhere.status, nowhere.json()["code"]) == (404, "not-found")
    assert nowhere.json()["detail"].startswith("nothing is at /api/nothing; ")
    connection = untouched.connection()
    connection.request("PUT", "/api/jobs/job-1")
    refused = Told(connection.getresponse())
    assert (refused.status, refused.headers["Allow"]) == (405, "GET, HEAD, PATCH")
    assert refused.json()["code"] == "method-not-allowed"
    connection.close()

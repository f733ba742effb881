"""Schedules as a person meets them. Nobody waits a minute: while the scheduler is down its store is made one in which a
time is near, or long over."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

from e2e.rig import Rota, Stage, eventually


def put(rota: Rota, name: str, moment: datetime) -> None:
    """That is the next time of a schedule; the scheduler is down."""
    at = int(moment.timestamp()) * 1_000_000
    with closing(sqlite3.connect(rota.home / "rota.db")) as database, database:
        assert database.execute("UPDATE schedule SET next_at = ? WHERE name = ?", (at, name)).rowcount == 1


def fires(rota: Rota, name: str) -> list[dict[str, Any]]:
    """The newest first."""
    found: list[dict[str, Any]] = rota.api("GET", f"/api/schedules/{name}").json()["fires"]
    return found


def test_dec_003_a_schedule_from_its_making_to_its_removal(rota: Rota) -> None:
    said = rota.ask(
        "schedule", "add", "nightly", "--cron", "30 3 * * *", "--tz", "Europe/Berlin", "--param", "k=v",
        "--priority", "4", "--", "sh", "-c", "echo $WHO in $PWD",
        env={"WHO": "me"},
    )  # fmt: skip
    assert said.out == "schedule-1\n"
    assert [line[:11] for line in said.err.splitlines()] == ["rota: next "] * 3
    assert "03:30 +0" in said.err
    listed = rota.ask("schedule", "list").lines
    assert listed[0].split() == ["ID", "NAME", "CRON", "ZONE", "NEXT", "LAST", "ENABLED"]
    assert "nightly  30 3 * * *  Europe/Berlin  in " in listed[1]
    job = rota.ask("schedule", "trigger", "nightly").lines[0]
    rota.wait(job)
    assert rota.ask("logs", job).out == f"me in {rota.cwd}\n"
    shown = rota.show(job)
    assert (shown["schedule"], shown["params"], shown["priority"]) == ("schedule-1", {"k": "v"}, 4)
    assert f"fires              {datetime.now(UTC):%Y-%m-%d}" in rota.ask("schedule", "show", "nightly").out
    assert '"me"' not in rota.ask("schedule", "show", "nightly", "--json").out
    assert "schedules      1, next nightly in " in rota.ask("status").out
    assert rota.status()["schedules"]["next"]["name"] == "nightly"
    assert rota.ask("schedule", "disable", "nightly").out == "schedule-1 disabled\n"
    assert rota.json("schedule", "show", "nightly")["next_at"] is None
    assert rota.ask("schedule", "enable", "schedule-1").out == "schedule-1 enabled\n"
    assert rota.ask("schedule", "remove", "nightly").out == "schedule-1 removed\n"
    assert "there is no schedule" in rota.ask("schedule").err
    assert rota.show(job)["status"] == "COMPLETED"
    rota.ask("schedule", "show", "nightly", code=3)


def test_dec_003_an_expression_that_cannot_be_used_is_pointed_at(untouched: Rota) -> None:
    said = untouched.ask("schedule", "add", "s", "--cron", "0 1,61 * * *", "--", "true", code=2)
    assert said.err == (
        'rota: cron "0 1,61 * * *": hour 61 is out of range 0-23\n'
        "  0 1,61 * * *\n"
        "      ^^\n"
    )  # fmt: skip
    assert (
        "seconds cannot be said"
        in untouched.ask("schedule", "add", "s", "--cron", "* * * * * *", "--", "true", code=2).err
    )
    assert untouched.json("schedule", "list") == {"schedules": []}


def test_dec_010_a_zone_is_utc_unless_it_is_named_and_an_unknown_one_is_refused(rota: Rota) -> None:
    said = rota.ask("schedule", "add", "s", "--cron", "@daily", "--tz", "Europe/Berlln", "--", "true", code=2)
    assert said.err == 'rota: unknown time zone "Europe/Berlln"; did you mean Europe/Berlin?\n'
    rota.ask("schedule", "add", "plain", "--cron", "0 12 * * *", "--", "true")
    assert rota.json("schedule", "show", "plain")["tz"] == "UTC"
    rota.ask("schedule", "add", "zoned", "--cron", "30 2 * * *", "--tz", "Europe/Berlin", "--", "true")
    answer = rota.json("schedule", "next", "zoned", "--from", "2026-03-28T12:00:00Z", "--count", "2")
    assert answer == {
        "fires": [
            {"utc": "2026-03-29T01:00:00Z", "local": "2026-03-29T03:00:00+02:00"},
            {"utc": "2026-03-30T00:30:00Z", "local": "2026-03-30T02:30:00+02:00"},
        ]
    }
    spoken = rota.ask("schedule", "next", "zoned", "--from", "2026-03-28T12:00:00Z", "--count", "1").lines
    assert spoken[1] == "Sun 2026-03-29 03:00 +0200  2026-03-29 01:00Z"
    assert "not a time" in rota.ask("schedule", "next", "zoned", "--from", "noon", code=2).err


def test_inv_005_a_change_touches_no_job_that_exists(rota: Rota) -> None:
    rota.start()
    rota.set_global(0)
    rota.ask("schedule", "add", "s", "--cron", "@daily", "--param", "v=old", "--", "echo", "old")
    first = rota.ask("schedule", "trigger", "s").lines[0]
    before = rota.show(first)
    said = rota.ask(
        "schedule", "change", "s", "--cron", "@hourly", "--param", "v=new", "--priority", "9", "--", "echo", "new"
    )
    assert said.lines == ["schedule-1 cron, job"]
    rota.ask("schedule", "disable", "s")
    assert rota.show(first) == before
    second = rota.show(rota.ask("schedule", "trigger", "s").lines[0])
    assert (second["command"], second["params"], second["priority"]) == (["echo", "new"], {"v": "new"}, 9)
    refused = rota.ask("schedule", "change", "s", "--", code=2)
    assert "there is no command after --" in refused.err


def test_it_fires_by_itself_and_once_whatever_is_killed(rota: Rota, stage: Stage) -> None:
    """The risk of missed triggers: the next time is stored, and the fire and its job are one transaction."""
    rota.ask("schedule", "add", "s", "--cron", "0 0 1 1 *", "--overlap", "skip", *stage.actor("job"))
    rota.ask("down")
    put(rota, "s", datetime.now(UTC) + timedelta(seconds=4))
    rota.start()
    assert stage.hear() == ["job begins"]
    rota.crash()
    rota.start()
    stage.release("job")
    assert stage.hear() == ["job ends"]
    assert [each["id"] for each in rota.jobs()] == ["job-1"]
    (fired,) = fires(rota, "s")
    assert (fired["state"], fired["job"]) == ("fired", "job-1")
    assert fired["late"] < 60


def test_times_that_passed_while_it_was_down_are_caught_up_or_said_to_be_missed(rota: Rota) -> None:
    last = datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(minutes=20)  # and none while this runs
    for name, policy in (("last", "latest"), ("never", "none")):
        rota.ask("schedule", "add", name, "--cron", f"{last.minute} * * * *", "--catch-up", policy, "--", "true")
    rota.ask("down")
    put(rota, "last", last - timedelta(hours=3))
    put(rota, "never", last - timedelta(hours=3))
    rota.start()
    eventually(lambda: fires(rota, "never") and len(fires(rota, "last")) == 2)
    states = [(each["state"], each["count"]) for each in fires(rota, "last")]
    assert states == [("fired", 1), ("missed", 3)]
    rota.wait("job-1")
    status = rota.status()["schedules"]
    assert status["missed"] == 7
    assert "7 missed since yesterday" in rota.ask("status").out
    assert "missed" in rota.ask("schedule", "list").out


def test_over_http(rota: Rota) -> None:
    rota.start()
    body = {"name": "s", "cron": "@hourly", "job": {"command": ["true"], "params": {"a": 1}}}
    made = rota.api("POST", "/api/schedules", body)
    assert made.status == 201
    assert made.json()["tz"] == "UTC"
    assert len(made.json()["next"]) == 3
    assert rota.api("POST", "/api/schedules", body).status == 409
    assert rota.api("POST", "/api/schedules", {**body, "naem": 1}).status == 422
    assert [each["id"] for each in rota.api("GET", "/api/schedules").json()["schedules"]] == ["schedule-1"]
    changed = rota.api("PATCH", "/api/schedules/s", {"tz": "Asia/Tokyo", "set_params": {"b": 2}}).json()
    assert changed["fields"] == ["tz", "job"]
    assert changed["schedule"]["params"] == {"a": 1, "b": 2}
    told = rota.api("POST", "/api/schedules/schedule-1/trigger", {"params": {"a": 5}})
    assert told.status == 201
    assert told.json()["result"] == "submitted"
    assert told.json()["job"]["params"] == {"a": 5, "b": 2}
    assert len(rota.api("GET", "/api/schedules/s/next?count=5").json()["fires"]) == 5
    for query, where in (("count=0", "$.count"), ("from=soon", "$.from"), ("start=x", "$.start")):
        refused = rota.api("GET", f"/api/schedules/s/next?{query}")
        assert (refused.status, refused.json()["path"]) == (422, where)
    assert rota.api("GET", "/api/schedules/s/next?from=2026-03-01&count=1").json()["fires"][0]["utc"] == (
        "2026-03-01T01:00:00Z"
    )
    assert rota.api("POST", "/api/schedules/s/disable").json()["enabled"] is False
    assert rota.api("POST", "/api/schedules/s/enable").json()["enabled"] is True
    assert rota.api("DELETE", "/api/schedules/s").status == 200
    assert rota.api("GET", "/api/schedules/s").status == 404
    with closing(sqlite3.connect(rota.home / "rota.db")) as database:
        kinds = [row[0] for row in database.execute("SELECT kind FROM event WHERE kind LIKE 'schedule.%' ORDER BY seq")]
        data = database.execute("SELECT data FROM event WHERE kind = 'schedule.fired'").fetchone()[0]
    assert kinds == [
        "schedule.created", "schedule.changed", "schedule.fired", "schedule.disabled", "schedule.enabled",
        "schedule.removed",
    ]  # fmt: skip
    assert json.loads(data)["schedule"] == "schedule-1"


def test_a_variable_that_was_asked_for_by_name_wins_over_the_template(rota: Rota) -> None:
    rota.ask("template", "add", "say", "--env", "MODEL=template", "--", "sh", "-c", 'echo "$MODEL"')

    def said() -> str:
        job = rota.ask("schedule", "trigger", "s").lines[0]
        rota.wait(job)
        return rota.ask("logs", job).out

    rota.ask("schedule", "add", "s", "--cron", "@daily", "--template", "say", env={"MODEL": "caller"})
    assert said() == "template\n"
    rota.ask("schedule", "change", "s", "--env", "MODEL=changed")
    assert said() == "changed\n"
    rota.ask("schedule", "remove", "s")
    rota.ask("schedule", "add", "s", "--cron", "@daily", "--template", "say", "--env", "MODEL=asked")
    assert said() == "asked\n"


def test_what_every_time_would_fail_on_is_refused_and_what_may_come_is_warned_of(rota: Rota) -> None:
    add = ("schedule", "add", "s", "--cron", "@daily")
    assert "not in a git repository" in rota.ask(*add, "--worktree", "--", "true", code=2).err
    assert "--pin main belongs to one" in rota.ask(*add, "--pin", "main", "--", "true", code=2).err
    assert "unknown artifact type" in rota.ask(*add, "--needs", "bogus", "--", "true", code=2).err
    assert "not a usable unique key" in rota.ask(*add, "--unique", "", "--", "true", code=2).err
    assert rota.json("schedule", "list") == {"schedules": []}
    assert "warning: program not found (yet): ./later.sh" in rota.ask(*add, "--", "./later.sh").err
    assert "not in a git repository" in rota.ask("schedule", "change", "s", "--worktree", code=2).err
    assert "pool" in rota.ask("schedule", "change", "s", "--pool", "resource/none=3").err
    assert "warning" not in rota.ask("schedule", "change", "s", "--cron", "@hourly").err


def test_a_schedule_outlives_its_template(rota: Rota) -> None:
    rota.ask("template", "add", "say", "--", "echo", "hi")
    rota.ask("schedule", "add", "s", "--cron", "@daily", "--template", "say")
    rota.ask("template", "archive", "say")
    rota.ask("schedule", "change", "s", "--cron", "@hourly", "--rename", "t")
    said = rota.ask("schedule", "change", "t", "--", "echo", "by hand")
    assert "warning: the command takes the place of template say" in said.err
    job = rota.ask("schedule", "trigger", "t").lines[0]
    rota.wait(job)
    assert rota.ask("logs", job).out == "by hand\n"
    assert rota.show(job)["name"] == "t"


def test_a_trigger_that_is_asked_for_again_with_its_key_is_one_job(rota: Rota) -> None:
    rota.ask("schedule", "add", "s", "--cron", "@daily", "--", "true")
    first, again = (
        rota.api("POST", "/api/schedules/s/trigger", {"params": {"a": 1}}, Idempotency_Key="k") for _ in range(2)
    )
    assert (first.status, first.json()["job"]["id"]) == (201, "job-1")
    assert again == first
    assert len(fires(rota, "s")) == 1
    assert rota.api("POST", "/api/schedules/s/trigger", {"params": {"a": 2}}, Idempotency_Key="k").status == 422
    assert rota.api("POST", "/api/schedules/s/trigger").json()["job"]["id"] == "job-2"

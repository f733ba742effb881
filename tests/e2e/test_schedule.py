"""Schedules at the terminal and over HTTP.

Tests do not wait for a minute: they set the next time in the store while the scheduler is down.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.e2e.rig import ChildControl, Rota, eventually


def set_next_time(rota: Rota, name: str, moment: datetime) -> None:
    """Set the next time of a schedule. The scheduler must be down."""
    microseconds = int(moment.timestamp()) * 1_000_000
    with closing(sqlite3.connect(rota.home / "rota.db")) as database, database:
        assert database.execute("UPDATE schedule SET next_at = ? WHERE name = ?", (microseconds, name)).rowcount == 1


def read_fires(rota: Rota, name: str) -> list[dict[str, Any]]:
    """Fires of a schedule, newest first."""
    fires: list[dict[str, Any]] = rota.api("GET", f"/api/schedules/{name}").json()["fires"]
    return fires


def test_schedule_show_prints_the_policies_of_its_job(rota: Rota) -> None:
    rota.start()
    rota.run("template", "add", "review", "--timeout", "5m", "--flow", "review", "--", "true")
    needs = ["--needs", "file:/plan.md", "--overlap", "queue_one", "--priority", "3"]
    rota.run("schedule", "add", "nightly", "--cron", "@daily", "--template", "review", *needs)
    lines = [" ".join(line.split()) for line in rota.run("schedule", "show", "nightly").lines]
    assert "retry 5 retries [flow default; built-in (retry.fleet.max_retries)]" in lines
    policies = {
        policy["name"]: (policy["value"], policy["source"])
        for policy in rota.json("schedule", "show", "nightly")["policies"]
    }
    assert policies["timeout"] == ("5m", "template review")
    assert policies["priority"] == ("3", "schedule-1")
    assert policies["need file:/plan.md"] == ("wait while no job produces it", "file default; built-in")
    assert policies["pool flow/review"][1] == "flow default; size: built-in (pools.flow/*)"
    job = rota.json("schedule", "trigger", "nightly")["job"]
    stored = {
        policy["name"]: (policy["value"], policy["source"]) for policy in rota.json("show", job["id"])["policies"]
    }
    assert stored == policies, "the preview shows what the job gets"
    assert rota.json("schedule", "list")["schedules"][0]["policies"] is None
    rota.run("template", "archive", "review")
    assert rota.json("schedule", "show", "nightly")["policies"] is None


def test_dec_003_schedule_life_cycle(rota: Rota) -> None:
    rota.start()
    output = rota.run(
        "schedule",
        "add",
        "nightly",
        "--cron",
        "30 3 * * *",
        "--tz",
        "Europe/Berlin",
        "--param",
        "k=v",
        "--priority",
        "4",
        "--",
        "sh",
        "-c",
        "echo $WHO in $PWD",
        env={"WHO": "me"},
    )
    assert output.out == "schedule-1\n"
    assert [line[:11] for line in output.err.splitlines()] == ["rota: next "] * 3
    assert "03:30 +0" in output.err
    listed = rota.run("schedule", "list").lines
    assert listed[0].split() == ["ID", "NAME", "CRON", "ZONE", "NEXT", "LAST", "ENABLED"]
    assert "nightly  30 3 * * *  Europe/Berlin  in " in listed[1]
    job = rota.run("schedule", "trigger", "nightly").lines[0]
    rota.wait(job)
    assert rota.run("logs", job).out == f"me in {rota.cwd}\n"
    shown = rota.show(job)
    assert (shown["schedule"], shown["params"], shown["priority"]) == ("schedule-1", {"k": "v"}, 4)
    assert f"fires              {datetime.now(UTC):%Y-%m-%d}" in rota.run("schedule", "show", "nightly").out
    assert '"me"' not in rota.run("schedule", "show", "nightly", "--json").out
    assert "schedules      1, next nightly in " in rota.run("status").out
    assert rota.status()["schedules"]["next"]["name"] == "nightly"
    assert rota.run("schedule", "disable", "nightly").out == "schedule-1 disabled\n"
    assert rota.json("schedule", "show", "nightly")["next_at"] is None
    assert rota.run("schedule", "enable", "schedule-1").out == "schedule-1 enabled\n"
    assert rota.run("schedule", "remove", "nightly").out == "schedule-1 removed\n"
    assert "there are no schedules" in rota.run("schedule").err
    assert rota.show(job)["status"] == "COMPLETED"
    rota.run("schedule", "show", "nightly", code=3)


def test_dec_003_invalid_expression_is_marked(read_only_rota: Rota) -> None:
    output = read_only_rota.run("schedule", "add", "s", "--cron", "0 1,61 * * *", "--", "true", code=2)
    assert output.err == ('rota: cron "0 1,61 * * *": hour 61 is out of range 0-23\n  0 1,61 * * *\n      ^^\n')
    assert (
        "seconds are not supported"
        in read_only_rota.run("schedule", "add", "s", "--cron", "* * * * * *", "--", "true", code=2).err
    )
    assert read_only_rota.json("schedule", "list") == {"schedules": []}


def test_dec_010_default_zone_is_utc_and_unknown_zone_is_refused(rota: Rota) -> None:
    rota.start()
    output = rota.run("schedule", "add", "s", "--cron", "@daily", "--tz", "Europe/Berlln", "--", "true", code=2)
    assert output.err == 'rota: unknown time zone "Europe/Berlln"; did you mean Europe/Berlin?\n'
    rota.run("schedule", "add", "plain", "--cron", "0 12 * * *", "--", "true")
    assert rota.json("schedule", "show", "plain")["tz"] == "UTC"
    rota.run("schedule", "add", "zoned", "--cron", "30 2 * * *", "--tz", "Europe/Berlin", "--", "true")
    response = rota.json("schedule", "next", "zoned", "--from", "2026-03-28T12:00:00Z", "--count", "2")
    assert response == {
        "fires": [
            {"utc": "2026-03-29T01:00:00Z", "local": "2026-03-29T03:00:00+02:00"},
            {"utc": "2026-03-30T00:30:00Z", "local": "2026-03-30T02:30:00+02:00"},
        ]
    }
    lines = rota.run("schedule", "next", "zoned", "--from", "2026-03-28T12:00:00Z", "--count", "1").lines
    assert lines[1] == "Sun 2026-03-29 03:00 +0200  2026-03-29 01:00Z"
    assert "invalid time" in rota.run("schedule", "next", "zoned", "--from", "noon", code=2).err


def test_inv_005_change_does_not_affect_existing_jobs(rota: Rota) -> None:
    rota.start()
    rota.set_global_size(0)
    rota.run("schedule", "add", "s", "--cron", "@daily", "--param", "v=old", "--", "echo", "old")
    first = rota.run("schedule", "trigger", "s").lines[0]
    before = rota.show(first)
    output = rota.run(
        "schedule", "change", "s", "--cron", "@hourly", "--param", "v=new", "--priority", "9", "--", "echo", "new"
    )
    assert output.lines == ["schedule-1 cron, job"]
    rota.run("schedule", "disable", "s")
    assert rota.show(first) == before
    second = rota.show(rota.run("schedule", "trigger", "s").lines[0])
    assert (second["command"], second["params"], second["priority"]) == (["echo", "new"], {"v": "new"}, 9)
    refused = rota.run("schedule", "change", "s", "--", code=2)
    assert "there is no command after --" in refused.err


def test_schedule_fires_exactly_once_despite_kills(rota: Rota, children: ChildControl) -> None:
    """The next time is stored, and the fire and its job are one transaction."""
    rota.run("schedule", "add", "s", "--cron", "0 0 1 1 *", "--overlap", "skip", *children.gated("job"))
    rota.run("down")
    set_next_time(rota, "s", datetime.now(UTC) + timedelta(seconds=4))
    rota.start()
    assert children.read_lines() == ["job begins"]
    rota.crash()
    rota.start()
    children.release("job")
    assert children.read_lines() == ["job ends"]
    assert [job["id"] for job in rota.jobs()] == ["job-1"]
    (fired,) = read_fires(rota, "s")
    assert (fired["state"], fired["job"]) == ("fired", "job-1")
    assert fired["delay_seconds"] < 60


def test_times_missed_while_down_are_caught_up_or_reported(rota: Rota) -> None:
    last = datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(minutes=20)  # no time is due during the test
    for name, policy in (("last", "latest"), ("never", "none")):
        rota.run("schedule", "add", name, "--cron", f"{last.minute} * * * *", "--catch-up", policy, "--", "true")
    rota.run("down")
    set_next_time(rota, "last", last - timedelta(hours=3))
    set_next_time(rota, "never", last - timedelta(hours=3))
    rota.start()
    eventually(lambda: read_fires(rota, "never") and len(read_fires(rota, "last")) == 2)
    states = [(fire["state"], fire["count"]) for fire in read_fires(rota, "last")]
    assert states == [("fired", 1), ("missed", 3)]
    rota.wait("job-1")
    status = rota.status()["schedules"]
    assert status["missed"] == 7
    assert "7 missed since yesterday" in rota.run("status").out
    assert "missed" in rota.run("schedule", "list").out


def test_schedules_over_http(rota: Rota) -> None:
    rota.start()
    body = {"name": "s", "cron": "@hourly", "job": {"command": ["true"], "params": {"a": 1}}}
    created = rota.api("POST", "/api/schedules", body)
    assert created.status == 201
    assert created.json()["tz"] == "UTC"
    assert len(created.json()["next"]) == 3
    assert rota.api("POST", "/api/schedules", body).status == 409
    assert rota.api("POST", "/api/schedules", {**body, "naem": 1}).status == 422
    assert [schedule["id"] for schedule in rota.api("GET", "/api/schedules").json()["schedules"]] == ["schedule-1"]
    changed = rota.api("PATCH", "/api/schedules/s", {"tz": "Asia/Tokyo", "set_params": {"b": 2}}).json()
    assert changed["fields"] == ["tz", "job"]
    assert changed["schedule"]["params"] == {"a": 1, "b": 2}
    result = rota.api("POST", "/api/schedules/schedule-1/trigger", {"params": {"a": 5}})
    assert result.status == 201
    assert result.json()["result"] == "submitted"
    assert result.json()["job"]["params"] == {"a": 5, "b": 2}
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
        "schedule.created",
        "schedule.changed",
        "schedule.fired",
        "schedule.disabled",
        "schedule.enabled",
        "schedule.removed",
    ]
    assert json.loads(data)["schedule"] == "schedule-1"


def test_explicit_variable_overrides_the_template(rota: Rota) -> None:
    rota.run("template", "add", "say", "--env", "MODEL=template", "--", "sh", "-c", 'echo "$MODEL"')

    def trigger_and_read_log() -> str:
        job = rota.run("schedule", "trigger", "s").lines[0]
        rota.wait(job)
        return rota.run("logs", job).out

    rota.run("schedule", "add", "s", "--cron", "@daily", "--template", "say", env={"MODEL": "caller"})
    assert trigger_and_read_log() == "template\n"
    rota.run("schedule", "change", "s", "--env", "MODEL=changed")
    assert trigger_and_read_log() == "changed\n"
    rota.run("schedule", "remove", "s")
    rota.run("schedule", "add", "s", "--cron", "@daily", "--template", "say", "--env", "MODEL=explicit")
    assert trigger_and_read_log() == "explicit\n"


def test_certain_failure_is_refused_and_possible_failure_is_warned(rota: Rota) -> None:
    add = ("schedule", "add", "s", "--cron", "@daily")
    assert "not in a git repository" in rota.run(*add, "--worktree", "--", "true", code=2).err
    assert "--pin main belongs to one" in rota.run(*add, "--pin", "main", "--", "true", code=2).err
    assert "unknown artifact type" in rota.run(*add, "--needs", "bogus", "--", "true", code=2).err
    assert "not a usable unique key" in rota.run(*add, "--unique", "", "--", "true", code=2).err
    assert rota.json("schedule", "list") == {"schedules": []}
    assert "warning: program not found (yet): ./later.sh" in rota.run(*add, "--", "./later.sh").err
    assert "not in a git repository" in rota.run("schedule", "change", "s", "--worktree", code=2).err
    assert "pool" in rota.run("schedule", "change", "s", "--pool", "resource/none=3").err
    assert "warning" not in rota.run("schedule", "change", "s", "--cron", "@hourly").err


def test_schedule_works_without_its_template(rota: Rota) -> None:
    rota.run("template", "add", "say", "--", "echo", "hi")
    rota.run("schedule", "add", "s", "--cron", "@daily", "--template", "say")
    rota.run("template", "archive", "say")
    rota.run("schedule", "change", "s", "--cron", "@hourly", "--rename", "t")
    output = rota.run("schedule", "change", "t", "--", "echo", "by hand")
    assert "warning: the command replaces template say" in output.err
    job = rota.run("schedule", "trigger", "t").lines[0]
    rota.wait(job)
    assert rota.run("logs", job).out == "by hand\n"
    assert rota.show(job)["name"] == "t"


def test_repeated_trigger_with_the_same_key_creates_one_job(rota: Rota) -> None:
    rota.run("schedule", "add", "s", "--cron", "@daily", "--", "true")
    first, repeated = (
        rota.api("POST", "/api/schedules/s/trigger", {"params": {"a": 1}}, Idempotency_Key="k") for _ in range(2)
    )
    assert (first.status, first.json()["job"]["id"]) == (201, "job-1")
    assert repeated == first
    assert len(read_fires(rota, "s")) == 1
    assert rota.api("POST", "/api/schedules/s/trigger", {"params": {"a": 2}}, Idempotency_Key="k").status == 422
    assert rota.api("POST", "/api/schedules/s/trigger").json()["job"]["id"] == "job-2"

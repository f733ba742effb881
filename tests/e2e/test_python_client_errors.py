"""Invalid calls of the Python clients: each raises a RotaError with a hint, and nothing is stored."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from rota import AsyncClient, Client, InvalidInput, RotaError
from tests.e2e.awaitable_client import ClientTest, collect
from tests.e2e.rig import Rota

Call = Callable[[Any], Any]

_CIRCULAR: dict[str, Any] = {}
_CIRCULAR["itself"] = _CIRCULAR

REFUSED_BY_CLIENT: Mapping[str, tuple[Call, str]] = {
    "an id that is a number": (lambda c: c.job(1), "as 'job-1', not 1"),
    "wait: an id that is a number": (lambda c: c.wait(1), "as 'job-1', not 1"),
    "an unpaired surrogate": (lambda c: c.job("\ud800"), "unpaired surrogate"),
    "a command as text": (lambda c: c.submit("make test"), r"a list of words: \['make', 'test'\]"),
    "run: a command as text": (lambda c: c.run("make test"), r"a list of words: \['make', 'test'\]"),
    "reserve: a command as text": (lambda c: c.reserve("make test"), r"a list of words: \['make', 'test'\]"),
    "a command as a number": (lambda c: c.submit(5), r"command must be a list: write \[5\]"),
    "an order as text": (lambda c: c.reorder("job-1"), r"order must be a list: write \['job-1'\]"),
    "an order as a number": (lambda c: c.reorder(5), r"order must be a list: write \[5\]"),
    "a status as text": (lambda c: collect(c.jobs(status="RUNNING")), r"status must be a list: write \['RUNNING'\]"),
    "runs: a status as text": (
        lambda c: collect(c.runs(status="FAILED")),
        r"status must be a list: write \['FAILED'\]",
    ),
    "a kind as text": (lambda c: collect(c.events(kind="job.*")), r"kind must be a list: write \['job.\*'\]"),
    "past_events: a kind as text": (lambda c: c.past_events(kind="job.*"), r"kind must be a list: write \['job.\*'\]"),
    "a job as text": (lambda c: c.past_events(job="job-1"), r"job must be a list: write \['job-1'\]"),
    "events as text": (lambda c: c.add_webhook("http://x/", events="a"), r"events must be a list: write \['a'\]"),
    "after: not a list": (lambda c: c.submit(["true"], after="job-1"), r"after must be a list: write \['job-1'\]"),
    "locks: not a list": (lambda c: c.submit(["true"], locks="repo"), r"locks must be a list: write \['repo'\]"),
    "webhooks: not a list": (lambda c: c.submit(["true"], webhooks="http://x"), r"webhooks must be a list: write"),
    "needs of a template: not a list": (
        lambda c: c.add_template({"name": "a", "needs": "b"}),
        r"needs must be a list: write",
    ),
    "submit_many: a command as text": (lambda c: c.submit_many([{"command": "make test"}]), "a list of words"),
    "job: an empty id": (lambda c: c.job(""), "an id or name is empty"),
    "cancel: an empty id": (lambda c: c.cancel(""), "an id or name is empty"),
    "a timeout of NaN": (lambda c: c.wait("job-1", timeout=float("nan")), "timeout must be a number of seconds"),
    "submit_many: one job": (
        lambda c: c.submit_many({"command": ["true"]}),
        r"jobs must be a list: write \[\{'command'",
    ),
    "submit_many: a number as job": (lambda c: c.submit_many([5]), "job must be a dict, not 5"),
    "a group by name": (lambda c: c.submit_many([], group="g"), "group must be a dict, not 'g'"),
    "a template as a list": (lambda c: c.add_template(["a"]), "template must be a dict"),
    "replace_template: a number": (lambda c: c.replace_template("x", 5), "template must be a dict"),
    "add_schedule: a command as job": (lambda c: c.add_schedule("x", "@daily", ["true"]), "job must be a dict"),
    "change_schedule: a number as job": (lambda c: c.change_schedule("x", job=5), "job must be a dict"),
    "params as a number": (lambda c: c.trigger("x", params=5), "params must be a dict"),
    "env as a list": (lambda c: c.submit(["true"], env=["A=1"]), "env must be a dict"),
    "params with a set": (lambda c: c.submit(["true"], params={"a": {1}}), r"\{1\} cannot be sent"),
    "a word of bytes": (lambda c: c.submit([b"true"]), "b'true' cannot be sent"),
    "a key that is a tuple": (lambda c: c.submit(["true"], params={(1, 2): 3}), "cannot be sent as JSON: keys must be"),
    "params with a cycle": (lambda c: c.submit(["true"], params=_CIRCULAR), "cannot be sent as JSON: Circular"),
    "days as a timedelta": (lambda c: c.gc(days=timedelta(days=1)), "cannot be sent"),
    "a key that is a number": (lambda c: c.submit(["true"], key=5), "an idempotency key must be printable ASCII text"),
    "an empty key": (lambda c: c.submit(["true"], key=""), "an idempotency key must be printable ASCII text"),
    "a key of two lines": (lambda c: c.submit(["true"], key="a\nb"), "an idempotency key must be printable ASCII text"),
    "a limit as text": (lambda c: collect(c.jobs(limit="many")), "limit must be a number"),
    "a negative limit": (lambda c: collect(c.jobs(limit=-1)), "limit must be a number"),
    "a timeout as a list": (lambda c: c.wait("job-1", timeout=[]), "timeout must be a number of seconds"),
    "an invalid duration": (lambda c: c.job("job-1", wait="soon"), "not a duration: 'soon'"),
}
"""Calls that the client refuses before it sends a request."""

REFUSED_BY_SCHEDULER: Mapping[str, tuple[Call, str]] = {
    "a word that is a number": (lambda c: c.submit([1]), r"$.command[0]"),
    "a timeout as a list": (lambda c: c.submit(["true"], timeout=[]), "$.timeout"),
    "an unknown field": (lambda c: c.submit(["true"], colour="red"), "$.colour"),
    "a size as text": (lambda c: c.set_pool("global", "large"), "$.size"),
}
"""Calls that the scheduler refuses, and the path of the invalid field."""


def test_invalid_argument_raises_a_rota_error(rota: Rota, run_with_client: Callable[[ClientTest], None]) -> None:
    async def steps(client: Any) -> None:
        for call, message in REFUSED_BY_CLIENT.values():
            with pytest.raises(InvalidInput, match=message):
                await call(client)
        for call, path in REFUSED_BY_SCHEDULER.values():
            with pytest.raises(InvalidInput) as error:
                await call(client)
            assert error.value.path == path
        for jobs, path in ((["x"], "$.jobs[0]"), ([{}, {"after": "a"}], "$.jobs[1].after")):
            with pytest.raises(InvalidInput) as error:
                await client.submit_many(jobs)
            assert error.value.path == path
        with pytest.raises(TypeError, match="missing 1 required"):
            await client.job()
        with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
            await client.job("job-1", colour="red")
        assert await collect(client.jobs()) == []

    run_with_client(steps)


def test_paths_and_durations_are_converted(rota: Rota, run_with_client: Callable[[ClientTest], None]) -> None:
    async def steps(client: Any) -> None:
        await client.pause()
        await client.add_template({"name": "say", "command": ["echo"]})
        for timeout in (90, 90.0, "90s", timedelta(seconds=90)):
            assert (await client.change_template("say", timeout=timeout)).template.timeout == "90s"
            assert (await client.change_template("say", timeout=None)).template.timeout is None
        job = (await client.submit([Path("/bin/echo"), Path("a")], cwd=Path("/"), timeout=90)).job
        assert (job.cwd, list(job.command)) == ("/", ["/bin/echo", "a"])
        [batch_job] = (await client.submit_many([{"command": ["true"], "cwd": Path("/"), "delay": 0.5}])).jobs
        assert (await client.job(batch_job)).cwd == "/"
        assert (await client.edit(job.id, timeout=0.25)).fields == ["timeout"]
        for timeout in (0.01, "10ms", timedelta(milliseconds=10)):
            with pytest.raises(TimeoutError):
                await client.wait(job.id, timeout=timeout)
            assert (await client.job(job.id, wait=timeout)).status == "QUEUED"
        assert (await client.put_artifact("custom:a:b", cwd=Path("/"))).artifact == "custom:a:b"
        assert (await client.artifact("custom:a:b", cwd=Path("/"))).artifact == "custom:a:b"
        await client.add_schedule("daily", "@daily", {"command": ["true"]})
        fires = (await client.next_fires("daily", start=datetime(2030, 1, 1, 12, tzinfo=UTC), count=1)).fires
        assert fires[0].utc.year == 2030

    run_with_client(steps)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"home": 5}, "home must be a path"),
        ({"url": 5}, "must be text"),
        ({"url": "http://x", "token": 5}, "must be text"),
        ({"url": "http://" + "a" * 70}, "invalid scheduler URL"),
        ({"url": "https://x", "ca": 5}, "ca must be a path"),
        ({"url": "https://x", "ca": "/nowhere/ca.pem"}, "No such file"),
        ({"url": "https://x", "ca": __file__}, "no certificates"),
        ({"home": "/nowhere", "outage_timeout": []}, "outage_timeout must be a number of seconds"),
        ({"home": "/nowhere", "outage_timeout": float("nan")}, "outage_timeout must be a number of seconds"),
        ({"home": "/nowhere", "outage_timeout": -1}, r"must be at least 0 \(0 does not wait\), not -1"),
        ({"home": "/nowhere", "url": "http://x"}, "only one of them"),
        ({"home": "/nowhere", "token": "x"}, "pass url too"),
        ({"token": "x"}, "pass url too"),
        ({"ca": "ca.pem"}, "pass url too"),
    ],
)
def test_invalid_client_options_are_refused(
    client_type: type[Client | AsyncClient], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        client_type(**options)


def test_token_with_non_ascii_characters_is_refused(client_type: type[Client | AsyncClient]) -> None:
    client: Any = client_type(url="http://127.0.0.1:1", token="\u20ac")

    async def send() -> None:
        request = client.health()
        if isinstance(client, AsyncClient):
            await request

    with pytest.raises(RotaError, match="the header Authorization"):
        asyncio.run(send())

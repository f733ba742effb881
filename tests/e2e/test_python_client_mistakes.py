"""Mistakes of who calls the Python clients: each is a RotaError that says what to do, and nothing is stored."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from e2e.either import Tour, collected
from e2e.rig import Rota
from rota import AsyncClient, Client, InvalidInput, RotaError

Call = Callable[[Any], Any]

_ROUND: dict[str, Any] = {}
_ROUND["itself"] = _ROUND

HERE: Mapping[str, tuple[Call, str]] = {
    "an id that is a number": (lambda c: c.job(1), "as 'job-1', not 1"),
    "the same to wait for": (lambda c: c.wait(1), "as 'job-1', not 1"),
    "half a character": (lambda c: c.job("\ud800"), "half a character"),
    "a command as text": (lambda c: c.submit("make test"), r"a list of words: \['make', 'test'\]"),
    "the same to run": (lambda c: c.run("make test"), r"a list of words: \['make', 'test'\]"),
    "the same to reserve": (lambda c: c.reserve("make test"), r"a list of words: \['make', 'test'\]"),
    "a command as a number": (lambda c: c.submit(5), r"command is a list: write \[5\]"),
    "an order as text": (lambda c: c.reorder("job-1"), r"order is a list: write \['job-1'\]"),
    "an order as a number": (lambda c: c.reorder(5), r"order is a list: write \[5\]"),
    "a status as text": (lambda c: collected(c.jobs(status="RUNNING")), r"status is a list: write \['RUNNING'\]"),
    "the same of runs": (lambda c: collected(c.runs(status="FAILED")), r"status is a list: write \['FAILED'\]"),
    "a kind as text": (lambda c: collected(c.events(kind="job.*")), r"kind is a list: write \['job.\*'\]"),
    "the same of the past": (lambda c: c.past_events(kind="job.*"), r"kind is a list: write \['job.\*'\]"),
    "a job as text": (lambda c: c.past_events(job="job-1"), r"job is a list: write \['job-1'\]"),
    "events as text": (lambda c: c.add_webhook("http://x/", events="a"), r"events is a list: write \['a'\]"),
    "a job by itself": (lambda c: c.submit(["true"], after="job-1"), r"after is a list: write \['job-1'\]"),
    "a lock by itself": (lambda c: c.submit(["true"], locks="repo"), r"locks is a list: write \['repo'\]"),
    "a webhook by itself": (lambda c: c.submit(["true"], webhooks="http://x"), r"webhooks is a list: write"),
    "the same of a template": (lambda c: c.add_template({"name": "a", "needs": "b"}), r"needs is a list: write"),
    "a command as text of many": (lambda c: c.submit_many([{"command": "make test"}]), "a list of words"),
    "no id": (lambda c: c.job(""), "an id or a name is missing"),
    "no id, to cancel": (lambda c: c.cancel(""), "an id or a name is missing"),
    "a time that is no number": (lambda c: c.wait("job-1", timeout=float("nan")), "timeout is a number of seconds"),
    "one job for many": (lambda c: c.submit_many({"command": ["true"]}), r"jobs is a list: write \[\{'command'"),
    "many that are none": (lambda c: c.submit_many([5]), "job is a dict of its fields, not 5"),
    "a group by name": (lambda c: c.submit_many([], group="g"), "group is a dict of its fields, not 'g'"),
    "a template as a list": (lambda c: c.add_template(["a"]), "template is a dict of its fields"),
    "the same to replace": (lambda c: c.replace_template("x", 5), "template is a dict of its fields"),
    "a job as a command": (lambda c: c.add_schedule("x", "@daily", ["true"]), "job is a dict of its fields"),
    "the same to change": (lambda c: c.change_schedule("x", job=5), "job is a dict of its fields"),
    "params as a number": (lambda c: c.trigger("x", params=5), "params is a dict of its fields"),
    "env as a list": (lambda c: c.submit(["true"], env=["A=1"]), "env is a dict of its fields"),
    "an object": (lambda c: c.submit(["true"], params={"a": {1}}), r"\{1\} cannot be sent"),
    "bytes": (lambda c: c.submit([b"true"]), "b'true' cannot be sent"),
    "a key that is a tuple": (lambda c: c.submit(["true"], params={(1, 2): 3}), "cannot be sent as JSON: keys must be"),
    "a circle": (lambda c: c.submit(["true"], params=_ROUND), "cannot be sent as JSON: Circular"),
    "days as a timedelta": (lambda c: c.collect(days=timedelta(days=1)), "cannot be sent"),
    "a key that is a number": (lambda c: c.submit(["true"], key=5), "a key is text of ASCII characters"),
    "a key that is nothing": (lambda c: c.submit(["true"], key=""), "a key is text of ASCII characters"),
    "a key of two lines": (lambda c: c.submit(["true"], key="a\nb"), "a key is text of ASCII characters"),
    "a limit as text": (lambda c: collected(c.jobs(limit="many")), "limit is how many at most"),
    "a limit below nothing": (lambda c: collected(c.jobs(limit=-1)), "limit is how many at most"),
    "a list as a time": (lambda c: c.wait("job-1", timeout=[]), "timeout is a number of seconds"),
    "no time": (lambda c: c.job("job-1", wait="soon"), "not a duration: 'soon'"),
}  # fmt: skip
"""What is refused before anything is sent."""

THERE: Mapping[str, tuple[Call, str]] = {
    "a word that is a number": (lambda c: c.submit([1]), r"$.command[0]"),
    "a time that is a list": (lambda c: c.submit(["true"], timeout=[]), "$.timeout"),
    "a field that is none": (lambda c: c.submit(["true"], colour="red"), "$.colour"),
    "a size as text": (lambda c: c.set_pool("global", "large"), "$.size"),
}
"""What the scheduler refuses, and where it says it is."""


def test_a_mistake_is_an_error_of_rota(rota: Rota, tour: Callable[[Tour], None]) -> None:
    async def steps(client: Any) -> None:
        for call, said in HERE.values():
            with pytest.raises(InvalidInput, match=said):
                await call(client)
        for call, path in THERE.values():
            with pytest.raises(InvalidInput) as refused:
                await call(client)
            assert refused.value.path == path
        for jobs, path in ((["x"], "$.jobs[0]"), ([{}, {"after": "a"}], "$.jobs[1].after")):
            with pytest.raises(InvalidInput) as refused:
                await client.submit_many(jobs)
            assert refused.value.path == path
        with pytest.raises(TypeError, match="missing 1 required"):
            await client.job()
        with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
            await client.job("job-1", colour="red")
        assert await collected(client.jobs()) == []

    tour(steps)


def test_paths_and_times_are_taken_as_they_come(rota: Rota, tour: Callable[[Tour], None]) -> None:
    async def steps(client: Any) -> None:
        await client.pause()
        await client.add_template({"name": "say", "command": ["echo"]})
        for timeout in (90, 90.0, "90s", timedelta(seconds=90)):
            assert (await client.change_template("say", timeout=timeout)).template.timeout == "90s"
            assert (await client.change_template("say", timeout=None)).template.timeout is None
        job = (await client.submit([Path("/bin/echo"), Path("a")], cwd=Path("/"), timeout=90)).job
        assert (job.cwd, list(job.command)) == ("/", ["/bin/echo", "a"])
        [many] = (await client.submit_many([{"command": ["true"], "cwd": Path("/"), "delay": 0.5}])).jobs
        assert (await client.job(many)).cwd == "/"
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

    tour(steps)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"home": 5}, "home is a path"),
        ({"url": 5}, "are text"),
        ({"url": "http://x", "token": 5}, "are text"),
        ({"url": "http://" + "a" * 70}, "not the address"),
        ({"url": "https://x", "ca": 5}, "ca is a path"),
        ({"url": "https://x", "ca": "/nowhere/ca.pem"}, "No such file"),
        ({"url": "https://x", "ca": __file__}, "no certificates"),
        ({"home": "/nowhere", "away": []}, "away is a number of seconds"),
        ({"home": "/nowhere", "away": float("nan")}, "away is a number of seconds"),
        ({"home": "/nowhere", "away": -1}, "0 for not at all, not -1"),
        ({"home": "/nowhere", "url": "http://x"}, "say one of them"),
        ({"home": "/nowhere", "token": "x"}, "say its url too"),
        ({"token": "x"}, "say its url too"),
        ({"ca": "ca.pem"}, "say its url too"),
    ],
)
def test_a_client_that_cannot_be_is_not_made(
    kind: type[Client | AsyncClient], given: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidInput, match=said):
        kind(**given)


def test_a_token_that_no_header_can_have_is_refused(kind: type[Client | AsyncClient]) -> None:
    client: Any = kind(url="http://127.0.0.1:1", token="\u20ac")

    async def ask() -> None:
        asked = client.health()
        if isinstance(client, AsyncClient):
            await asked

    with pytest.raises(RotaError, match="the header Authorization"):
        asyncio.run(ask())

"""The rest of what both Python clients can do, against a real scheduler; and that no method of theirs goes untested."""

from __future__ import annotations

import ast
import asyncio
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET
from standardwebhooks.webhooks import Webhook as Verifier

from e2e import test_python_client
from e2e.either import Either, Tour, collected
from e2e.rig import Rota, Stage, eventually
from e2e.test_breaker import dispatch_failures
from e2e.test_webhook import Receiver, settled
from rota import AsyncClient, Client, ConfigError, Conflict, InvalidInput, NotFound, Unavailable
from rota.sdk.verb import Course, Deed
from rota.sdk.verbs import Verbs

Take = Callable[[Tour], None]


def configure(rota: Rota, text: str) -> None:
    rota.home.mkdir(mode=0o700, exist_ok=True)
    (rota.home / "rota.toml").write_text(text)


def test_no_method_goes_untested() -> None:
    """A method that is added to the table is added to a test."""
    called = set()
    for path in (__file__, test_python_client.__file__):
        for node in ast.walk(ast.parse(Path(path).read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                called |= (
                    {node.func.attr} if isinstance(of := node.func.value, ast.Name) and of.id == "client" else set()
                )
    methods = {name for name, value in vars(Verbs).items() if isinstance(value, Deed | Course)}
    assert methods - called == set()


def test_webhooks(rota: Rota, tour: Take) -> None:
    with closing(Receiver()) as receiver:

        async def steps(client: Any) -> None:
            made = await client.add_webhook(f"{receiver.url}/ok", events=["job.run.completed"])
            assert (made.state, list(made.events), made.warning) == ("enabled", ["job.run.completed"], None)
            tried = await client.test_webhook(made.id)
            assert (tried.webhook, tried.delivered, tried.status, tried.error) == (made.id, True, 204, None)
            heard = receiver.next()
            Verifier(made.secret).verify(heard.body, heard.headers)

            rotated = await client.rotate_webhook(made.id, keep=timedelta(hours=1))
            assert rotated.secret != made.secret
            assert rotated.old_secret_until is not None
            assert (await client.webhook(made.id)).secret is UNSET
            assert (await client.webhook(made.id, secret=True)).secret == rotated.secret
            assert [(each.id, each.secret) for each in await collected(client.webhooks())] == [(made.id, UNSET)]

            disabled = await client.disable_webhook(made.id)
            assert (disabled.state, disabled.disabled_at is not None) == ("disabled", True)
            assert (await client.enable_webhook(made.id)).state == "enabled"
            assert (await client.remove_webhook(made.id)).url == f"{receiver.url}/ok"
            with pytest.raises(NotFound, match="no such webhook"):
                await client.webhook(made.id)
            assert await collected(client.webhooks()) == []

        tour(steps)


def test_deliveries(rota: Rota, tour: Take) -> None:
    with closing(Receiver()) as receiver:

        async def steps(client: Any) -> None:
            made = await client.add_webhook(f"{receiver.url}/ok")
            job = (await client.submit(["true"], webhooks=[f"{receiver.url}/own"])).job
            await client.wait(job.id)
            heard = {each.path: each for each in (receiver.next(), receiver.next())}
            Verifier((await client.webhook_secret()).secret).verify(heard["/own"].body, heard["/own"].headers)
            await asyncio.to_thread(settled, rota, 2)
            assert len(await collected(client.deliveries(job=job.id, state="DELIVERED"))) == 2
            assert await collected(client.deliveries(state="FAILED")) == []
            [told] = await collected(client.deliveries(webhook=made.id))
            assert (told.job, told.type, told.message) == (job.id, "job.run.completed", heard["/ok"].message)
            assert [each.status for each in told.tries] == [204]
            assert (await client.delivery(told.id)).payload == heard["/ok"].json()

            again = await client.redeliver(told.id)
            assert (again.id, again.message) == (told.id, told.message)
            assert receiver.next().body == heard["/ok"].body
            await asyncio.to_thread(settled, rota, 2)
            assert [each.status for each in (await client.delivery(told.id)).tries] == [204, 204]
            await client.remove_webhook(made.id)
            with pytest.raises(Conflict, match="has nobody to go to"):
                await client.redeliver(told.id)

        tour(steps)


def test_artifacts(rota: Rota, stage: Stage, tour: Take, repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They belong to the repository that the program stands in, as the jobs do that it submits."""
    rota.start()
    monkeypatch.chdir(repository)
    (repository / "a.txt").touch()

    async def steps(client: Any) -> None:
        put = await client.put_artifact("custom:review:7/b", payload="good")
        assert (put.scope, put.payload, put.job) == (str(repository / ".git"), "good", None)
        assert (await client.put_artifact("file:a.txt")).artifact == f"file:{repository}/a.txt"
        [listed] = await collected(client.artifacts())  # a file says itself that it is there
        assert (listed.artifact, listed.payload, listed.put_at) == ("custom:review:7/b", None, put.put_at)
        assert (await client.artifact("custom:review:7/b")).payload == "good"
        job = (await client.submit(["true"], needs=["custom:review:7/b", "file:a.txt"])).job
        assert (await client.wait(job.id, timeout=20)).status == "COMPLETED"
        with pytest.raises(NotFound, match="nobody has put"):
            await client.artifact("custom:review:7/b", cwd=str(rota.cwd))

        assert (await client.remove_artifact("custom:review:7/b")).put_at == put.put_at
        with pytest.raises(NotFound, match="nobody has put"):
            await client.artifact("custom:review:7/b")

        maker = (await client.submit(["sh", "-c", f"read line < {stage.gate('go')}"])).job
        await client.job(maker.id, wait=9, seen="QUEUED")
        assert (await client.put_artifact("custom:built:1", job=maker.id)).job == maker.id
        await asyncio.to_thread(stage.release, "go")
        await client.wait(maker.id)
        assert (await client.artifact("custom:built:1")).job == maker.id

    tour(steps)


def test_pools_pauses_and_a_clearing(rota: Rota, tour: Take) -> None:
    async def steps(client: Any) -> None:
        sized = await client.set_pool("flow/review", 0)
        assert (sized.pools["flow/review"].size, sized.pools["flow/review"].used) == (0, 0)
        await client.set_pool("flow/*", 3)
        assert (await client.pools()).each == {"flow": 3}
        with pytest.raises(InvalidInput, match="no-such"):
            await client.set_pool("no-such", 1)

        paused = await client.pause("flow/build")
        again = await client.pause("flow/build")
        assert (paused.result, paused.scope, again.result) == (True, "flow/build", False)
        assert (again.paused_by, again.paused_at) == (paused.paused_by, paused.paused_at)
        held, full = [(await client.submit(["true"], flow=flow)).job for flow in ("build", "review")]
        status = await client.status()
        assert (status.paused, status.queued, status.running) == (False, 2, 0)
        assert [(each.scope, each.by) for each in status.pauses] == [("flow/build", paused.paused_by)]
        assert status.home == str(rota.home)

        cleared = await client.clear("flow/review")
        assert (cleared.scope, cleared.cleared) == ("flow/review", 1)
        assert (await client.job(full.id)).status == "CANCELLED"
        resumed = await client.resume("flow/build")
        assert (resumed.result, resumed.paused_at) == (True, paused.paused_at)
        assert (await client.wait(held.id)).status == "COMPLETED"
        assert not (await client.resume("flow/build")).result
        assert (await client.clear()).cleared == 0

    tour(steps)


def test_a_queue_that_is_ticked_by_hand(rota: Rota, tour: Take) -> None:
    configure(rota, '[scheduler]\nheartbeat = "manual"\n[pools]\nglobal = 4\n')

    async def steps(client: Any) -> None:
        jobs: list[Any] = [{"command": ["sleep", "60"], "name": name, "locks": ["repo"]} for name in "bc"]
        group = await client.submit_many([{"command": ["sleep", "60"], "name": "a"}, *jobs], group={"name": "trio"})
        a, b, c = [await client.job(each) for each in group.jobs]
        moved = await client.move(c.id, first=True)
        assert (moved.job.id, moved.place, moved.moved) == (c.id, 1, True)
        ordered = await client.reorder([b.id, a.id])
        assert (ordered.order, ordered.moved) == ([b.id, a.id], True)
        assert [(each.name, each.place) for each in await collected(client.queue())] == [("c", 1), ("b", 2), ("a", 3)]
        edited = await client.edit(a.id, name="z", timeout=timedelta(minutes=2))
        assert (edited.job.name, set(edited.fields)) == ("z", {"name", "timeout"})
        d = (await client.submit(["true"], after=[{"job": b.id, "policy": "finished"}])).job

        shown = await client.tick(dry_run=True, batch=1)
        assert (shown.dispatched, shown.would_dispatch, shown.reason) == ([], [c.id], "batch")
        ticked = await client.tick(batch=9)
        assert (ticked.dispatched, ticked.would_dispatch, ticked.reason) == ([c.id, a.id], [], "ready")
        [lock] = await collected(client.locks())
        assert (lock.key, lock.mode, lock.waiting) == ("repo", "exclusive", 1)
        assert ([each.id for each in lock.holders], [each.id for each in lock.waiters]) == ([c.id], [b.id])
        assert f"{c.id}" in (await client.why(b.id)).text

        progress = await client.progress(group.group)
        assert (progress.name, progress.total, progress.ended) == ("trio", 3, [])
        assert {each.name for each in progress.running} == {"c", "z"}
        graph = await client.graph()
        assert {(each.id, each.status) for each in graph.nodes} >= {
            (b.id, "WAITING_ON_LOCKS"),
            (d.id, "WAITING_ON_DEPS"),
        }
        [edge] = [each for each in graph.edges if each.source == d.id]
        assert (edge.to, edge.after.policy, edge.artifact) == (b.id, "finished", UNSET)
        assert {each.id for each in (await client.graph(job=d.id)).nodes} == {b.id, d.id}
        drawn = await client.drawing(job=d.id)
        assert (b.id in drawn.text, a.id in drawn.text, drawn.left_out) == (True, False, 0)

        assert (await client.clear()).cleared == 2
        assert [(await client.cancel(each.id)).status for each in (a, c)] == ["CANCELLED"] * 2, "what runs goes on"
        after = await client.progress(group.group, wait=9, seen=progress.seen)
        assert {(each.id, each.status) for each in after.ended} == {(each.id, "CANCELLED") for each in (a, b, c)}
        assert await collected(client.locks()) == []

    tour(steps)


def test_breakers(rota: Rota, tour: Take) -> None:
    configure(rota, '[pools]\nglobal = 4\n[breaker]\nfailures = 2\ncool_down = "1h"\ndispatch_failures = 9\n')
    tool = rota.cwd / "tool"

    async def steps(client: Any) -> None:
        for _ in range(2):
            await client.wait((await client.submit(["false"], type="flaky")).job.id)
        held = (await client.submit(["true"], type="flaky")).job
        [found] = await collected(client.breakers())
        assert (found.key, found.state, found.failures) == ("type/flaky", "open", 2)
        assert (await client.status()).breakers == [found]
        reset = await client.reset_breaker("type/flaky")
        assert (reset.key, reset.state, reset.failures_forgotten) == ("type/flaky", "closed", 2)
        assert (await client.wait(held.id)).status == "COMPLETED"
        assert await collected(client.breakers()) == []
        with pytest.raises(NotFound, match="no such breaker"):
            await client.reset_breaker("type/flaky")

        job = (await client.submit([str(tool)])).job
        failures = partial(dispatch_failures, rota, job.id)
        await asyncio.to_thread(eventually, lambda: failures() >= 3, what="the next try is 4 s away, or more")
        await client.pause()  # or it may fail once more before it is asked
        seen = await asyncio.to_thread(eventually, failures, what="back in the queue")
        tool.write_text("#!/bin/sh\nexit 7\n")
        tool.chmod(0o755)
        freed = await client.reset_breaker(job.id)
        assert (freed.job, freed.failures_forgotten, freed.goes_at_once) == (job.id, seen, True)
        await client.resume()
        assert (await client.wait(job.id)).exit_code == 7

    tour(steps)


def test_slots(rota: Rota, tour: Take) -> None:
    """Who works itself has its place like a command, and others stand behind it."""

    async def steps(client: Any) -> None:
        first = await client.reserve(name="mine", locks=["repo"])
        assert (await client.slot(first.id, wait=9, seen="WAITING")).ready
        assert (await client.renew(first.id)).status == "RUNNING"
        second = await client.reserve(["true"], name="next", locks=["repo"])
        assert (second.ready, second.wait.kind) == (False, "locks")
        assert [(each.name, each.ready) for each in await collected(client.slots())] == [
            ("mine", True),
            ("next", False),
        ]
        with pytest.raises(Conflict):
            await client.signal(first.id, "HUP")
        assert (await client.release(first.id)).status == "COMPLETED"
        assert (await client.slot(second.id, wait=9)).exit_code == 0
        assert await collected(client.slots()) == []

    tour(steps)


def test_collection(rota: Rota, tour: Take) -> None:
    async def steps(client: Any) -> None:
        job = (await client.submit(["true"])).job
        await client.wait(job.id)
        assert (await client.collection()).last is None
        assert (await client.collect()).removed.jobs == 0
        shown = await client.collect(days=0, dry_run=True)
        assert (shown.dry_run, shown.removed.jobs, shown.jobs) == (True, 1, [job.id])
        assert (await client.job(job.id)).status == "COMPLETED"
        done = await client.collect(days=0)
        assert (done.dry_run, done.removed.jobs, done.removed.runs, done.left) == (False, 1, 1, [])
        with pytest.raises(NotFound, match="it may have been collected"):
            await client.job(job.id)
        told = await client.collection()
        assert (told.under_way, told.last.jobs) == (None, 1)

    tour(steps)


def test_the_scheduler_itself(rota: Rota, tour: Take, kind: type[Client | AsyncClient]) -> None:
    configure(rota, "[pools]\nglobal = 2\n")

    async def steps(client: Any) -> None:
        job = (await client.submit(["true"])).job
        await client.wait(job.id)
        health = await client.health()
        status = await client.status()
        assert (health.status, health.pid) == ("ok", status.pid)
        assert (await client.ready()).status == "ready"
        assert 'rota_pool_size{pool="global"} 2' in (await client.metrics()).splitlines()

        configure(rota, "[pools]\nglobal = 5\n")
        assert await client.reload() is None
        assert (await client.pools()).pools["global"].size == 5
        configure(rota, "[pools]\nglobal = lots\n")
        with pytest.raises(ConfigError, match="not valid TOML"):
            await client.reload()
        configure(rota, "")

        assert await client.stop(grace=timedelta(seconds=1), kill=True) is None
        await asyncio.to_thread(eventually, lambda: not rota.schedulers())
        with pytest.raises(Unavailable, match="no scheduler runs"):
            await Either(kind(home=rota.home, starts=False)).health()
        with pytest.raises(Unavailable, match="was stopped meanwhile"):
            await client.health()
        await asyncio.to_thread(rota.start)
        assert (await client.health()).pid not in (UNSET, status.pid)

    tour(steps)

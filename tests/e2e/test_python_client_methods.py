"""The remaining methods of both Python clients against a real scheduler. Every client method is called by a test."""

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

from rota import AsyncClient, Client, ConfigError, Conflict, InvalidInput, NotFound, ServiceUnavailable
from rota.client.sdk.calls import ClientCall, ClientStream
from rota.client.sdk.methods import ClientMethods
from tests.e2e import test_python_client
from tests.e2e.awaitable_client import AwaitableClient, ClientTest, collect
from tests.e2e.rig import ChildControl, Rota, eventually
from tests.e2e.test_breaker import dispatch_failures
from tests.e2e.test_webhook import Receiver, wait_until_settled

RunSteps = Callable[[ClientTest], None]


def configure(rota: Rota, text: str) -> None:
    rota.home.mkdir(mode=0o700, exist_ok=True)
    (rota.home / "rota.toml").write_text(text)


def test_every_client_method_is_called_by_a_test() -> None:
    """A new client method requires a test."""
    called = set()
    for path in (__file__, test_python_client.__file__):
        for node in ast.walk(ast.parse(Path(path).read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                called |= (
                    {node.func.attr}
                    if isinstance(owner := node.func.value, ast.Name) and owner.id == "client"
                    else set()
                )
    methods = {name for name, value in vars(ClientMethods).items() if isinstance(value, ClientCall | ClientStream)}
    assert methods - called == set()


def test_webhooks(rota: Rota, run_with_client: RunSteps) -> None:
    with closing(Receiver()) as receiver:

        async def steps(client: Any) -> None:
            created = await client.add_webhook(f"{receiver.url}/ok", events=["job.run.completed"])
            assert (created.state, list(created.events)) == ("enabled", ["job.run.completed"])
            attempts = await client.test_webhook(created.id)
            assert (attempts.webhook, attempts.delivered, attempts.status, attempts.error) == (
                created.id,
                True,
                204,
                None,
            )
            received = receiver.next()
            Verifier(created.secret).verify(received.body, received.headers)

            rotated = await client.rotate_webhook(created.id, keep_old_for=timedelta(hours=1))
            assert rotated.secret != created.secret
            assert rotated.old_secret_until is not None
            assert (await client.webhook(created.id)).secret is UNSET
            assert (await client.webhook(created.id, secret=True)).secret == rotated.secret
            assert [(webhook.id, webhook.secret) for webhook in await collect(client.webhooks())] == [
                (created.id, UNSET)
            ]

            disabled = await client.disable_webhook(created.id)
            assert (disabled.state, disabled.disabled_at is not None) == ("disabled", True)
            assert (await client.enable_webhook(created.id)).state == "enabled"
            assert (await client.remove_webhook(created.id)).url == f"{receiver.url}/ok"
            with pytest.raises(NotFound, match="no such webhook"):
                await client.webhook(created.id)
            assert await collect(client.webhooks()) == []

        run_with_client(steps)


def test_deliveries(rota: Rota, run_with_client: RunSteps) -> None:
    with closing(Receiver()) as receiver:

        async def steps(client: Any) -> None:
            created = await client.add_webhook(f"{receiver.url}/ok")
            job = (await client.submit(["true"], webhooks=[f"{receiver.url}/own"])).job
            await client.wait(job.id)
            received = {request.path: request for request in (receiver.next(), receiver.next())}
            Verifier((await client.webhook_secret()).secret).verify(received["/own"].body, received["/own"].headers)
            await asyncio.to_thread(wait_until_settled, rota, 2)
            assert len(await collect(client.deliveries(job=job.id, state="DELIVERED"))) == 2
            assert await collect(client.deliveries(state="FAILED")) == []
            [result] = await collect(client.deliveries(webhook=created.id))
            assert (result.job, result.type, result.message) == (job.id, "job.run.completed", received["/ok"].message)
            assert [attempt.status for attempt in result.attempts] == [204]
            assert (await client.delivery(result.id)).payload == received["/ok"].json()

            again = await client.redeliver(result.id)
            assert (again.id, again.message) == (result.id, result.message)
            assert receiver.next().body == received["/ok"].body
            await asyncio.to_thread(wait_until_settled, rota, 2)
            assert [attempt.status for attempt in (await client.delivery(result.id)).attempts] == [204, 204]
            await client.remove_webhook(created.id)
            with pytest.raises(Conflict, match="cannot be sent again"):
                await client.redeliver(result.id)

        run_with_client(steps)


def test_artifacts(
    rota: Rota, children: ChildControl, run_with_client: RunSteps, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Artifacts belong to the repository of the current directory, like submitted jobs."""
    rota.start()
    monkeypatch.chdir(repository)
    (repository / "a.txt").touch()

    async def steps(client: Any) -> None:
        put = await client.put_artifact("custom:review:7/b", payload="good")
        assert (put.scope, put.payload, put.job) == (str(repository / ".git"), "good", None)
        assert (await client.put_artifact("file:a.txt")).artifact == f"file:{repository}/a.txt"
        [listed] = await collect(client.artifacts())  # file artifacts are not listed
        assert (listed.artifact, listed.payload, listed.created_at) == ("custom:review:7/b", None, put.created_at)
        assert (await client.artifact("custom:review:7/b")).payload == "good"
        job = (await client.submit(["true"], needs=["custom:review:7/b", "file:a.txt"])).job
        assert (await client.wait(job.id, timeout=20)).status == "COMPLETED"
        with pytest.raises(NotFound, match="was not put"):
            await client.artifact("custom:review:7/b", cwd=str(rota.cwd))

        assert (await client.remove_artifact("custom:review:7/b")).created_at == put.created_at
        with pytest.raises(NotFound, match="was not put"):
            await client.artifact("custom:review:7/b")

        producer = (await client.submit(["sh", "-c", f"read line < {children.make_gate('go')}"])).job
        await client.job(producer.id, wait=9, last_seen="QUEUED")
        assert (await client.put_artifact("custom:built:1", job=producer.id)).job == producer.id
        await asyncio.to_thread(children.release, "go")
        await client.wait(producer.id)
        assert (await client.artifact("custom:built:1")).job == producer.id

    run_with_client(steps)


def test_work_items_without_sources(rota: Rota, run_with_client: RunSteps) -> None:
    async def steps(client: Any) -> None:
        assert await collect(client.work_items(ready=True)) == []
        assert (await client.sync_work()).total == 0
        with pytest.raises(NotFound, match="no such work item: gt-1"):
            await client.work_item("gt-1")

    run_with_client(steps)


def test_pools_pause_and_clear(rota: Rota, run_with_client: RunSteps) -> None:
    async def steps(client: Any) -> None:
        resized = await client.set_pool("flow/review", 0)
        assert (resized.pools["flow/review"].size, resized.pools["flow/review"].used) == (0, 0)
        await client.set_pool("flow/*", 3)
        assert (await client.pools()).defaults == {"flow": 3}
        with pytest.raises(InvalidInput, match="no-such"):
            await client.set_pool("no-such", 1)

        paused = await client.pause("flow/build")
        again = await client.pause("flow/build")
        assert (paused.has_changed, paused.scope, again.has_changed) == (True, "flow/build", False)
        assert (again.paused_by, again.paused_at) == (paused.paused_by, paused.paused_at)
        held, full = [(await client.submit(["true"], flow=flow)).job for flow in ("build", "review")]
        status = await client.status()
        assert (status.paused, status.queued, status.running) == (False, 2, 0)
        assert [(pause.scope, pause.by) for pause in status.pauses] == [("flow/build", paused.paused_by)]
        assert status.home == str(rota.home)

        plan = await client.preview_clear("flow/review")
        assert (plan.dry_run, [job.id for job in plan.jobs]) == (True, [full.id])
        cleared = await client.clear("flow/review")
        assert (cleared.scope, cleared.cleared) == ("flow/review", 1)
        assert (await client.job(full.id)).status == "CANCELLED"
        resumed = await client.resume("flow/build")
        assert (resumed.has_changed, resumed.paused_at) == (True, paused.paused_at)
        assert (await client.wait(held.id)).status == "COMPLETED"
        assert not (await client.resume("flow/build")).has_changed
        assert (await client.clear()).cleared == 0

    run_with_client(steps)


def test_manual_ticks(rota: Rota, run_with_client: RunSteps) -> None:
    configure(rota, '[scheduler]\ndispatch_interval = "manual"\n[pools]\nglobal = 4\n')

    async def steps(client: Any) -> None:
        preview = await client.preview_submit(command=["true"], name="never", retries=2)
        assert (preview.result, preview.job.name, preview.job.status) == ("dry_run", "never", "QUEUED")
        assert "retry" in {policy.name for policy in preview.job.policies}
        assert await collect(client.jobs()) == [], "nothing was stored"
        jobs: list[Any] = [{"command": ["sleep", "60"], "name": name, "locks": ["repo"]} for name in "bc"]
        group = await client.submit_many([{"command": ["sleep", "60"], "name": "a"}, *jobs], group={"name": "trio"})
        a, b, c = [await client.job(job) for job in group.jobs]
        moved = await client.move(c.id, first=True)
        assert (moved.job.id, moved.place, moved.moved) == (c.id, 1, True)
        ordered = await client.reorder([b.id, a.id])
        assert (ordered.order, ordered.moved) == ([b.id, a.id], True)
        assert [(job.name, job.place) for job in await collect(client.queue())] == [("c", 1), ("b", 2), ("a", 3)]
        edited = await client.edit(a.id, name="z", timeout=timedelta(minutes=2))
        assert (edited.job.name, set(edited.fields)) == ("z", {"name", "timeout"})
        d = (await client.submit(["true"], after=[{"job": b.id, "policy": "finished"}])).job

        shown = await client.tick(dry_run=True, batch=1)
        assert (shown.dispatched, shown.would_dispatch, shown.reason) == ([], [c.id], "batch")
        ticked = await client.tick(batch=9)
        assert (ticked.dispatched, ticked.would_dispatch, ticked.reason) == ([c.id, a.id], [], "ready")
        [lock] = await collect(client.locks())
        assert (lock.key, lock.mode, lock.waiting) == ("repo", "exclusive", 1)
        assert ([job.id for job in lock.holders], [job.id for job in lock.waiters]) == ([c.id], [b.id])
        assert f"{c.id}" in (await client.why(b.id)).text

        progress = await client.progress(group.group)
        assert (progress.name, progress.total, progress.ended) == ("trio", 3, [])
        assert {job.name for job in progress.running} == {"c", "z"}
        graph = await client.graph()
        assert {(node.id, node.status) for node in graph.nodes} >= {
            (b.id, "WAITING_ON_LOCKS"),
            (d.id, "WAITING_ON_DEPS"),
        }
        [edge] = [edge for edge in graph.edges if edge.source == d.id]
        assert (edge.to, edge.after.policy, edge.artifact) == (b.id, "finished", UNSET)
        assert {node.id for node in (await client.graph(job=d.id)).nodes} == {b.id, d.id}
        drawn = await client.drawing(job=d.id)
        assert (b.id in drawn.text, a.id in drawn.text, drawn.skipped) == (True, False, 0)

        planned = await client.preview_cancel_group(group.group)
        assert {job.id for job in planned.jobs} == {a.id, b.id, c.id}
        assert [job.id for job in (await client.preview_cancel(d.id)).jobs] == [d.id]
        assert (await client.clear()).cleared == 2
        assert [(await client.cancel(job.id)).status for job in (a, c)] == ["CANCELLED"] * 2, (
            "clear does not end running jobs"
        )
        after = await client.progress(group.group, wait=9, cursor=progress.cursor)
        assert {(job.id, job.status) for job in after.ended} == {(job.id, "CANCELLED") for job in (a, b, c)}
        assert await collect(client.locks()) == []

    run_with_client(steps)


def test_breakers(rota: Rota, run_with_client: RunSteps) -> None:
    breaker = 'failures = 2\ncool_down = "1h"\ndispatch_failures = 9\nstart_delays = ["10ms", "10ms", "1h"]'
    configure(rota, f"[pools]\nglobal = 4\n[breaker]\n{breaker}\n")
    tool = rota.cwd / "tool"

    async def steps(client: Any) -> None:
        for _ in range(2):
            await client.wait((await client.submit(["false"], type="flaky")).job.id)
        held = (await client.submit(["true"], type="flaky")).job
        [open_breaker] = await collect(client.breakers())
        assert (open_breaker.key, open_breaker.state, open_breaker.failures) == ("type/flaky", "open", 2)
        assert (await client.status()).breakers == [open_breaker]
        reset = await client.reset_breaker("type/flaky")
        assert (reset.key, reset.state, reset.failures_cleared) == ("type/flaky", "closed", 2)
        assert (await client.wait(held.id)).status == "COMPLETED"
        assert await collect(client.breakers()) == []
        with pytest.raises(NotFound, match="no such breaker"):
            await client.reset_breaker("type/flaky")

        job = (await client.submit([str(tool)])).job
        failures = partial(dispatch_failures, rota, job.id)
        await asyncio.to_thread(
            eventually, lambda: failures() >= 3, description="three failures: the next start is at least 4 s away"
        )
        await client.pause()  # no further start while the count is read
        failure_count = await asyncio.to_thread(eventually, failures, description="back in the queue")
        tool.write_text("#!/bin/sh\nexit 7\n")
        tool.chmod(0o755)
        freed = await client.reset_breaker(job.id)
        assert (freed.job, freed.failures_cleared, freed.starts_immediately) == (job.id, failure_count, True)
        await client.resume()
        assert (await client.wait(job.id)).exit_code == 7

    run_with_client(steps)


def test_reservations(rota: Rota, run_with_client: RunSteps) -> None:
    """A reservation without a command holds locks like one with a command."""

    async def steps(client: Any) -> None:
        first = await client.reserve(name="mine", locks=["repo"])
        assert (await client.reservation(first.id, wait=9, last_seen="WAITING")).ready
        assert (await client.renew(first.id)).status == "RUNNING"
        second = await client.reserve(["true"], name="next", locks=["repo"])
        assert (second.ready, second.wait.kind) == (False, "locks")
        assert [(reservation.name, reservation.ready) for reservation in await collect(client.reservations())] == [
            ("mine", True),
            ("next", False),
        ]
        with pytest.raises(Conflict):
            await client.signal(first.id, "HUP")
        assert (await client.release(first.id)).status == "COMPLETED"
        assert (await client.reservation(second.id, wait=9)).exit_code == 0
        assert await collect(client.reservations()) == []

    run_with_client(steps)


def test_gc(rota: Rota, run_with_client: RunSteps) -> None:
    async def steps(client: Any) -> None:
        job = (await client.submit(["true"])).job
        await client.wait(job.id)
        assert (await client.gc_status()).last is None
        assert (await client.gc()).removed.jobs == 0
        shown = await client.gc(days=0, dry_run=True)
        assert (shown.dry_run, shown.removed.jobs, shown.jobs) == (True, 1, [job.id])
        assert (await client.job(job.id)).status == "COMPLETED"
        report = await client.gc(days=0)
        assert (report.dry_run, report.removed.jobs, report.removed.runs, report.remaining) == (False, 1, 1, [])
        with pytest.raises(NotFound, match="retention may have removed it"):
            await client.job(job.id)
        result = await client.gc_status()
        assert (result.in_progress, result.last.jobs) == (None, 1)

    run_with_client(steps)


def test_scheduler_health_reload_and_stop(
    rota: Rota, run_with_client: RunSteps, client_type: type[Client | AsyncClient]
) -> None:
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

        assert (await client.stop(grace=timedelta(seconds=1), kill=True)).grace == "1s"
        await asyncio.to_thread(eventually, lambda: not rota.schedulers())
        with pytest.raises(ServiceUnavailable, match="is stopped"):
            await AwaitableClient(client_type(home=rota.home, autostart=False)).health()
        with pytest.raises(ServiceUnavailable, match="was stopped meanwhile"):
            await client.health()
        await asyncio.to_thread(rota.start)
        assert (await client.health()).pid not in (UNSET, status.pid)

    run_with_client(steps)

"""`rota.Client` and `rota.AsyncClient` against a real scheduler. Each test runs with both clients."""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import rota as package
from rota import (
    AsyncClient,
    Client,
    Conflict,
    InvalidInput,
    NotFound,
    QueueFull,
    RotaError,
    ServiceUnavailable,
    Unauthorized,
)
from rota.errors import BY_CODE
from tests.e2e.awaitable_client import AwaitableClient, ClientTest, collect
from tests.e2e.rig import TIMEOUT, ChildControl, Rota, eventually
from tests.http.test_tls import make_certificate


class CrashingProxy:
    """A TCP proxy in front of the socket of a home.

    It drops the response to the first submit, and kills and restarts the scheduler before it closes the connection.
    """

    def __init__(self, rota: Rota) -> None:
        self._rota = rota
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self.lost_responses = 0
        self._thread = threading.Thread(target=self._serve)

    def _serve(self) -> None:
        with suppress(OSError):  # the socket was closed
            while True:
                connection, _ = self._socket.accept()
                with connection, socket.socket(socket.AF_UNIX) as scheduler:
                    self._forward(connection, scheduler)

    def _forward(self, connection: socket.socket, scheduler: socket.socket) -> None:
        scheduler.connect(str(self._rota.home / "rota.sock"))
        request = connection.recv(1 << 16)
        # Each connection serves one request; the client would keep it open.
        scheduler.sendall(request.replace(b"\r\n", b"\r\nConnection: close\r\n", 1))
        response = b"".join(iter(lambda: scheduler.recv(1 << 16), b""))
        if request.startswith(b"POST /api/jobs ") and not self.lost_responses:
            assert b" 201 " in response
            self.lost_responses += 1
            self._rota.crash()
            self._rota.start()
            return
        connection.sendall(response)

    def __enter__(self) -> CrashingProxy:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()


def test_job_from_submit_to_end(rota: Rota, run_with_client: Callable[[ClientTest], None]) -> None:
    """The first request starts the scheduler."""

    async def steps(client: Any) -> None:
        result = await client.submit(
            ["sh", "-c", "echo out; echo err >&2; pwd; echo $MARK"],
            name="first",
            cwd=str(rota.cwd),
            timeout=timedelta(minutes=1),
            env={"MARK": "here"},
        )
        assert (result.result, result.job.name, result.job.cwd) == ("submitted", "first", str(rota.cwd))
        ended = await client.wait(result.job.id)
        assert (ended.status, ended.exit_code) == ("COMPLETED", 0)
        assert b"".join(await collect(client.logs(ended.id))) == f"out\n{rota.cwd}\nhere\n".encode()
        assert b"".join(await collect(client.logs(ended.id, "stderr", follow=True))) == b"err\n"
        assert b"".join(await collect(client.logs(ended.id, offset=4))) == f"{rota.cwd}\nhere\n".encode()
        assert (await client.log_sizes(ended.id)).stderr.size == 4
        [run] = await collect(client.runs_of_job(ended.id))
        assert (await client.run_of_job(run.id)).job == ended.id
        assert [run.id for run in await collect(client.runs(job=ended.id))] == [run.id]
        assert (await client.job(ended.id)).finished_at == ended.finished_at

    run_with_client(steps)


def test_waiting_jobs(rota: Rota, run_with_client: Callable[[ClientTest], None]) -> None:
    async def steps(client: Any) -> None:
        await client.pause()
        first, second = [(await client.submit(["true"], name=name)).job for name in ("a", "b")]
        third = (await client.submit(["true"], after=[first.id], locks=["repo"])).job
        assert "paused" in (await client.why(first.id)).text
        assert (await client.job(third.id)).after[0].job == first.id
        assert (await client.edit(first.id, priority=3, name=None)).fields
        assert (await client.move(second.id, last=True)).moved in (True, False)
        assert (await client.reorder([second.id])).order == [second.id]
        assert {job.id for job in await collect(client.queue())} == {first.id, second.id, third.id}
        assert [lock.key for lock in await collect(client.locks(key="repo"))] == ["repo"]
        assert (await client.cancel(third.id)).status == "CANCELLED"
        with pytest.raises(TimeoutError, match="has not ended within the timeout"):
            await client.wait(first.id, timeout=0.01)
        await client.resume()
        assert [(await client.wait(job.id)).status for job in (first, second)] == ["COMPLETED"] * 2

    run_with_client(steps)


def test_retry_and_rewind(rota: Rota, run_with_client: Callable[[ClientTest], None], tmp_path: Path) -> None:
    async def steps(client: Any) -> None:
        marker = tmp_path / "there"
        job = (await client.submit(["test", "-e", str(marker)])).job
        assert (await client.wait(job.id)).status == "FAILED"
        again = await client.retry(job.id)
        assert again.job.retry_of == job.id
        assert (await client.wait(again.job.id)).status == "FAILED"
        marker.touch()
        report = await client.rewind(again.job.id)
        assert report.reset == [again.job.id]
        assert (await client.wait(again.job.id)).status == "COMPLETED"

    run_with_client(steps)


def test_lists_are_paginated(
    rota: Rota, run_with_client: Callable[[ClientTest], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rota.client.sdk.calls.MAX_PAGE_SIZE", 2)

    async def steps(client: Any) -> None:
        result = await client.submit_many([{"command": ["true"], "name": f"n{n}"} for n in range(5)])
        for job in result.jobs:
            await client.wait(job)
        assert {job.id for job in await collect(client.jobs())} == set(result.jobs)
        assert len(await collect(client.jobs(limit=3))) == 3
        assert [job.id for job in await collect(client.jobs(name="n2"))] == [result.jobs[2]]
        assert await collect(client.jobs(status=["RUNNING"])) == []

    run_with_client(steps)


def test_groups(rota: Rota, run_with_client: Callable[[ClientTest], None]) -> None:
    async def steps(client: Any) -> None:
        jobs: list[Any] = [
            {"local": "one", "command": ["true"]},
            {"local": "two", "command": ["false"], "after": ["one"]},
        ]
        assert [job.local for job in (await client.preview_many(jobs, group={})).jobs] == ["one", "two"]
        result = await client.submit_many(jobs, group={"name": "pair"})
        over = await client.wait_group(result.group)
        assert over.status == "PARTIAL"
        assert (await client.progress(result.group)).is_finished
        assert (await client.rewind_group(result.group)).reset == [result.jobs[1]]
        assert (await client.wait_group(result.group)).status == "PARTIAL"
        other = await client.add_group(name="open")
        await client.submit(["sleep", "60"], group="open")
        assert [group.id for group in await collect(client.groups(open=True))] == [other.id]
        assert (await client.close_group("open")).closed_at is not None
        assert (await client.cancel_group("open")).status == "CANCELLED"
        assert (await client.group("open")).status == "CANCELLED"

    run_with_client(steps)


def test_templates(rota: Rota, run_with_client: Callable[[ClientTest], None]) -> None:
    async def steps(client: Any) -> None:
        await client.add_template({"name": "say", "command": ["echo", "{word}"], "default_params": {"word": "hello"}})
        assert (await client.change_template("say", timeout=timedelta(seconds=9))).fields == ["timeout"]
        job = (await client.submit(template="say", params={"word": "you"})).job
        await client.wait(job.id)
        assert b"".join(await collect(client.logs(job.id))) == b"you\n"
        whole = {"name": "say", "command": ["echo", "{word}"], "default_params": {"word": "new"}}
        assert (await client.replace_template("say", whole)).template.timeout is None
        assert (await client.archive_template("say")).archived_at is not None
        assert await collect(client.templates()) == []
        assert (await client.unarchive_template("say")).archived_at is None
        assert [template.name for template in await collect(client.templates())] == ["say"]
        assert (await client.template("say")).default_params == {"word": "new"}

    run_with_client(steps)


def test_schedules(rota: Rota, run_with_client: Callable[[ClientTest], None]) -> None:
    async def steps(client: Any) -> None:
        created = await client.add_schedule("nightly", "0 3 * * *", {"command": ["true"]}, tz="Europe/Berlin")
        assert (created.name, created.tz) == ("nightly", "Europe/Berlin")
        assert (await client.change_schedule("nightly", cron="@daily")).fields == ["cron"]
        assert len((await client.next_fires("nightly", count=3)).fires) == 3
        result = await client.trigger("nightly")
        assert (await client.wait(result.job.id)).schedule == created.id
        assert not (await client.disable_schedule("nightly")).enabled
        assert (await client.enable_schedule("nightly")).enabled
        assert [schedule.id for schedule in await collect(client.schedules())] == [created.id]
        assert (await client.schedule("nightly")).cron == "@daily"
        await client.remove_schedule("nightly")
        assert await collect(client.schedules()) == []

    run_with_client(steps)


def test_direct_executions(rota: Rota, run_with_client: Callable[[ClientTest], None]) -> None:
    async def steps(client: Any) -> None:
        output = await client.run(["echo", "here"])
        assert (output.stdout, output.reservation.status) == ("here\n", "COMPLETED")
        reservation = await client.reserve()
        assert (await client.reservation(reservation.id, wait=5, last_seen="WAITING")).status == "RUNNING"
        await client.renew(reservation.id)
        assert reservation.id in [listed.id for listed in await collect(client.reservations())]
        assert (await client.release(reservation.id)).finished_at is not None
        slow = await client.reserve(["sleep", "60"])
        await client.reservation(slow.id, wait=5, last_seen="WAITING")
        await client.signal(slow.id, "TERM")
        assert (await client.reservation(slow.id, wait=9)).finished_at is not None
        other = await client.reserve(["sleep", "60"])
        assert (await client.cancel_reservation(other.id)).status == "CANCELLED"

    run_with_client(steps)


def test_errors_are_raised_by_type(rota: Rota, run_with_client: Callable[[ClientTest], None]) -> None:
    async def steps(client: Any) -> None:
        with pytest.raises(NotFound, match="no such job") as missing:
            await client.job("job-9")
        assert (missing.value.code, missing.value.status) == ("not-found", 404)
        with pytest.raises(InvalidInput, match="not a duration") as wrong:
            await client.submit_many([{"command": ["true"]}, {"command": ["true"], "timeout": "soon"}])
        assert (wrong.value.status, wrong.value.path) == (422, "$.jobs[1].timeout")
        assert wrong.value.detail == wrong.value.message
        job = (await client.submit(["true"])).job
        await client.wait(job.id)
        with pytest.raises(Conflict):
            await client.cancel(job.id)
        rota.run("config", "set", "queue.hard_limit", "1")
        await client.pause()
        await client.submit(["true"])
        with pytest.raises(QueueFull) as full:
            await client.submit(["true"])
        assert full.value.retry_after is not None
        assert full.value.depth is not None

    run_with_client(steps)


def test_custom_idempotency_key_submits_once(rota: Rota, run_with_client: Callable[[ClientTest], None]) -> None:
    async def steps(client: Any) -> None:
        first = await client.submit(["true"], key="deploy-42")
        assert (await client.submit(["true"], key="deploy-42")).job.id == first.job.id
        with pytest.raises(InvalidInput, match="a different request"):
            await client.submit(["false"], key="deploy-42")
        assert len(await collect(client.jobs())) == 1

    run_with_client(steps)


def test_event_stream_survives_a_crash(rota: Rota, run_with_client: Callable[[ClientTest], None]) -> None:
    """No gap and no repeat: the client reconnects with the sequence number of the last event."""

    async def steps(client: Any) -> None:
        received: list[Any] = []
        first = (await client.submit(["true"])).job
        await client.wait(first.id)
        async for event in client.events(since=0, kind=["job.*"]):
            received.append(event)
            if event.kind == "job.completed" and len({event.job for event in received}) == 1:
                await asyncio.to_thread(rota.crash)
                second = (await client.submit(["true"])).job
            elif event.kind == "job.completed":
                break
        assert [event.seq for event in received] == sorted({event.seq for event in received})
        for job in (first, second):
            kinds = [event.kind for event in received if event.job == job.id]
            assert kinds == ["job.submitted", "job.dispatched", "job.running", "job.completed"]
        page = await client.past_events(job=[first.id])
        assert [event.seq for event in page.events] == [event.seq for event in received if event.job == first.id]

    run_with_client(steps)


def test_log_stream_survives_a_crash(
    rota: Rota, children: ChildControl, run_with_client: Callable[[ClientTest], None]
) -> None:
    async def steps(client: Any) -> None:
        script = f"echo one; read line < {children.make_gate('go')}; echo two"
        job = (await client.submit(["sh", "-c", script])).job
        written = b""
        async for piece in client.logs(job.id, follow=True):
            written += piece
            if written == b"one\n":
                await asyncio.to_thread(rota.crash)
                await asyncio.to_thread(rota.start)
                await asyncio.to_thread(children.release, "go")
        assert written == b"one\ntwo\n"

    run_with_client(steps)


def test_log_stream_survives_a_restart(
    rota: Rota, children: ChildControl, run_with_client: Callable[[ClientTest], None]
) -> None:
    """A reader does not start a scheduler that the user stopped; it waits for the restart."""

    async def steps(client: Any) -> None:
        script = f"echo one; read line < {children.make_gate('go')}; echo two"
        job = (await client.submit(["sh", "-c", script])).job
        written = b""
        async for piece in client.logs(job.id, follow=True):
            written += piece
            if written == b"one\n":
                restart = asyncio.create_task(asyncio.to_thread(_restart, rota))
                release = asyncio.create_task(_release_after(restart, children))
        await release
        assert written == b"one\ntwo\n"

    run_with_client(steps)


def test_wait_survives_a_restart(
    rota: Rota, children: ChildControl, run_with_client: Callable[[ClientTest], None]
) -> None:
    async def steps(client: Any) -> None:
        result = await client.submit_many(
            [{"command": ["sh", "-c", f"read line < {children.make_gate('go')}"]}], group={}
        )
        waiting = [asyncio.create_task(_await(client.wait(result.jobs[0])))]
        waiting.append(asyncio.create_task(_await(client.wait_group(result.group))))
        await asyncio.to_thread(_restart, rota)
        await asyncio.to_thread(children.release, "go")
        assert [job.status for job in await asyncio.gather(*waiting)] == ["COMPLETED"] * 2

    run_with_client(steps)


async def _await(ended: Any) -> Any:
    return await ended


def _restart(rota: Rota) -> None:
    rota.run("down", "--grace", "0s")
    assert not rota.schedulers()
    rota.start()


async def _release_after(restart: asyncio.Task[None], children: ChildControl) -> None:
    await restart
    await asyncio.to_thread(children.release, "go")


@pytest.mark.parametrize("method", ["wait", "logs", "events"])
def test_stopped_scheduler_raises_after_the_outage_timeout(
    rota: Rota, client_type: type[Client | AsyncClient], method: str, children: ChildControl
) -> None:
    async def steps() -> None:
        client = AwaitableClient(client_type(home=rota.home, outage_timeout=0.1))
        job = (await client.submit(["sh", "-c", f"read line < {children.make_gate('go')}"])).job
        await asyncio.to_thread(rota.wait_for_start, job.id)  # `down` shows the pid of the running job
        await asyncio.to_thread(rota.run, "down", "--grace", "0s")
        calls: dict[str, Callable[[], Any]] = {
            "wait": lambda: _await(client.wait(job.id)),
            "logs": lambda: collect(client.logs(job.id, follow=True)),
            "events": lambda: collect(client.events()),
        }
        with pytest.raises(ServiceUnavailable, match="was stopped meanwhile"):
            await calls[method]()
        assert not rota.schedulers(), "waiting does not start the scheduler"

    asyncio.run(steps())


def test_submit_with_a_lost_response_is_stored_once(rota: Rota, client_type: type[Client | AsyncClient]) -> None:
    """The scheduler is killed after the commit and before the response; the client repeats the request with its key."""

    async def steps(client_type: type[Client | AsyncClient]) -> None:
        with CrashingProxy(rota) as proxy:
            client = AwaitableClient(client_type(url=proxy.url))
            result = await client.submit(["true"], name="once", cwd="/")
            assert proxy.lost_responses == 1
            assert [job.id for job in await collect(client.jobs(name="once"))] == [result.job.id]

    rota.start()
    asyncio.run(steps(client_type))


def test_cancelled_task_closes_its_connection(rota: Rota, children: ChildControl) -> None:
    """The job it waited for continues."""

    async def steps() -> None:
        client = AsyncClient(home=rota.home)
        job = (await client.submit(["sh", "-c", f"read line < {children.make_gate('go')}"])).job
        gc.collect()  # close connections of clients of other tests
        before = _open_sockets()
        waiting = asyncio.create_task(client.wait(job.id))
        await asyncio.sleep(0)  # let the task take the pooled connection
        await client.health()
        assert _open_sockets() == before + 1
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert _open_sockets() == before
        assert (await client.job(job.id)).status in ("QUEUED", "RUNNING")
        await asyncio.to_thread(children.release, "go")
        assert (await client.wait(job.id)).status == "COMPLETED"

    asyncio.run(steps())


def test_cancelled_run_is_cancelled_in_the_scheduler(rota: Rota, children: ChildControl) -> None:
    """A cancelled call cancels its reservation. The same key returns the result."""

    async def steps() -> None:
        async with AsyncClient(home=rota.home) as client:
            await client.health()
            command = ["sh", "-c", f"echo runs > {children.pipe}; exec sleep 60"]
            running = asyncio.create_task(client.run(command, key="mine", cwd="/"))
            await asyncio.to_thread(children.read_lines)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            again = await client.run(command, key="mine", cwd="/")
            assert again.reservation.status == "CANCELLED"

    asyncio.run(steps())


def _open_sockets() -> int:
    count = 0
    for link in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the descriptor of the directory itself
            count += str(link.readlink()).startswith("socket:")
    return count


def test_client_without_autostart_does_not_start_the_scheduler(rota: Rota) -> None:
    with Client(home=rota.home, autostart=False) as client, pytest.raises(ServiceUnavailable, match="is stopped"):
        client.status()
    assert not rota.schedulers()


def test_over_tcp_with_a_token(
    rota: Rota, client_type: type[Client | AsyncClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scheduler decides the working directory: it may run on another machine."""

    async def steps(url: str, token: str) -> None:
        client = AwaitableClient(client_type(url=url, token=token))
        job = (await client.submit(["echo", "far"])).job
        assert (await client.wait(job.id)).status == "COMPLETED"
        assert b"".join(await collect(client.logs(job.id))) == b"far\n"
        with pytest.raises(Unauthorized) as error:
            await AwaitableClient(client_type(url=url, token="wrong")).job(job.id)
        assert (error.value.status, error.value.code) == (401, "unauthorized")
        monkeypatch.setenv("ROTA_URL", url)
        monkeypatch.setenv("ROTA_TOKEN", token)
        assert (await AwaitableClient(client_type()).job(job.id)).id == job.id
        with pytest.raises(ServiceUnavailable, match="no scheduler answers"):
            await AwaitableClient(client_type(url="http://127.0.0.1:1")).job(job.id)

    rota.run("config", "set", "server.port", "0")
    rota.start()
    url = eventually(lambda: rota.status()["tcp"]["url"])
    asyncio.run(steps(url, rota.run("token").out.strip()))


@pytest.mark.skipif(shutil.which("openssl") is None, reason="requires openssl to create a certificate")
def test_over_tls(rota: Rota, client_type: type[Client | AsyncClient], tmp_path: Path) -> None:
    cert, key = make_certificate(tmp_path)

    async def steps(url: str, token: str) -> None:
        client = client_type(url=url, token=token, ca=cert)
        job = (await AwaitableClient(client).submit(["true"])).job
        for _ in range(3):
            assert (await AwaitableClient(client).job(job.id)).id == job.id
        assert len(client._pool._idle) == 1, "one connection for all requests"
        with pytest.raises(ServiceUnavailable, match="is not trusted"):
            await AwaitableClient(client_type(url=url, token=token)).job(job.id)

    for name, value in (("port", "0"), ("tls_cert", str(cert)), ("tls_key", str(key))):
        rota.run("config", "set", f"server.{name}", value)
    rota.start()
    url = eventually(lambda: rota.status()["tcp"]["url"])
    assert url.startswith("https://")
    asyncio.run(steps(url, rota.run("token").out.strip()))


@pytest.mark.parametrize("url", ["127.0.0.1:7682", "ftp://x", "http://", "http://x/path", "http://x:port"])
def test_invalid_url_is_refused(url: str) -> None:
    with pytest.raises(InvalidInput, match="invalid scheduler URL"):
        Client(url=url)


def test_home_comes_from_the_environment(rota: Rota, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ROTA_URL", raising=False)
    monkeypatch.setenv("ROTA_HOME", str(rota.home))
    job = Client().submit(["true"]).job
    assert rota.show(job.id)["cwd"] == os.getcwd()  # noqa: PTH109


def test_example_runs(rota: Rota) -> None:
    example = Path(__file__).parents[2] / "examples" / "three_jobs.py"
    completed = subprocess.run(
        [sys.executable, "-W", "error", example],
        env={**os.environ, "ROTA_HOME": str(rota.home)},
        cwd=rota.cwd,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    assert (completed.returncode, completed.stderr) == (0, "")
    assert "checked: 2 words" in completed.stdout
    assert "report FAILED (exit code 3)" in completed.stdout


def test_package_exports_exist() -> None:
    assert {error.__name__ for error in BY_CODE.values()} < set(package.__all__)
    for name in package.__all__:
        assert getattr(package, name) is not None
    assert issubclass(package.NotFound, RotaError)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        package.nothing  # type: ignore[attr-defined] # noqa: B018
    assert "timeout" in str(inspect.signature(Client(home=Path("/nowhere")).wait))

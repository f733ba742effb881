"""`rota.Client` and `rota.AsyncClient` against a real scheduler: what each method gives, once for both."""

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
from api.test_tls import certify
from e2e.either import Either, Tour, collected
from e2e.rig import PATIENCE, Rota, Stage, eventually
from rota import AsyncClient, Client, Conflict, Deferred, InvalidInput, NotFound, RotaError, Unauthorized, Unavailable
from rota.errors import BY_CODE


class Between:
    """A TCP port in front of a home's socket. The answer to the first submit is lost: it is waited for, then the
    scheduler is killed, and started again before the connection breaks."""

    def __init__(self, rota: Rota) -> None:
        self._rota = rota
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self.lost = 0
        self._thread = threading.Thread(target=self._serve)

    def _serve(self) -> None:
        with suppress(OSError):  # it was closed
            while True:
                connection, _ = self._socket.accept()
                with connection, socket.socket(socket.AF_UNIX) as scheduler:
                    self._pass_on(connection, scheduler)

    def _pass_on(self, connection: socket.socket, scheduler: socket.socket) -> None:
        scheduler.connect(str(self._rota.home / "rota.sock"))
        request = connection.recv(1 << 16)
        # The client would keep its connection; this one is for one request.
        scheduler.sendall(request.replace(b"\r\n", b"\r\nConnection: close\r\n", 1))
        answer = b"".join(iter(lambda: scheduler.recv(1 << 16), b""))
        if request.startswith(b"POST /api/jobs ") and not self.lost:
            assert b" 201 " in answer
            self.lost += 1
            self._rota.crash()
            self._rota.start()
            return
        connection.sendall(answer)

    def __enter__(self) -> Between:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()


def test_a_job_from_its_submit_to_its_end(rota: Rota, tour: Callable[[Tour], None]) -> None:
    """Nobody has started the scheduler: the first request does."""

    async def steps(client: Any) -> None:
        told = await client.submit(
            ["sh", "-c", "echo out; echo err >&2; pwd; echo $MARK"], name="first", cwd=str(rota.cwd),
            timeout=timedelta(minutes=1), env={"MARK": "here"},
        )  # fmt: skip
        assert (told.result, told.job.name, told.job.cwd) == ("submitted", "first", str(rota.cwd))
        ended = await client.wait(told.job.id)
        assert (ended.status, ended.exit_code) == ("COMPLETED", 0)
        assert b"".join(await collected(client.logs(ended.id))) == f"out\n{rota.cwd}\nhere\n".encode()
        assert b"".join(await collected(client.logs(ended.id, "stderr", follow=True))) == b"err\n"
        assert b"".join(await collected(client.logs(ended.id, offset=4))) == f"{rota.cwd}\nhere\n".encode()
        assert (await client.log_sizes(ended.id)).stderr.size == 4
        [run] = await collected(client.runs_of_job(ended.id))
        assert (await client.run_of_job(run.id)).job == ended.id
        assert [each.id for each in await collected(client.runs(job=ended.id))] == [run.id]
        assert (await client.job(ended.id)).finished_at == ended.finished_at

    tour(steps)


def test_jobs_that_wait(rota: Rota, tour: Callable[[Tour], None]) -> None:
    async def steps(client: Any) -> None:
        await client.pause()
        first, second = [(await client.submit(["true"], name=name)).job for name in ("a", "b")]
        third = (await client.submit(["true"], after=[first.id], locks=["repo"])).job
        assert "paused" in (await client.why(first.id)).text
        assert (await client.job(third.id)).after[0].job == first.id
        assert (await client.edit(first.id, priority=3, name=None)).fields
        assert (await client.move(second.id, last=True)).moved in (True, False)
        assert (await client.reorder([second.id])).order == [second.id]
        assert {each.id for each in await collected(client.queue())} == {first.id, second.id, third.id}
        assert [each.key for each in await collected(client.locks(key="repo"))] == ["repo"]
        assert (await client.cancel(third.id)).status == "CANCELLED"
        with pytest.raises(TimeoutError, match="has not ended in time"):
            await client.wait(first.id, timeout=0.01)
        await client.resume()
        assert [(await client.wait(each.id)).status for each in (first, second)] == ["COMPLETED"] * 2

    tour(steps)


def test_a_failure_is_retried_and_rewound(rota: Rota, tour: Callable[[Tour], None], tmp_path: Path) -> None:
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

    tour(steps)


def test_lists_come_in_pages(rota: Rota, tour: Callable[[Tour], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rota.sdk.verb.MOST_LISTED", 2)

    async def steps(client: Any) -> None:
        told = await client.submit_many([{"command": ["true"], "name": f"n{n}"} for n in range(5)])
        for job in told.jobs:
            await client.wait(job)
        assert {each.id for each in await collected(client.jobs())} == set(told.jobs)
        assert len(await collected(client.jobs(limit=3))) == 3
        assert [each.id for each in await collected(client.jobs(name="n2"))] == [told.jobs[2]]
        assert await collected(client.jobs(status=["RUNNING"])) == []

    tour(steps)


def test_groups(rota: Rota, tour: Callable[[Tour], None]) -> None:
    async def steps(client: Any) -> None:
        jobs: list[Any] = [
            {"local": "one", "command": ["true"]},
            {"local": "two", "command": ["false"], "after": ["one"]},
        ]
        assert [each.local for each in (await client.rehearse(jobs, group={})).jobs] == ["one", "two"]
        told = await client.submit_many(jobs, group={"name": "pair"})
        over = await client.wait_group(told.group)
        assert over.status == "PARTIAL"
        assert (await client.progress(told.group)).is_over
        assert (await client.rewind_group(told.group)).reset == [told.jobs[1]]
        assert (await client.wait_group(told.group)).status == "PARTIAL"
        other = await client.add_group(name="open")
        await client.submit(["sleep", "60"], group="open")
        assert [each.id for each in await collected(client.groups(open=True))] == [other.id]
        assert (await client.close_group("open")).closed_at is not None
        assert (await client.cancel_group("open")).status == "CANCELLED"
        assert (await client.group("open")).status == "CANCELLED"

    tour(steps)


def test_templates(rota: Rota, tour: Callable[[Tour], None]) -> None:
    async def steps(client: Any) -> None:
        await client.add_template({"name": "say", "command": ["echo", "{word}"], "default_params": {"word": "hello"}})
        assert (await client.change_template("say", timeout=timedelta(seconds=9))).fields == ["timeout"]
        job = (await client.submit(template="say", params={"word": "you"})).job
        await client.wait(job.id)
        assert b"".join(await collected(client.logs(job.id))) == b"you\n"
        whole = {"name": "say", "command": ["echo", "{word}"], "default_params": {"word": "new"}}
        assert (await client.replace_template("say", whole)).template.timeout is None
        assert (await client.archive_template("say")).archived_at is not None
        assert await collected(client.templates()) == []
        assert (await client.unarchive_template("say")).archived_at is None
        assert [each.name for each in await collected(client.templates())] == ["say"]
        assert (await client.template("say")).default_params == {"word": "new"}

    tour(steps)


def test_schedules(rota: Rota, tour: Callable[[Tour], None]) -> None:
    async def steps(client: Any) -> None:
        made = await client.add_schedule("nightly", "0 3 * * *", {"command": ["true"]}, tz="Europe/Berlin")
        assert (made.name, made.tz) == ("nightly", "Europe/Berlin")
        assert (await client.change_schedule("nightly", cron="@daily")).fields == ["cron"]
        assert len((await client.next_fires("nightly", count=3)).fires) == 3
        told = await client.trigger("nightly")
        assert (await client.wait(told.job.id)).schedule == made.id
        assert not (await client.disable_schedule("nightly")).enabled
        assert (await client.enable_schedule("nightly")).enabled
        assert [each.id for each in await collected(client.schedules())] == [made.id]
        assert (await client.schedule("nightly")).cron == "@daily"
        await client.remove_schedule("nightly")
        assert await collected(client.schedules()) == []

    tour(steps)


def test_direct_executions(rota: Rota, tour: Callable[[Tour], None]) -> None:
    async def steps(client: Any) -> None:
        said = await client.run(["echo", "here"])
        assert (said.stdout, said.slot.status) == ("here\n", "COMPLETED")
        slot = await client.reserve()
        assert (await client.slot(slot.id, wait=5, seen="WAITING")).status == "RUNNING"
        await client.renew(slot.id)
        assert slot.id in [each.id for each in await collected(client.slots())]
        assert (await client.release(slot.id)).finished_at is not None
        slow = await client.reserve(["sleep", "60"])
        await client.slot(slow.id, wait=5, seen="WAITING")
        await client.signal(slow.id, "TERM")
        assert (await client.slot(slow.id, wait=9)).finished_at is not None
        other = await client.reserve(["sleep", "60"])
        assert (await client.cancel_slot(other.id)).status == "CANCELLED"

    tour(steps)


def test_refusals_are_raised_by_type(rota: Rota, tour: Callable[[Tour], None]) -> None:
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
        rota.ask("config", "set", "queue.hard_limit", "1")
        await client.pause()
        await client.submit(["true"])
        with pytest.raises(Deferred) as full:
            await client.submit(["true"])
        assert full.value.retry_after is not None
        assert full.value.depth is not None

    tour(steps)


def test_a_key_of_the_callers_own_counts_once(rota: Rota, tour: Callable[[Tour], None]) -> None:
    async def steps(client: Any) -> None:
        first = await client.submit(["true"], key="deploy-42")
        assert (await client.submit(["true"], key="deploy-42")).job.id == first.job.id
        with pytest.raises(InvalidInput, match="another request"):
            await client.submit(["false"], key="deploy-42")
        assert len(await collected(client.jobs())) == 1

    tour(steps)


def test_events_go_on_over_a_crash(rota: Rota, tour: Callable[[Tour], None]) -> None:
    """Without gap or repeat: the listener comes back with the number of the last one that it had."""

    async def steps(client: Any) -> None:
        heard: list[Any] = []
        first = (await client.submit(["true"])).job
        await client.wait(first.id)
        async for event in client.events(since=0, kind=["job.*"]):
            heard.append(event)
            if event.kind == "job.completed" and len({each.job for each in heard}) == 1:
                await asyncio.to_thread(rota.crash)
                second = (await client.submit(["true"])).job
            elif event.kind == "job.completed":
                break
        assert [each.seq for each in heard] == sorted({each.seq for each in heard})
        for job in (first, second):
            kinds = [each.kind for each in heard if each.job == job.id]
            assert kinds == ["job.submitted", "job.dispatched", "job.running", "job.completed"]
        page = await client.past_events(job=[first.id])
        assert [each.seq for each in page.events] == [each.seq for each in heard if each.job == first.id]

    tour(steps)


def test_a_log_is_followed_over_a_crash(rota: Rota, stage: Stage, tour: Callable[[Tour], None]) -> None:
    async def steps(client: Any) -> None:
        script = f"echo one; read line < {stage.gate('go')}; echo two"
        job = (await client.submit(["sh", "-c", script])).job
        written = b""
        async for piece in client.logs(job.id, follow=True):
            written += piece
            if written == b"one\n":
                await asyncio.to_thread(rota.crash)
                await asyncio.to_thread(rota.start)
                await asyncio.to_thread(stage.release, "go")
        assert written == b"one\ntwo\n"

    tour(steps)


def test_a_log_is_followed_over_a_restart(rota: Rota, stage: Stage, tour: Callable[[Tour], None]) -> None:
    """Somebody stops the scheduler and starts it again; who reads meanwhile does not start it himself."""

    async def steps(client: Any) -> None:
        script = f"echo one; read line < {stage.gate('go')}; echo two"
        job = (await client.submit(["sh", "-c", script])).job
        written = b""
        async for piece in client.logs(job.id, follow=True):
            written += piece
            if written == b"one\n":
                restarting = asyncio.create_task(asyncio.to_thread(_restart, rota))
                released = asyncio.create_task(_after(restarting, stage))
        await released
        assert written == b"one\ntwo\n"

    tour(steps)


def test_an_end_is_waited_for_over_a_restart(rota: Rota, stage: Stage, tour: Callable[[Tour], None]) -> None:
    async def steps(client: Any) -> None:
        told = await client.submit_many([{"command": ["sh", "-c", f"read line < {stage.gate('go')}"]}], group={})
        waiting = [asyncio.create_task(_waited(client.wait(told.jobs[0])))]
        waiting.append(asyncio.create_task(_waited(client.wait_group(told.group))))
        await asyncio.to_thread(_restart, rota)
        await asyncio.to_thread(stage.release, "go")
        assert [each.status for each in await asyncio.gather(*waiting)] == ["COMPLETED"] * 2

    tour(steps)


async def _waited(ended: Any) -> Any:
    return await ended


def _restart(rota: Rota) -> None:
    rota.ask("down", "--grace", "0s")
    assert not rota.schedulers()
    rota.start()


async def _after(restarting: asyncio.Task[None], stage: Stage) -> None:
    await restarting
    await asyncio.to_thread(stage.release, "go")


@pytest.mark.parametrize("way", ["wait", "logs", "events"])
def test_a_scheduler_that_stays_away_is_waited_for_as_long_as_one_says(
    rota: Rota, kind: type[Client | AsyncClient], way: str, stage: Stage
) -> None:
    async def steps() -> None:
        client = Either(kind(home=rota.home, away=0.1))
        job = (await client.submit(["sh", "-c", f"read line < {stage.gate('go')}"])).job
        await asyncio.to_thread(rota.ask, "down", "--grace", "0s")
        ways: dict[str, Callable[[], Any]] = {
            "wait": lambda: _waited(client.wait(job.id)),
            "logs": lambda: collected(client.logs(job.id, follow=True)),
            "events": lambda: collected(client.events()),
        }
        with pytest.raises(Unavailable, match="was stopped meanwhile"):
            await ways[way]()
        assert not rota.schedulers(), "nobody has asked for it to run"

    asyncio.run(steps())


def test_a_submit_that_lost_its_answer_is_stored_once(rota: Rota, kind: type[Client | AsyncClient]) -> None:
    """It is stored, and the scheduler is killed before its answer gets anywhere: the same key is asked again."""

    async def steps(kind: type[Client | AsyncClient]) -> None:
        with Between(rota) as between:
            client = Either(kind(url=between.url))
            told = await client.submit(["true"], name="once", cwd="/")
            assert between.lost == 1
            assert [each.id for each in await collected(client.jobs(name="once"))] == [told.job.id]

    rota.start()
    asyncio.run(steps(kind))


def test_a_cancelled_task_closes_its_connection(rota: Rota, stage: Stage) -> None:
    """And what it asked for goes on."""

    async def steps() -> None:
        client = AsyncClient(home=rota.home)
        job = (await client.submit(["sh", "-c", f"read line < {stage.gate('go')}"])).job
        gc.collect()  # other tests' clients, with what they kept
        before = _open_sockets()
        waiting = asyncio.create_task(client.wait(job.id))
        await asyncio.sleep(0)  # its turn: it takes the connection that was kept
        await client.health()
        assert _open_sockets() == before + 1
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert _open_sockets() == before
        assert (await client.job(job.id)).status in ("QUEUED", "RUNNING")
        await asyncio.to_thread(stage.release, "go")
        assert (await client.wait(job.id)).status == "COMPLETED"

    asyncio.run(steps())


def test_a_cancelled_run_is_withdrawn(rota: Rota, stage: Stage) -> None:
    """Nobody waits for its result. The same key says what became of it."""

    async def steps() -> None:
        async with AsyncClient(home=rota.home) as client:
            await client.health()
            command = ["sh", "-c", f"echo runs > {stage.pipe}; exec sleep 60"]
            running = asyncio.create_task(client.run(command, key="mine", cwd="/"))
            await asyncio.to_thread(stage.hear)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            again = await client.run(command, key="mine", cwd="/")
            assert again.slot.status == "CANCELLED"

    asyncio.run(steps())


def _open_sockets() -> int:
    found = 0
    for link in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # it was that of the look itself
            found += str(link.readlink()).startswith("socket:")
    return found


def test_a_client_that_shall_not_start_the_scheduler_does_not(rota: Rota) -> None:
    with Client(home=rota.home, starts=False) as client, pytest.raises(Unavailable, match="no scheduler runs"):
        client.status()
    assert not rota.schedulers()


def test_over_tcp_with_a_token(rota: Rota, kind: type[Client | AsyncClient], monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the command runs is for the scheduler to say: it may be another machine's."""

    async def steps(url: str, token: str) -> None:
        client = Either(kind(url=url, token=token))
        job = (await client.submit(["echo", "far"])).job
        assert (await client.wait(job.id)).status == "COMPLETED"
        assert b"".join(await collected(client.logs(job.id))) == b"far\n"
        with pytest.raises(Unauthorized) as refused:
            await Either(kind(url=url, token="wrong")).job(job.id)
        assert (refused.value.status, refused.value.code) == (401, "unauthorized")
        monkeypatch.setenv("ROTA_URL", url)
        monkeypatch.setenv("ROTA_TOKEN", token)
        assert (await Either(kind()).job(job.id)).id == job.id
        with pytest.raises(Unavailable, match="no scheduler answers"):
            await Either(kind(url="http://127.0.0.1:1")).job(job.id)

    rota.ask("config", "set", "server.port", "0")
    rota.start()
    url = eventually(lambda: rota.status()["tcp"]["url"])
    asyncio.run(steps(url, rota.ask("token").out.strip()))


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes its certificate with openssl")
def test_over_tls(rota: Rota, kind: type[Client | AsyncClient], tmp_path: Path) -> None:
    cert, key = certify(tmp_path)

    async def steps(url: str, token: str) -> None:
        client = kind(url=url, token=token, ca=cert)
        job = (await Either(client).submit(["true"])).job
        for _ in range(3):
            assert (await Either(client).job(job.id)).id == job.id
        assert len(client._pool._kept) == 1, "all of it over one connection"
        with pytest.raises(Unavailable, match="is not trusted"):
            await Either(kind(url=url, token=token)).job(job.id)

    for name, value in (("port", "0"), ("tls_cert", str(cert)), ("tls_key", str(key))):
        rota.ask("config", "set", f"server.{name}", value)
    rota.start()
    url = eventually(lambda: rota.status()["tcp"]["url"])
    assert url.startswith("https://")
    asyncio.run(steps(url, rota.ask("token").out.strip()))


@pytest.mark.parametrize("url", ["127.0.0.1:7682", "ftp://x", "http://", "http://x/path", "http://x:port"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(InvalidInput, match="not the address of a scheduler"):
        Client(url=url)


def test_the_home_is_found_as_commands_find_it(rota: Rota, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ROTA_URL", raising=False)
    monkeypatch.setenv("ROTA_HOME", str(rota.home))
    job = Client().submit(["true"]).job
    assert rota.show(job.id)["cwd"] == os.getcwd()  # noqa: PTH109


def test_the_example_runs_as_it_is(rota: Rota) -> None:
    example = Path(__file__).parents[2] / "examples" / "three_jobs.py"
    done = subprocess.run(
        [sys.executable, "-W", "error", example], env={**os.environ, "ROTA_HOME": str(rota.home)}, cwd=rota.cwd,
        capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert "checked: 2 words" in done.stdout
    assert "report FAILED (exit code 3)" in done.stdout


def test_what_the_package_exports_is_there() -> None:
    assert {error.__name__ for error in BY_CODE.values()} < set(package.__all__)
    for name in package.__all__:
        assert getattr(package, name) is not None
    assert issubclass(package.NotFound, RotaError)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        package.nothing  # type: ignore[attr-defined] # noqa: B018
    assert "timeout" in str(inspect.signature(Client(home=Path("/nowhere")).wait))

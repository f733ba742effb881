"""Two hundred concurrent clients, each with its own connection, that read and write at random.

No client gets an error, and every accepted job is stored, ends once and runs at most once.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from rota import AsyncClient, Client, Conflict
from tests.e2e.rig import Rota

CLIENTS = 200
TIMEOUT = 300
END_EVENTS = {"job.completed", "job.failed", "job.cancelled", "job.skipped", "job.blocked"}
RECORD_SCRIPT = 'echo "$0" >> "$1"; echo "$0"'
"""Append a line to a file and print it."""


class LoadClient:
    """A client, its accepted jobs and the end events it received."""

    def __init__(self, home: Path, number: int, ran: Path) -> None:
        self.client = AsyncClient(home=home, autostart=False)
        self.number = number
        self.random = random.Random(number)
        self.ran = str(ran)
        self.jobs: dict[str, str] = {}
        """Job id by the line that the job prints."""
        self.ends: Counter[str] = Counter()

    def command(self, word: str) -> list[str]:
        return ["/bin/sh", "-c", RECORD_SCRIPT, f"{self.number}-{word}", self.ran]

    async def run(self) -> None:
        await self.submit("first")
        actions = [self.submit_many, self.cancel, self.edit, self.read_lists, self.read_log]
        self.random.shuffle(actions)
        for action in actions:
            await action()
        await self.submit("last")
        await self.read_events()

    async def submit(self, word: str) -> None:
        """Submit twice with one key; both return the same job."""
        options = {"key": f"{self.number} {word}", "name": word, "flow": self.random.choice(["a", "b", "c"])}
        first, repeated = [await self.client.submit(self.command(word), **options) for _ in range(2)]  # type: ignore[arg-type]
        assert first.job.id == repeated.job.id
        self.jobs[f"{self.number}-{word}"] = first.job.id

    async def submit_many(self) -> None:
        words = ["one", "two"]
        result = await self.client.submit_many([{"local": word, "command": self.command(word)} for word in words])
        self.jobs |= {f"{self.number}-{word}": job for word, job in zip(words, result.jobs, strict=True)}

    async def cancel(self) -> None:
        await self.submit("cancelled")
        with suppress(Conflict):  # the job has already ended
            await self.client.cancel(self.jobs[f"{self.number}-cancelled"])

    async def edit(self) -> None:
        with suppress(Conflict):  # the job has already started
            await self.client.edit(self.random.choice(list(self.jobs.values())), priority=self.random.randint(-5, 5))

    async def read_lists(self) -> None:
        assert (await self.client.status()).errors == []
        assert [job async for job in self.client.jobs(limit=20)]
        await self.client.why(self.random.choice(list(self.jobs.values())))

    async def read_log(self) -> None:
        word, job = self.random.choice(list(self.jobs.items()))
        output = b"".join([piece async for piece in self.client.logs(job)])
        assert output in (b"", f"{word}\n".encode())

    async def read_events(self) -> None:
        """Read the events of the own jobs from the beginning until all have ended."""
        own_jobs = set(self.jobs.values())
        async for event in self.client.events(since=0, job=sorted(own_jobs)):
            assert event.job in own_jobs
            if event.kind in END_EVENTS:
                self.ends[event.job] += 1
                if self.ends.keys() == own_jobs:
                    return


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_two_hundred_concurrent_clients_lose_no_job(
    database: str, request: pytest.FixtureRequest, make_rota: Callable[..., Rota], tmp_path: Path
) -> None:
    rota = make_rota()
    if database == "postgres":
        rota.run("config", "set", "store.url", request.getfixturevalue("postgres_url"))
    rota.start()
    for pool in ("global", "flow/a", "flow/b", "flow/c"):
        assert rota.api("PUT", f"/api/pools/{pool}", {"size": 8}).status == 200
    ran = tmp_path / "ran"
    load_clients = [LoadClient(rota.home, number, ran) for number in range(CLIENTS)]

    async def run_all() -> None:
        async with asyncio.timeout(TIMEOUT), asyncio.TaskGroup() as tasks:
            for load_client in load_clients:
                tasks.create_task(load_client.run())

    asyncio.run(run_all())
    accepted = {job: word for load_client in load_clients for word, job in load_client.jobs.items()}
    assert len(accepted) == CLIENTS * 5
    assert sum((load_client.ends for load_client in load_clients), Counter()) == Counter(accepted.keys()), (
        "one end event for each job"
    )
    with Client(home=rota.home) as client:
        shown = {job.id: job.status for job in client.jobs()}
    assert shown.keys() == accepted.keys()
    assert set(shown.values()) <= {"COMPLETED", "CANCELLED"}
    runs = Counter(ran.read_text().split())
    completed = {word for job, word in accepted.items() if shown[job] == "COMPLETED"}
    assert {word: runs[word] for word in completed} == dict.fromkeys(completed, 1)
    assert all(runs[word] <= 1 for word in accepted.values())
    assert all(word.endswith("-cancelled") for job, word in accepted.items() if shown[job] == "CANCELLED")
    assert rota.status()["errors"] == []

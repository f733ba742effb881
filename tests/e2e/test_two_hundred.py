"""Two hundred clients at once, each with a connection of its own for all it asks, reading and writing as they like:
none meets an error, and every job that was taken is there, has ended once, and has run once."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from e2e.rig import Rota
from rota import AsyncClient, Client, Conflict

CLIENTS = 200
PATIENCE = 300
ENDS = {"job.completed", "job.failed", "job.cancelled", "job.skipped", "job.blocked"}
NOTE = 'echo "$0" >> "$1"; echo "$0"'
"""Says on a line of its own that it ran, and to whom it may concern."""


class Guest:
    """One client, what it was given and what it has seen."""

    def __init__(self, home: Path, number: int, ran: Path) -> None:
        self.client = AsyncClient(home=home, starts=False)
        self.number = number
        self.random = random.Random(number)
        self.ran = str(ran)
        self.jobs: dict[str, str] = {}
        """Id by what it says when it runs."""
        self.ends: Counter[str] = Counter()

    def command(self, word: str) -> list[str]:
        return ["/bin/sh", "-c", NOTE, f"{self.number}-{word}", self.ran]

    async def stay(self) -> None:
        await self.submit("first")
        acts = [self.submit_many, self.cancel, self.edit, self.look, self.read]
        self.random.shuffle(acts)
        for act in acts:
            await act()
        await self.submit("last")
        await self.listen()

    async def submit(self, word: str) -> None:
        """Asked twice, with one key: it is one job."""
        options = {"key": f"{self.number} {word}", "name": word, "flow": self.random.choice(["a", "b", "c"])}
        first, again = [await self.client.submit(self.command(word), **options) for _ in range(2)]  # type: ignore[arg-type]
        assert first.job.id == again.job.id
        self.jobs[f"{self.number}-{word}"] = first.job.id

    async def submit_many(self) -> None:
        words = ["one", "two"]
        told = await self.client.submit_many([{"local": word, "command": self.command(word)} for word in words])
        self.jobs |= {f"{self.number}-{word}": job for word, job in zip(words, told.jobs, strict=True)}

    async def cancel(self) -> None:
        await self.submit("unwanted")
        with suppress(Conflict):  # it has ended before
            await self.client.cancel(self.jobs[f"{self.number}-unwanted"])

    async def edit(self) -> None:
        with suppress(Conflict):  # it has begun before
            await self.client.edit(self.random.choice(list(self.jobs.values())), priority=self.random.randint(-5, 5))

    async def look(self) -> None:
        assert (await self.client.status()).trouble == []
        assert [job async for job in self.client.jobs(limit=20)]
        await self.client.why(self.random.choice(list(self.jobs.values())))

    async def read(self) -> None:
        word, job = self.random.choice(list(self.jobs.items()))
        said = b"".join([piece async for piece in self.client.logs(job)])
        assert said in (b"", f"{word}\n".encode())

    async def listen(self) -> None:
        """From the beginning, until all of its own have ended."""
        mine = set(self.jobs.values())
        async for event in self.client.events(since=0, job=sorted(mine)):
            assert event.job in mine
            if event.kind in ENDS:
                self.ends[event.job] += 1
                if self.ends.keys() == mine:
                    return


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_two_hundred_clients(
    store: str, request: pytest.FixtureRequest, make_rota: Callable[..., Rota], tmp_path: Path
) -> None:
    rota = make_rota()
    if store == "postgres":
        rota.ask("config", "set", "store.url", request.getfixturevalue("postgres_url"))
    rota.start()
    for pool in ("global", "flow/a", "flow/b", "flow/c"):
        assert rota.api("PUT", f"/api/pools/{pool}", {"size": 8}).status == 200
    ran = tmp_path / "ran"
    guests = [Guest(rota.home, number, ran) for number in range(CLIENTS)]

    async def party() -> None:
        async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as together:
            for guest in guests:
                together.create_task(guest.stay())

    asyncio.run(party())
    taken = {job: word for guest in guests for word, job in guest.jobs.items()}
    assert len(taken) == CLIENTS * 5
    assert sum((guest.ends for guest in guests), Counter()) == Counter(taken.keys()), "each is heard to end once"
    with Client(home=rota.home) as client:
        shown = {job.id: job.status for job in client.jobs()}
    assert shown.keys() == taken.keys()
    assert set(shown.values()) <= {"COMPLETED", "CANCELLED"}
    runs = Counter(ran.read_text().split())
    completed = {word for job, word in taken.items() if shown[job] == "COMPLETED"}
    assert {word: runs[word] for word in completed} == dict.fromkeys(completed, 1)
    assert all(runs[word] <= 1 for word in taken.values())
    assert all(word.endswith("-unwanted") for job, word in taken.items() if shown[job] == "CANCELLED")
    assert rota.status()["trouble"] == []

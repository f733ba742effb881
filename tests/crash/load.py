"""Clients that go on whatever dies: each asks with a key, and asks again with the same until it is answered.

What each was told is remembered by the label of its command, which every child of it writes down: that is what the
judge goes by.
"""

from __future__ import annotations

import random
import threading
from abc import ABC, abstractmethod
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from crash import witness
from rota.client.ask import Ask
from rota.client.ask.job import cancel_job
from rota.client.carry import run
from rota.client.session import Blocking
from rota.client.transport import HomeSocket
from rota.errors import Conflict, InFlight, RotaError, WaitOver
from rota.home import Home

POOLS = {"global": 6, "resource/gpu": 2}
_PAUSE = 0.03


class Told(msgspec.Struct):
    """What one label stands for, and what its client was told."""

    locks: list[dict[str, str]] = []
    pools: dict[str, int] = {}
    retries: int = 0
    after: list[dict[str, str]] = []
    jobs: list[str] = []
    """The first of each chain."""
    slot: dict[str, Any] | None = None
    """What a direct execution came to."""
    is_direct: bool = False
    worktree: bool = False
    """It works in a worktree of its own, and leaves a patch."""
    skip_if: str = ""
    on_failure: str = ""
    """The policy of the group that it was submitted with."""

    @property
    def has_steps(self) -> bool:
        """Its runs have other processes than the command."""
        return self.worktree or bool(self.skip_if)


class Records:
    """Of all clients together."""

    def __init__(self) -> None:
        self.told: dict[str, Told] = {}
        self.rewound: Counter[str] = Counter()
        """Jobs, and how often they were put back."""
        self.cancelled: set[str] = set()
        """Jobs of which somebody asked that they end."""
        self.groups: set[str] = set()
        self.repeats = 0
        """Answers that were asked for a second time, and were the same."""
        self.faults: list[str] = []
        """What no client should ever be told."""


class Client(ABC):
    letter: ClassVar[str]
    """Its labels begin with it: no two loads of one home have one in common."""

    def __init__(self, home: Path, number: int, seed: int, records: Records, stop: threading.Event) -> None:
        self._carrier = Blocking(HomeSocket(Home(home)), None, starts=False)  # which does not say what it waits for
        self._home = home
        self._program = str(witness.program(home))
        self._random = random.Random(f"{seed}.{number}")
        self._name = f"{self.letter}{number}"
        self._count = 0
        self._open: list[str] = []
        self._mine: list[str] = []
        self._records = records
        self._stop = stop
        self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def join(self, patience: float) -> bool:
        """Whether it has had its last answer."""
        self._thread.join(patience)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self.act()
                self._stop.wait(_PAUSE)
        except BaseException as error:  # noqa: BLE001 - the judge says so
            self._records.faults.append(f"{self._name}: {error!r}")

    @abstractmethod
    def act(self) -> None:
        """Whatever it wants next."""

    def _ask(self, ask: Ask) -> Any:
        """Until there is an answer, be it a refusal. One who gives up would not know what became of it."""
        while True:
            try:
                return run(self._carrier.ask(ask)).json()
            except InFlight:
                pass  # the scheduler has not noticed yet that our connection of before is gone
            except (Conflict, WaitOver):
                raise
            except RotaError as error:
                if error.status < 500:
                    raise
            self._stop.wait(_PAUSE) or threading.Event().wait(_PAUSE)

    def _ask_twice(self, ask: Ask) -> Any:
        """Now and then once more, as somebody who has lost the answer does: it is the same."""
        answer = self._ask(ask)
        if self._random.random() < 0.2:
            again = self._ask(ask)
            self._records.repeats += 1
            if again != answer:
                self._records.faults.append(f"{ask} was answered {answer}, and then {again}")
        return answer

    def _label(self) -> str:
        self._count += 1
        return f"{self._name}.{self._count}"

    def _remember(self, label: str, wanted: dict[str, Any], job: str, on_failure: str = "") -> None:
        fields = {
            name: wanted[name]
            for name in ("locks", "pools", "retries", "after", "worktree", "skip_if")
            if name in wanted
        }
        self._records.told[label] = Told(**fields, jobs=[job], on_failure=on_failure)
        self._mine.append(job)
        self._open.append(job)

    def _cancel(self, job: str) -> None:
        self._records.cancelled.add(job)
        with suppress(Conflict):  # it had ended
            self._ask(cancel_job(job))

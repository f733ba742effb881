"""Clients that survive every kill: each request has a key and is repeated with it until it is answered.

The result of each request is recorded by the label of its command. Every child writes its label to the history, so the
judge can compare the two.
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

from rota.client.requests import Request
from rota.client.requests.jobs import cancel_job
from rota.client.retrying import run_blocking
from rota.client.session import BlockingTransport
from rota.client.transport import HomeSocket
from rota.errors import Conflict, RequestInProgress, ReservationTimeout, RotaError
from rota.home import Home
from tests.crash import history

POOLS = {"global": 6, "resource/gpu": 2}
_REQUEST_INTERVAL = 0.03


class Submitted(msgspec.Struct):
    """The request behind one label, and its result."""

    locks: list[dict[str, str]] = []
    pools: dict[str, int] = {}
    retries: int = 0
    after: list[dict[str, str]] = []
    jobs: list[str] = []
    """The first job of each chain."""
    reservation: dict[str, Any] | None = None
    """Result of a direct execution."""
    is_direct: bool = False
    worktree: bool = False
    """Whether it has its own worktree, and leaves a patch."""
    skip_if: str = ""
    on_failure: str = ""
    """The policy of the group that it was submitted with."""

    @property
    def has_steps(self) -> bool:
        """Return whether its runs have other processes than the command."""
        return self.worktree or bool(self.skip_if)


class Records:
    """Requests and results of all clients."""

    def __init__(self) -> None:
        self.by_label: dict[str, Submitted] = {}
        self.rewound: Counter[str] = Counter()
        """Number of rewinds by job."""
        self.cancelled: set[str] = set()
        """Jobs that a client cancelled."""
        self.groups: set[str] = set()
        self.repeats = 0
        """Number of requests that were repeated after their response."""
        self.faults: list[str] = []
        """Responses that no client may ever get."""


class Client(ABC):
    letter: ClassVar[str]
    """First letter of its labels, so that the loads of one home share none."""

    def __init__(self, home: Path, number: int, seed: int, records: Records, stop: threading.Event) -> None:
        self._transport = BlockingTransport(HomeSocket(Home(home)), None, autostart=False)
        self._home = home
        self._program = str(history.program_path(home))
        self._random = random.Random(f"{seed}.{number}")
        self._name = f"{self.letter}{number}"
        self._count = 0
        self._active: list[str] = []
        self._jobs: list[str] = []
        self._records = records
        self._stop = stop
        self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def join(self, timeout: float) -> bool:
        """Wait for the last response. Return False at the timeout."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self.act()
                self._stop.wait(_REQUEST_INTERVAL)
        except BaseException as error:  # noqa: BLE001 - the judge reports it
            self._records.faults.append(f"{self._name}: {error!r}")

    @abstractmethod
    def act(self) -> None:
        """Do the next thing."""

    def _request(self, request: Request) -> Any:
        """Repeat the request until there is a response or a refusal. Giving up would leave its result unknown."""
        while True:
            try:
                return run_blocking(self._transport.request(request)).json()
            except RequestInProgress:
                pass  # the scheduler has not noticed yet that the earlier connection is closed
            except (Conflict, ReservationTimeout):
                raise
            except RotaError as error:
                if error.status < 500:
                    raise
            self._stop.wait(_REQUEST_INTERVAL) or threading.Event().wait(_REQUEST_INTERVAL)

    def _request_with_repeat(self, request: Request) -> Any:
        """Sometimes repeat the request, like a client that lost the response. The response must be the same."""
        response = self._request(request)
        if self._random.random() < 0.2:
            repeated = self._request(request)
            self._records.repeats += 1
            if repeated != response:
                self._records.faults.append(f"{request} was answered {response}, and then {repeated}")
        return response

    def _make_label(self) -> str:
        self._count += 1
        return f"{self._name}.{self._count}"

    def _record(self, label: str, fields: dict[str, Any], job: str, on_failure: str = "") -> None:
        recorded = {
            name: fields[name]
            for name in ("locks", "pools", "retries", "after", "worktree", "skip_if")
            if name in fields
        }
        self._records.by_label[label] = Submitted(**recorded, jobs=[job], on_failure=on_failure)
        self._jobs.append(job)
        self._active.append(job)

    def _cancel(self, job: str) -> None:
        self._records.cancelled.add(job)
        with suppress(Conflict):  # it had ended
            self._request(cancel_job(job))

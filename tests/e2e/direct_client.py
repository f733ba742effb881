"""`rota run` as a background process whose output and exit code a test can wait for."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable
from typing import Any

from tests.e2e.rig import TIMEOUT, CommandResult, Rota, eventually, kill, shell_exit_code


class DirectClient:
    """One `rota run`. Reads its streams as they arrive, so that a test can wait for a text."""

    def __init__(self, rota: Rota, *words: str, **options: Any) -> None:
        self.rota = rota
        self.process = rota.spawn("run", *words, **options)
        self.pid = self.process.pid
        self.out = b""
        self.err = b""
        streams = {self.process.stdout: "out", self.process.stderr: "err"}
        self._open = {stream.fileno(): name for stream, name in streams.items() if stream is not None}

    def wait_for_stderr(self, text: str) -> None:
        """Wait until the text is on stderr."""
        self._wait_until(lambda: text.encode() in self.err, text)

    def wait_for_stdout(self, text: str) -> None:
        self._wait_until(lambda: text.encode() in self.out, text)

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def interrupt(self) -> None:
        self.send_signal(signal.SIGINT)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(TIMEOUT)

    def finish(self, code: int | None = 0) -> CommandResult:
        self._wait_until(lambda: not self._open, "the end of the streams")
        self.process.wait(TIMEOUT)
        self.close()
        output = CommandResult(
            shell_exit_code(self.process.returncode),
            self.out.decode(errors="replace"),
            self.err.decode(errors="replace"),
        )
        assert code is None or output.code == code, output
        return output

    def close(self) -> None:
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()
        self._open = {}

    def _wait_until(self, condition: Callable[[], bool], description: str) -> None:
        deadline = time.monotonic() + TIMEOUT
        while not condition():
            remaining = max(0.0, deadline - time.monotonic())
            ready = select.select(list(self._open), [], [], remaining)[0] if self._open else []
            assert ready, f"timed out waiting for {description!r}; stderr: {self.err!r}, stdout: {self.out[-200:]!r}"
            for descriptor in ready:
                data = os.read(descriptor, 1 << 16)
                if not data:
                    del self._open[descriptor]
                elif self._open[descriptor] == "out":
                    self.out += data
                else:
                    self.err += data


def list_reservations(rota: Rota) -> list[dict[str, Any]]:
    """Return the reservations that wait or run."""
    reservations: list[dict[str, Any]] = rota.api("GET", "/api/reservations").json()["reservations"]
    return reservations


def get_reservation(rota: Rota, name: str) -> dict[str, Any]:
    reservation: dict[str, Any] = rota.api("GET", f"/api/reservations/{name}").json()
    return reservation


def wait_for_reservation_end(rota: Rota, name: str) -> dict[str, Any]:
    """Return the reservation when it has ended."""
    reservation: dict[str, Any] = rota.api("GET", f"/api/reservations/{name}?wait=60").json()
    assert reservation["finished_at"] is not None, reservation
    return reservation


def wait_until_no_reservations(rota: Rota) -> None:
    eventually(lambda: not list_reservations(rota), description="no reservation left")


def kill_client(client: DirectClient) -> None:
    """Kill the client with SIGKILL, so that it cannot tell the scheduler."""
    kill(client.pid)
    client.process.wait(TIMEOUT)
    client.close()

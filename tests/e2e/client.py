"""`rota run` while it goes on: what it has said so far, and how it leaves."""

from __future__ import annotations

import os
import select
import signal
import time
from typing import Any

from e2e.rig import PATIENCE, Rota, Said, eventually, kill, shown


class Client:
    """One `rota run`. Its streams are read as they come, so that a test can wait for a word."""

    def __init__(self, rota: Rota, *words: str, **options: Any) -> None:
        self.rota = rota
        self.process = rota.begin("run", *words, **options)
        self.pid = self.process.pid
        self.out = b""
        self.err = b""
        streams = {self.process.stdout: "out", self.process.stderr: "err"}
        self._open = {stream.fileno(): name for stream, name in streams.items() if stream is not None}

    def says(self, text: str) -> None:
        """Wait until it has talked of this."""
        self._until(lambda: text.encode() in self.err, text)

    def prints(self, text: str) -> None:
        self._until(lambda: text.encode() in self.out, text)

    def send(self, number: int) -> None:
        os.kill(self.pid, number)

    def interrupt(self) -> None:
        self.send(signal.SIGINT)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE)

    def end(self, code: int | None = 0) -> Said:
        self._until(lambda: not self._open, "its end")
        self.process.wait(PATIENCE)
        self.close()
        said = Said(
            shown(self.process.returncode), self.out.decode(errors="replace"), self.err.decode(errors="replace")
        )
        assert code is None or said.code == code, said
        return said

    def close(self) -> None:
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()
        self._open = {}

    def _until(self, is_so: Any, what: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not is_so():
            left = max(0.0, deadline - time.monotonic())
            ready = select.select(list(self._open), [], [], left)[0] if self._open else []
            assert ready, f"{what!r} did not come; it said {self.err!r} and printed {self.out[-200:]!r}"
            for descriptor in ready:
                data = os.read(descriptor, 1 << 16)
                if not data:
                    del self._open[descriptor]
                elif self._open[descriptor] == "out":
                    self.out += data
                else:
                    self.err += data


def slots(rota: Rota) -> list[dict[str, Any]]:
    """Those that wait or run."""
    found: list[dict[str, Any]] = rota.api("GET", "/api/slots").json()["slots"]
    return found


def slot(rota: Rota, name: str) -> dict[str, Any]:
    shown: dict[str, Any] = rota.api("GET", f"/api/slots/{name}").json()
    return shown


def ended(rota: Rota, name: str) -> dict[str, Any]:
    """The slot when it has ended."""
    shown: dict[str, Any] = rota.api("GET", f"/api/slots/{name}?wait=60").json()
    assert shown["finished_at"] is not None, shown
    return shown


def all_free(rota: Rota) -> None:
    eventually(lambda: not slots(rota), what="no slot left")


def kill_client(client: Client) -> None:
    """As `kill -9` does: it can say nothing any more."""
    kill(client.pid)
    client.process.wait(PATIENCE)
    client.close()

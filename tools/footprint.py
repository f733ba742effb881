"""Count the source files that two commands execute, in the client, the scheduler and the supervisor together.

    python tools/footprint.py [--files]

A file counts if a function of it runs between the start of the command and the end of its effect.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

TRACING = Path(__file__).parent / "tracing"
COMMANDS: Mapping[str, Sequence[Sequence[str]]] = {
    "rota pause": [["pause"]],
    "rota submit -- true": [["submit", "--", "true"]],
}


class Footprint:
    """A scheduler whose processes record the files they execute."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._marker = directory / "marker"
        self._environ = {
            **os.environ,
            "PYTHONPATH": str(TRACING),
            "FOOTPRINT_DIRECTORY": str(directory),
            "ROTA_HOME": str(directory / "home"),
        }

    def rota(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "rota", *arguments]
        subprocess.run(command, env=self._environ, check=True, capture_output=True)

    def trace(self, commands: Sequence[Sequence[str]]) -> set[str]:
        """Return the files that these commands execute, once the scheduler runs and has started a job before."""
        self.rota("up")
        self.rota("submit", "--", "true")
        self.rota("wait", "job-1")
        self._marker.touch()
        for command in commands:
            self.rota(*command)
        self._wait_until_idle()
        self._marker.unlink()
        self.rota("down")
        recorded = [path.read_text().splitlines() for path in self._directory.glob("*.files")]
        return {file for files in recorded for file in files}

    def _wait_until_idle(self) -> None:
        """Wait for the end of the last job without a client of Rota, which would add its own files."""
        outcome = self._directory / "home" / "jobs" / "job-2" / "outcome.json"
        if (self._directory / "home" / "jobs" / "job-2").exists():
            subprocess.run(["sh", "-c", f"until [ -e {outcome} ]; do sleep 0.1; done"], check=True, timeout=60)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", action="store_true", help="print the files")
    options = parser.parse_args()
    for name, commands in COMMANDS.items():
        with tempfile.TemporaryDirectory() as directory:
            files = Footprint(Path(directory)).trace(commands)
        print(f"{len(files):7,}  files executed by `{name}`")
        if options.files:
            print("\n".join(f"         {file}" for file in sorted(files)))


if __name__ == "__main__":
    main()

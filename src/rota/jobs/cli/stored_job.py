"""Files of a job, for `rota show` and `rota logs` while the scheduler is stopped.

The scheduler writes `job.json` when a job starts and when it ends; the child process writes the logs. A job that has
not started has no files.
"""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

from rota.client.problem import NotRunning
from rota.client.requests.jobs import TERMINAL_STATUSES
from rota.errors import NotFound
from rota.ids import parse_job_id, parse_run_id
from rota.job_files import run_directory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rota.client.requests import Json
    from rota.home import Home


class StoredJob:
    """Files of a job."""

    def __init__(self, home: Home, job: str, error: NotRunning) -> None:
        """Open the files of a job. `error` is the connection error, which is raised again if the files do not help."""
        self.id = job
        self.directory = home.jobs / str(parse_job_id(job))
        if not self.directory.is_dir():
            raise NotRunning(
                f"{error.message}\n{job} has no files: it has not started, or it does not exist",
                has_stale_socket=error.has_stale_socket,
            ) from None
        self.error = error

    @property
    def note(self) -> str:
        return f"{self.error.message}; this is the content of {self.directory}"

    def record(self) -> Json:
        """Return the job as the scheduler last wrote it."""
        try:
            record: Json = json.loads((self.directory / "job.json").read_bytes())
        except (OSError, ValueError):
            raise NotRunning(
                f"{self.error.message}\n{self.directory} has no readable job.json;"
                f" `rota logs {self.id}` prints the output of the job",
                has_stale_socket=self.error.has_stale_socket,
            ) from None
        return record

    def is_open(self, record: Json) -> bool:
        """Return whether the job had not ended when the scheduler last wrote its record."""
        return record["status"] not in TERMINAL_STATUSES

    def unknown_end_note(self, record: Json) -> str:
        pid = record.get("pid")
        is_gone = pid is not None and not Path(f"/proc/{int(pid)}").exists()
        text = f"{self.id} was {record['status']} when the scheduler stopped; its end is not known yet"
        gone = f"; its process (pid {pid}) is gone" if is_gone else ""
        return f"{text}{gone}; `rota up` starts the scheduler, which records how it ended or continues it"

    def log(self, stream: str, run: str | None) -> StoredLog:
        return StoredLog(self._directory_of(run) / f"{stream}.log")

    def _directory_of(self, run: str | None) -> Path:
        """Return the directory of a run. Earlier runs of a rewound job have their own directories."""
        if run is None:
            return self.directory
        earlier = Path(run_directory(str(self.directory), parse_run_id(run)))
        if earlier.is_dir():
            return earlier
        if (self.record().get("run") or {}).get("id") == run:
            return self.directory
        raise NotFound(f"{self.directory} has no files of {run}; `rota show {self.id}` shows the last run")


class StoredLog:
    """Log file. The child may have replaced it by anything, so only a regular file is read."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def size(self) -> int:
        try:
            status = self._path.stat()
        except OSError:
            return 0
        return status.st_size if stat.S_ISREG(status.st_mode) else 0

    def read(self, offset: int, limit: int) -> bytes:
        if not self.size():
            return b""
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return b""
        try:
            return os.pread(descriptor, limit, offset)
        finally:
            os.close(descriptor)

"""Exit code of a command that waits for jobs."""

from __future__ import annotations

from collections.abc import Iterable

from rota.cli.terminal import print_notice
from rota.client.requests.job import TERMINAL_STATUSES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rota.client.requests import Json

TIMED_OUT = 124
UNKNOWN_EXIT = 125
"""Exit code for a failed job whose exit status is unknown."""

_STATUS_EXIT_CODES = {"COMPLETED": 0, "SKIPPED": 0, "CANCELLED": 143}


def exit_code(job: Json) -> int:
    """Return the exit code of the job, or the code of its status. Groups have no exit code of their own."""
    code = job.get("exit_code")
    if code is not None:
        return int(code)
    if "exit_code" in job and job["status"] == "FAILED":
        return UNKNOWN_EXIT
    return _STATUS_EXIT_CODES.get(job["status"], 1)


def first_failure(jobs: Iterable[Json]) -> int:
    """Return the first exit code that is not 0, in the order of the jobs."""
    return next((code for code in map(exit_code, jobs) if code), 0)


def warn_if_ended(job: Json) -> None:
    """Warn about a new job that has ended before it could start."""
    if job["status"] in TERMINAL_STATUSES:
        print_notice(
            f"warning: ended at once, without a run: {job['id']} {job['status']}: {job['reason']};"
            f" resolve that, then `rota rewind {job['id']}` queues it again"
        )

"""The exit code a job gives to the command that waited for it."""

from __future__ import annotations

from collections.abc import Iterable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rota.client.ask import Json

TIMED_OUT = 124

_WITHOUT_A_CODE = {"COMPLETED": 0, "SKIPPED": 0, "CANCELLED": 143}


def exit_code(job: Json) -> int:
    """The job's own code; one that never ran has none, and then its status decides."""
    code = job.get("exit_code")
    return int(code) if code is not None else _WITHOUT_A_CODE.get(job["status"], 1)


def first_failure(jobs: Iterable[Json]) -> int:
    """Of several jobs the first code that is not 0, in the order in which they were named."""
    return next((code for code in map(exit_code, jobs) if code), 0)

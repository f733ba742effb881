"""Chain of a job: the job and its retries."""

from __future__ import annotations

from rota.client.requests.job import TERMINAL_STATUSES, get_job
from rota.client.session import SchedulerSession

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rota.client.requests import Json


def wait_for_end(session: SchedulerSession, job: str) -> Json:
    """Wait without a limit until a job has ended, and return the job."""
    while True:
        response: Json = session.request_json(get_job(job, wait=30))
        if response["status"] in TERMINAL_STATUSES:
            return response


def next_in_chain(session: SchedulerSession, job: str) -> Json | None:
    """Return the job that retried this one, or None if it is the last of its chain."""
    response: Json = session.request_json(get_job(job, wait=0))
    if response["id"] == job:
        return None
    while response["retry_of"] not in (None, job):
        response = session.request_json(get_job(response["retry_of"]))
    return response

"""A job's chain: its retries, and its end."""

from __future__ import annotations

from rota.client.ask.job import TERMINAL, get_job
from rota.client.session import Session

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rota.client.ask import Json


def ended_job(session: Session, job: str) -> Json:
    """The job when it has ended, however long that takes."""
    while True:
        answer: Json = session.ask(get_job(job, wait=30))
        if answer["status"] in TERMINAL:
            return answer


def next_in_chain(session: Session, job: str) -> Json | None:
    """The job that retried this one; none while it is the last of its chain."""
    found: Json = session.ask(get_job(job, wait=0))
    if found["id"] == job:
        return None
    while found["retry_of"] not in (None, job):
        found = session.ask(get_job(found["retry_of"]))
    return found

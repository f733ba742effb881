"""What a submit answers is what anybody sees who looks right after it, also where nothing was looked up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec
import pytest

from harness import Scheduler
from rota.command.submission import Submission, Surroundings
from rota.command.submit import Answer, Submitted, submit
from rota.engine.work import Request, Work
from rota.ids import JobId
from rota.view.job import just_stored
from rota.wire.job import JobForm

AROUND = Surroundings(cwd="/", variables={"PATH": "/usr/bin:/bin"})


def answered(scheduler: Scheduler, *bodies: dict[str, Any]) -> list[JobForm]:
    """All in one turn."""
    answers: list[JobForm] = []

    def see(work: Work, answered: Sequence[Answer]) -> list[JobForm]:
        told = [one for one in answered if isinstance(one, Submitted)]
        new = {job.id: job for one in told for job in one.new}
        shown = just_stored(work, [one.jobs[0] for one in told], new, scheduler.sight)
        return [shown[one.jobs[0]] for one in told]

    def request(body: dict[str, Any]) -> Request[Answer]:
        wanted = [msgspec.convert({"command": ["true"], **body}, Submission)]
        return Request(partial(submit, wanted=wanted, around=AROUND, actor="me"), answers.append, see)

    scheduler.engine.turn([request(body) for body in bodies])
    return answers


BODIES: list[dict[str, Any]] = [
    {},
    {"name": "build", "type": "t", "params": {"a": [1]}, "priority": 3, "timeout": "5m", "cwd": "/tmp"},
    {"flow": "f", "pools": {"resource/ollama": 1}},
    {"locks": [{"key": "repo"}]},
    {"delay": "1h"},
    {"after": [{"job": "job-1"}]},
]


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("size", [0, 1, 5])
def test_the_answer_is_what_a_look_finds(
    make_scheduler: Callable[..., Scheduler], body: dict[str, Any], size: int
) -> None:
    scheduler = make_scheduler(**{"global": size})
    first = scheduler.submit(flow="f")
    (form,) = answered(scheduler, body)
    assert form == scheduler.show(JobId(first + 1))


def test_a_job_under_an_open_breaker_is_answered_so(scheduler: Scheduler) -> None:
    scheduler.set_breaker(failures=1)
    scheduler.engine.settings = scheduler.settings
    failed = scheduler.submit(type="t")
    scheduler.start(failed)
    scheduler.end(failed, 1)
    (form,) = answered(scheduler, {"type": "t"})
    assert form == scheduler.show(JobId(failed + 1))
    assert form.wait is not None
    assert form.wait.detail.startswith("breaker open for type/t until")


def test_many_in_one_turn_are_each_answered_their_own(scheduler: Scheduler) -> None:
    forms = answered(scheduler, *BODIES)
    assert [form.id for form in forms] == [f"job-{n}" for n in range(1, len(BODIES) + 1)]
    for n, form in enumerate(forms, 1):
        assert form == scheduler.show(JobId(n))

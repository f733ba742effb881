"""Template steps, and a check of the snapshot that a job keeps of its template (INV-005).

The params of a job are computed when it is stored: the current defaults of the template, overridden by its schedule,
overridden by the request. A retry keeps the params of the job before it. Later only an edit changes them, with the
stored state of the template.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET

from rota.jobs.edit import EditRequest
from rota.jobs.submission import DefaultEnvironment, Submission
from rota.jobs.submit import submit
from rota.kernel.events import Event
from rota.templates import commands
from rota.templates.expand import expand_all
from tests.harness import Scheduler, SqlRunner

if TYPE_CHECKING:
    from tests.sim.judge import Judge

NAMES = "pq"
ENVIRONMENT = DefaultEnvironment(cwd="/", variables={"PATH": "/usr/bin:/bin"})
COMMANDS = (["echo", "{n}", "{m}"], ["echo", "{m}{m}"], ["true"])


class ExpectedSpec(msgspec.Struct, frozen=True):
    """Expected params and command of a job, with the command and the declared params of its template."""

    params: Mapping[str, Any]
    command: Sequence[str]
    command_template: Sequence[str] | None = None
    declared: tuple[str, ...] = ()

    def with_params(self, params: Mapping[str, Any]) -> ExpectedSpec:
        template = self.command_template
        command = self.command if template is None else [self._fill_in(text, params) for text in template]
        return msgspec.structs.replace(self, params=params, command=command)

    def _fill_in(self, text: str, params: Mapping[str, Any]) -> str:
        for name in self.declared:
            text = text.replace(f"{{{name}}}", str(params.get(name)))
        return text

    def apply_edit(self, edit: EditRequest) -> ExpectedSpec:
        if edit.command is not UNSET:
            return ExpectedSpec(self.params, edit.command)
        params = self.params if edit.params is UNSET else edit.params
        return self.with_params({**params, **({} if edit.set_params is UNSET else edit.set_params)})


class TemplateChecker:
    def __init__(self, run_sql: SqlRunner) -> None:
        self._run_sql = run_sql
        self._jobs: dict[int, ExpectedSpec] = {}
        self._templates: dict[int, Any] = {}
        self._schedules: dict[int, Any] = {}
        self._params: Mapping[str, Any] = {}
        self._edit: EditRequest | None = None

    @contextmanager
    def expecting_params(self, params: Mapping[str, Any]) -> Iterator[None]:
        """Expect a submit with these params."""
        self._params = params
        try:
            yield
        finally:
            self._params = {}

    @contextmanager
    def expecting_edit(self, edit: EditRequest) -> Iterator[None]:
        self._edit = edit
        try:
            yield
        finally:
            self._edit = None

    def at_commit(self, events: Sequence[Event]) -> None:
        """Check the commit with the templates and schedules from before it."""
        for event in events:
            if event.job is not None and event.kind == "job.submitted":
                self._jobs[event.job] = self._expected_spec(event.job)
            elif event.job is not None and event.kind == "job.edited":
                assert self._edit is not None, f"unexpected edit of job-{event.job}"
                self._jobs[event.job] = self._jobs[event.job].apply_edit(self._edit)
        if any(event.kind.startswith(("template.", "schedule.")) for event in events):
            self._templates = {n: json.loads(body) for n, body in self._run_sql("SELECT id, body FROM template")}
            self._schedules = {n: json.loads(body) for n, body in self._run_sql("SELECT id, body FROM schedule")}

    def _expected_spec(self, job: int) -> ExpectedSpec:
        retry_of, schedule, template = self._run_sql(
            f"SELECT retry_of, schedule, template FROM job JOIN spec ON spec.id = job.spec WHERE job.id = {job}"
        )[0]
        if retry_of is not None:
            return self._jobs[retry_of]
        request = {} if schedule is None else self._schedules[schedule]
        params = {**request.get("params", {}), **self._params}
        if template is None:
            return ExpectedSpec(params, ["true"])
        body = self._templates[template]
        defaults = body.get("default_params", {})
        return ExpectedSpec({}, (), body["command"], tuple(defaults)).with_params({**defaults, **params})

    def check(self) -> None:
        for job, params, command in self._run_sql(
            "SELECT job.id, spec.params, spec.command FROM job JOIN spec ON spec.id = job.spec"
        ):
            expected, stored = self._jobs[job], (json.loads(params), json.loads(command))
            assert stored == (expected.params, list(expected.command)), f"job-{job} is {stored}, expected {expected}"


class TemplateSteps(Scheduler):
    judge: Judge

    def random_params(self, rng: random.Random) -> dict[str, str]:
        return {name: f"{rng.random():.3f}" for name in rng.sample("nmo", rng.choice((0, 1, 2)))}

    def choose_template(self, rng: random.Random) -> str:
        """Return the name of an existing template. Create one if there is none."""
        names, name = sorted(self.reader.templates.names()), rng.choice(NAMES)
        if not names:
            self.add_template(name, rng)
        return rng.choice(names or [name])

    def add_template(self, name: str, rng: random.Random) -> None:
        document = {"name": name, "command": rng.choice(COMMANDS), "default_params": self.random_params(rng)}
        self.run_request(
            lambda tx: commands.add_template(tx, *commands.parse_template_document(document), actor="tester")
        )

    def do_template(self, rng: random.Random) -> None:
        name, params = rng.choice(NAMES), self.random_params(rng)
        changes: list[dict[str, Any]] = [
            {"default_params": params},
            {"set_default_params": params},
            {"command": rng.choice(COMMANDS)},
        ]
        change = rng.choice(changes)
        match rng.choice(("add", "change", "change", "change", "archive", "unarchive")):
            case "add":
                self.add_template(name, rng)
            case "change":
                existing = self.choose_template(rng)
                self.run_request(
                    lambda tx: commands.change_template(tx, existing, change, is_replacement=False, actor="tester")
                )
            case "archive":
                existing = self.choose_template(rng)
                self.run_request(lambda tx: commands.archive_template(tx, existing, actor="tester"))
            case _:
                self.run_request(lambda tx: commands.unarchive_template(tx, name, actor="tester"))

    def do_submit_from_template(self, rng: random.Random) -> None:
        """Submit one or two jobs of templates."""
        for _ in range(rng.choice((1, 1, 2))):
            params = self.random_params(rng)
            submission = Submission(
                template=self.choose_template(rng),
                params=params,
                priority=rng.choice((None, 5)),
                retries=1,
                delay=rng.choice((None, None, "7s")),
            )
            expanded = expand_all(self.reader, [submission])
            with self.judge.templates.expecting_params(params):
                outcome = self.run_request(
                    partial(
                        submit,
                        submissions=expanded.submissions,
                        default_environment=ENVIRONMENT,
                        actor="tester",
                        origins=expanded.origins,
                    )
                )
            self.judge.submits.record_response(outcome, {})

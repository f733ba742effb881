"""Templates in the simulation, and what a job keeps of one (INV-005).

What a job is asked is worked out when it is stored: the template's defaults as they are then, over them what its
schedule says, over them what was asked for; a retry is asked what the one before it was. From then on only an edit
changes it, and that by what the template was then.
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

from harness import Raw, Scheduler
from rota.command import template as templates
from rota.command.edit import Edit
from rota.command.expand import expand_all
from rota.command.submission import Submission, Surroundings
from rota.command.submit import submit
from rota.core.event import Event

if TYPE_CHECKING:
    from sim.judge import Judge

NAMES = "pq"
AROUND = Surroundings(cwd="/", variables={"PATH": "/usr/bin:/bin"})
COMMANDS = (["echo", "{n}", "{m}"], ["echo", "{m}{m}"], ["true"])


class Asked(msgspec.Struct, frozen=True):
    """What a job is asked, and what its template had for a command, with its places."""

    params: Mapping[str, Any]
    command: Sequence[str]
    places: Sequence[str] | None = None
    declared: tuple[str, ...] = ()

    def with_params(self, params: Mapping[str, Any]) -> Asked:
        command = self.command if self.places is None else [self._filled(text, params) for text in self.places]
        return msgspec.structs.replace(self, params=params, command=command)

    def _filled(self, text: str, params: Mapping[str, Any]) -> str:
        for name in self.declared:
            text = text.replace(f"{{{name}}}", str(params.get(name)))
        return text

    def edited(self, edit: Edit) -> Asked:
        if edit.command is not UNSET:
            return Asked(self.params, edit.command)
        params = self.params if edit.params is UNSET else edit.params
        return self.with_params({**params, **({} if edit.set_params is UNSET else edit.set_params)})


class Snapshots:
    def __init__(self, raw: Raw) -> None:
        self._raw = raw
        self._jobs: dict[int, Asked] = {}
        self._templates: dict[int, Any] = {}
        self._schedules: dict[int, Any] = {}
        self._params: Mapping[str, Any] = {}
        self._edit: Edit | None = None

    @contextmanager
    def asking(self, params: Mapping[str, Any]) -> Iterator[None]:
        """Somebody submits with these."""
        self._params = params
        try:
            yield
        finally:
            self._params = {}

    @contextmanager
    def editing(self, edit: Edit) -> Iterator[None]:
        self._edit = edit
        try:
            yield
        finally:
            self._edit = None

    def at_commit(self, events: Sequence[Event]) -> None:
        """By the templates and schedules as they were before it."""
        for event in events:
            if event.job is not None and event.kind == "job.submitted":
                self._jobs[event.job] = self._asked(event.job)
            elif event.job is not None and event.kind == "job.edited":
                assert self._edit is not None, f"nobody edits job-{event.job}"
                self._jobs[event.job] = self._jobs[event.job].edited(self._edit)
        if any(event.kind.startswith(("template.", "schedule.")) for event in events):
            self._templates = {n: json.loads(body) for n, body in self._raw("SELECT id, body FROM template")}
            self._schedules = {n: json.loads(body) for n, body in self._raw("SELECT id, body FROM schedule")}

    def _asked(self, job: int) -> Asked:
        retry_of, schedule, template = self._raw(
            f"SELECT retry_of, schedule, template FROM job JOIN spec ON spec.id = job.spec WHERE job.id = {job}"
        )[0]
        if retry_of is not None:
            return self._jobs[retry_of]
        wanted = {} if schedule is None else self._schedules[schedule]
        params = {**wanted.get("params", {}), **self._params}
        if template is None:
            return Asked(params, ["true"])
        body = self._templates[template]
        defaults = body.get("default_params", {})
        return Asked({}, (), body["command"], tuple(defaults)).with_params({**defaults, **params})

    def check(self) -> None:
        for job, params, command in self._raw(
            "SELECT job.id, spec.params, spec.command FROM job JOIN spec ON spec.id = job.spec"
        ):
            asked, found = self._jobs[job], (json.loads(params), json.loads(command))
            assert found == (asked.params, list(asked.command)), f"job-{job} is {found}, and was asked {asked}"


class TemplateVerbs(Scheduler):
    judge: Judge

    def params(self, chance: random.Random) -> dict[str, str]:
        return {name: f"{chance.random():.3f}" for name in chance.sample("nmo", chance.choice((0, 1, 2)))}

    def some_template(self, chance: random.Random) -> str:
        """One that there is; if there is none, it is made."""
        names, name = sorted(self.reader.template_names()), chance.choice(NAMES)
        if not names:
            self.add_template(name, chance)
        return chance.choice(names or [name])

    def add_template(self, name: str, chance: random.Random) -> None:
        wanted = {"name": name, "command": chance.choice(COMMANDS), "default_params": self.params(chance)}
        self.do(lambda work: templates.add(work, *templates.parse_new(wanted), actor="tester"))

    def do_template(self, chance: random.Random) -> None:
        name, params = chance.choice(NAMES), self.params(chance)
        changes: list[dict[str, Any]] = [
            {"default_params": params}, {"set_default_params": params}, {"command": chance.choice(COMMANDS)},
        ]  # fmt: skip
        change = chance.choice(changes)
        match chance.choice(("add", "change", "change", "change", "archive", "unarchive")):
            case "add":
                self.add_template(name, chance)
            case "change":
                there = self.some_template(chance)
                self.do(lambda work: templates.change(work, there, change, is_whole=False, actor="tester"))
            case "archive":
                there = self.some_template(chance)
                self.do(lambda work: templates.archive(work, there, actor="tester"))
            case _:
                self.do(lambda work: templates.unarchive(work, name, actor="tester"))

    def do_make(self, chance: random.Random) -> None:
        """A job of a template, or a few."""
        for _ in range(chance.choice((1, 1, 2))):
            params = self.params(chance)
            wanted = Submission(
                template=self.some_template(chance), params=params, priority=chance.choice((None, 5)), retries=1,
                delay=chance.choice((None, None, "7s")),
            )  # fmt: skip
            made = expand_all(self.reader, [wanted])
            with self.judge.snapshots.asking(params):
                told = self.do(partial(submit, wanted=made.wanted, around=AROUND, actor="tester", origins=made.origins))
            self.judge.accepted.told(told, {})

"""Submit: what is refused leaves no trace, repeats are dropped, warnings warn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from harness import Raw, Scheduler
from rota.command.submission import Submission, Surroundings
from rota.command.submit import Answer, Submitted, missing_things, needs_of, submit
from rota.engine.work import Work
from rota.errors import InvalidInput, NotFound, RotaError
from rota.wire.job import EdgeForm

LONG = "x" * 201
BAD: list[tuple[str, dict[str, Any], type[RotaError], str]] = [
    ("empty command", {"command": []}, InvalidInput, "the command is empty; name a program"),
    ("empty program", {"command": ["", "x"]}, InvalidInput, "the command is empty; name a program"),
    ("blank program", {"command": [" \t"]}, InvalidInput, "the command is empty; name a program"),
    ("NUL in command", {"command": ["echo", "a\x00b"]}, InvalidInput, "the command has a NUL character"),
    ("unknown after", {"after": [{"job": "job-99"}]}, NotFound, "^unknown --after job id: job-99$"),
    ("after itself", {"after": [{"job": "job-2"}]}, InvalidInput, "^invalid --after self dependency: job-2$"),
    ("after no id", {"after": [{"job": "99"}]}, InvalidInput, "not a job id: '99'; a job id looks like job-24"),
    ("after a run", {"after": [{"job": "run-1"}]}, InvalidInput, "not a job id: 'run-1'"),
    ("delay", {"delay": "5"}, InvalidInput, "not a duration: '5'; write it like 300ms"),
    ("negative delay", {"delay": "-5s"}, InvalidInput, "not a duration"),
    ("endless delay", {"delay": "9999d"}, InvalidInput, "duration too long"),
    ("timeout", {"timeout": "soon"}, InvalidInput, "not a duration: 'soon'"),
    ("no timeout", {"timeout": "0s"}, InvalidInput, "timeout must be longer than nothing; leave it out"),
    ("idle timeout", {"idle_timeout": "0ms"}, InvalidInput, "idle_timeout must be longer than nothing"),
    (
        "pool kind",
        {"pools": {"ollama": 1}},
        InvalidInput,
        "not a pool name: 'ollama'; a pool is global or one of type/",
    ),
    ("pool wildcard", {"pools": {"flow/*": 1}}, InvalidInput, "not a pool name"),
    ("pool without name", {"pools": {"flow/": 1}}, InvalidInput, "not a pool name"),
    ("pool with space", {"pools": {"resource/a b": 1}}, InvalidInput, "not a pool name"),
    (
        "weight nought",
        {"pools": {"resource/gpu": 0}},
        InvalidInput,
        "draws at least 1 and at most 1000000, not 0",
    ),
    ("weight negative", {"pools": {"global": -1}}, InvalidInput, "draws at least 1"),
    ("weight large", {"pools": {"resource/gpu": 10**7}}, InvalidInput, "at most 1000000"),
    ("priority high", {"priority": 1_000_001}, InvalidInput, "priority 1000001 is out of range; it goes from"),
    ("priority low", {"priority": -1_000_001}, InvalidInput, "out of range"),
    ("relative cwd", {"cwd": "here"}, InvalidInput, "cwd must be an absolute path, not 'here'"),
    ("empty cwd", {"cwd": ""}, InvalidInput, "cwd must be an absolute path"),
    ("NUL in cwd", {"cwd": "/a\x00b"}, InvalidInput, "cwd must be an absolute path"),
    ("empty variable", {"env": {"": "1"}}, InvalidInput, "not a usable environment variable: ''"),
    ("variable with =", {"env": {"A=B": "1"}}, InvalidInput, "not a usable environment variable: 'A=B'"),
    ("NUL in variable", {"env": {"A": "\x00"}}, InvalidInput, "not a usable environment variable: 'A'"),
    ("NUL in its name", {"env": {"\x00": "a"}}, InvalidInput, "not a usable environment variable"),
    ("flow with space", {"flow": "a b"}, InvalidInput, "not a usable flow: 'a b'; use 1 to 200 characters"),
    ("flow wildcard", {"flow": "*"}, InvalidInput, "not a usable flow"),
    ("empty type", {"type": ""}, InvalidInput, "not a usable type"),
    ("long target", {"target": LONG}, InvalidInput, "not a usable target"),
    ("empty lock", {"locks": [{"key": ""}]}, InvalidInput, "not a usable lock key: ''; use 1 to 200 characters"),
    ("long lock", {"locks": [{"key": LONG}]}, InvalidInput, "not a usable lock key"),
    ("NUL in lock", {"locks": [{"key": "\x00"}]}, InvalidInput, "not a usable lock key"),
    ("empty unique", {"unique": ""}, InvalidInput, "not a usable unique key: ''; use 1 to 200 characters"),
    ("long unique", {"unique": LONG}, InvalidInput, "not a usable unique key"),
    ("NUL in unique", {"unique": "a\x00b"}, InvalidInput, "not a usable unique key"),
    ("phase without flow", {"phase": "p"}, InvalidInput, "phase p is one of a flow: name the `flow` too"),
    (
        "parallel phase without flow",
        {"phase": "p", "parallelizable": True},
        InvalidInput,
        "phase p is one of a flow: name the `flow` too",
    ),
    ("phase with space", {"phase": "a b", "flow": "f"}, InvalidInput, "not a usable phase: 'a b'; use 1 to 200"),
    ("phase with /", {"phase": "a/b", "flow": "f"}, InvalidInput, "not a usable phase: 'a/b'.*and no / at all"),
    ("empty phase", {"phase": "", "flow": "f"}, InvalidInput, "not a usable phase"),
    ("NUL in name", {"name": "a\x00b"}, InvalidInput, "name"),
    ("NUL in skip_if", {"skip_if": "a\x00b"}, InvalidInput, "skip_if"),
]


@pytest.fixture
def busy(scheduler: Scheduler) -> Scheduler:
    """Job 1 runs."""
    scheduler.submit()
    return scheduler


def _submit(work: Work, wanted: list[Submission], around: Surroundings) -> Answer:
    return submit(work, wanted, around, actor="me", warnings=missing_things(needs_of(wanted, around)))


def ask(scheduler: Scheduler, **body: Any) -> Submitted:
    wanted = msgspec.convert({"command": ["true"], **body}, Submission)
    around = Surroundings(cwd="/", variables={"PATH": "/usr/bin:/bin", "OWN": "1"})
    told: Submitted = scheduler.do(lambda work: _submit(work, [wanted], around))
    return told


def ask_batch(scheduler: Scheduler, *bodies: dict[str, Any]) -> Submitted:
    wanted = [msgspec.convert({"command": ["true"], **body}, Submission) for body in bodies]
    around = Surroundings(cwd="/", variables={"PATH": "/usr/bin:/bin"})
    told: Submitted = scheduler.do(lambda work: _submit(work, wanted, around))
    return told


@pytest.mark.parametrize(("body", "kind", "message"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
def test_bad_input_is_refused_by_name_and_leaves_no_trace(
    busy: Scheduler, raw: Raw, body: dict[str, Any], kind: type[RotaError], message: str
) -> None:
    tables = ("job", "spec", "edge", "lock", "surroundings", "lane", "event", "idempotency", "sequence")
    before = [raw(f"SELECT * FROM {table}") for table in tables]
    with pytest.raises(kind, match=message):
        ask(busy, **body)
    assert [raw(f"SELECT * FROM {table}") for table in tables] == before
    assert busy.engine.trouble is None


@pytest.mark.parametrize(
    "body",
    [
        {"comand": ["true"]},
        {"after": [{"job": "job-1", "polcy": "failed"}]},
        {"after": [{"job": "job-1", "policy": "sometimes"}]},
        {"locks": [{"key": "k", "mode": "mostly"}]},
        {"priority": "high"},
        {"priority": 1.5},
        {"pools": {"global": "1"}},
        {"env": {"A": 1}},
        {"command": "true"},
    ],
)
def test_the_form_itself_refuses_unknown_fields_and_wrong_types(body: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"command": ["true"], **body} if body else body, Submission)


def test_the_edges_of_what_is_allowed_are_accepted(busy: Scheduler) -> None:
    for body in (
        {"priority": 1_000_000},
        {"priority": -1_000_000},
        {"type": "x" * 200},
        {"locks": [{"key": "x" * 200}]},
        {"locks": [{"key": "with space and ä"}]},
        {"unique": "with space and ä"},
        {"unique": "x" * 200},
        {"phase": "x" * 200, "flow": "y" * 200},
        {"parallelizable": True},
        {"pools": {"resource/a": 1_000_000}},
        {"delay": "3650d"},
        {"delay": "0s"},
        {"timeout": "0.001ms"},
        {"command": ["echo", ""]},
        {"env": {"EMPTY": ""}},
        {"name": "any name, ä\n"},
        {"params": {"deep": [{"a": None}], "nul": "a\u0000b"}},
    ):
        assert ask(busy, **body).jobs


def test_a_delay_of_nothing_is_none(busy: Scheduler) -> None:
    job = ask(busy, delay="0s").jobs[0]
    assert busy.job(job).not_before is None


def test_repeats_of_an_edge_are_dropped_and_the_order_is_kept(busy: Scheduler) -> None:
    second = ask(busy).jobs[0]
    job = ask(
        busy,
        after=[
            {"job": f"job-{second}"},
            {"job": "job-1"},
            {"job": f"job-{second}", "policy": "success"},
            {"job": "job-1", "policy": "finished"},
            {"job": "job-1"},
        ],
    ).jobs[0]
    assert busy.show(job).after == [
        EdgeForm(job=f"job-{second}", policy="success"),
        EdgeForm(job="job-1", policy="success"),
        EdgeForm(job="job-1", policy="finished"),
    ]


@pytest.mark.parametrize(
    ("body", "warnings"),
    [
        ({}, []),
        ({"command": ["/bin/sh"]}, []),
        ({"command": ["no-such-program"]}, ["program not found (yet): no-such-program"]),
        ({"command": ["/bin/no-such-program"]}, ["program not found (yet): /bin/no-such-program"]),
        ({"command": ["bin/sh"]}, []),
        ({"command": ["tmp/sh"]}, ["program not found (yet): tmp/sh"]),
        ({"cwd": "/no/such/place"}, ["the working directory /no/such/place does not exist (yet)"]),
        ({"env": {"PATH": "/nowhere"}}, ["program not found (yet): true"]),
        (
            {"pools": {"resource/ollama": 2}},
            ["pool resource/ollama has size 1, the job draws 2: it cannot start until the pool grows"],
        ),
        (
            {"pools": {"resource/gpu": 1}},
            ["pool resource/gpu has no limit: set one with `rota pool set resource/gpu N`"],
        ),
        ({"flow": "any", "type": "any", "target": "any"}, []),
        ({"pools": {"global": 1}}, []),
        ({"pools": {"global": 2}}, ["pool global has size 1, the job draws 2: it cannot start until the pool grows"]),
    ],
)
def test_what_may_not_work_is_accepted_with_a_warning(
    busy: Scheduler, body: dict[str, Any], warnings: list[str]
) -> None:
    assert ask(busy, **body).warnings == warnings


def test_a_program_is_looked_for_from_the_working_directory(busy: Scheduler, tmp_path: Path) -> None:
    program = tmp_path / "tool"
    program.write_text("#!/bin/sh\n")
    assert ask(busy, command=["./tool"], cwd=str(tmp_path)).warnings == ["program not executable (yet): ./tool"]
    assert ask(busy, command=["./other"], cwd=str(tmp_path)).warnings == ["program not found (yet): ./other"]
    program.chmod(0o755)
    assert ask(busy, command=["./tool"], cwd=str(tmp_path)).warnings == []


@pytest.mark.parametrize(
    ("body", "variables"),
    [
        ({}, {"PATH": "/usr/bin:/bin", "OWN": "1"}),
        ({"env": {"OWN": "2", "MORE": "3"}}, {"PATH": "/usr/bin:/bin", "OWN": "2", "MORE": "3"}),
        ({"env": {"MORE": "3"}, "inherit_env": False}, {"MORE": "3"}),
    ],
)
def test_the_environment_goes_on_top_of_the_schedulers_own_or_alone(
    busy: Scheduler, body: dict[str, Any], variables: dict[str, str]
) -> None:
    job = busy.job(ask(busy, **body).jobs[0])
    assert busy.session.variables(job.spec.surroundings) == variables


def test_who_submitted_it_is_in_the_event(busy: Scheduler) -> None:
    job = ask(busy).jobs[0]
    assert [(event.kind, event.actor, event.cause) for event in busy.events if event.job == job] == [
        ("job.submitted", "me", "submit")
    ]


def test_a_batch_names_its_own_members_and_is_stored_whole(busy: Scheduler) -> None:
    plan, build, merge = ask_batch(
        busy,
        {"local": "plan"},
        {"local": "build", "after": [{"job": "plan"}, {"job": "job-1", "policy": "finished"}]},
        {"after": [{"job": "build"}, {"job": "plan"}]},
    ).jobs
    assert busy.show(merge).after == [
        EdgeForm(job=f"job-{build}", policy="success"),
        EdgeForm(job=f"job-{plan}", policy="success"),
    ]
    assert busy.drain() == [1, plan, build, merge]


def test_a_batch_may_name_a_member_that_comes_later(busy: Scheduler) -> None:
    last, first = ask_batch(busy, {"after": [{"job": "b"}]}, {"local": "b"}).jobs
    assert busy.drain() == [1, first, last]


@pytest.mark.parametrize(
    ("bodies", "kind", "message"),
    [
        ([{}, {"command": []}], InvalidInput, "the command is empty"),
        ([{}, {"after": [{"job": "job-99"}]}], NotFound, "^unknown --after job id: job-99$"),
        ([{}, {"after": [{"job": "nobody"}]}], RotaError, "nobody"),
        (
            [{"local": "a", "after": [{"job": "b"}]}, {"local": "b", "after": [{"job": "a"}]}],
            InvalidInput,
            r"^invalid --after cycle: a -> b -> a$|^invalid --after cycle: b -> a -> b$",
        ),
        ([{"local": "a", "after": [{"job": "a"}]}], InvalidInput, "^invalid --after self dependency: a$"),
        ([{"after": [{"job": "job-2"}]}], InvalidInput, "^invalid --after self dependency: job-2$"),
        ([{"local": "a"}, {"local": "a"}], InvalidInput, "two jobs are called 'a'"),
        ([{"local": "job-5"}], InvalidInput, "not a usable local name"),
        ([{"local": ""}], InvalidInput, "not a usable local name"),
    ],
)
def test_a_batch_is_refused_whole(
    busy: Scheduler, raw: Raw, bodies: list[dict[str, Any]], kind: type[RotaError], message: str
) -> None:
    with pytest.raises(kind, match=message):
        ask_batch(busy, *bodies)
    assert raw("SELECT count(*) FROM job") == [(1,)]
    assert raw("SELECT count(*) FROM idempotency") == [(0,)]
    assert busy.submit() == 2, "no number was used"


def test_a_warning_is_said_once_for_a_batch(busy: Scheduler) -> None:
    told = ask_batch(busy, {"command": ["nope"]}, {"command": ["nope"]}, {"pools": {"resource/gpu": 1}})
    assert told.warnings == [
        "program not found (yet): nope",
        "pool resource/gpu has no limit: set one with `rota pool set resource/gpu N`",
    ]


def test_what_no_file_system_has_room_for_is_said_to_be_missing() -> None:
    for cwd, program in (("/" + "x" * 4000, "true"), ("/", "./" + "x" * 4000)):
        (said,) = missing_things(frozenset({(cwd, program, "/bin")}))
        assert said.endswith("cannot be looked for: File name too long"), said
        assert len(said) < 300

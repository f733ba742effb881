"""Submit: a refused submit changes nothing, repeats are dropped, and doubtful values have warnings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from rota.engine.transaction import Transaction
from rota.errors import InvalidInput, NotFound, RotaError
from rota.jobs.preflight import check_repository, parse_inputs
from rota.jobs.schemas import Predecessor
from rota.jobs.submission import DefaultEnvironment, Submission
from rota.jobs.submit import AcceptedSubmit, SubmitOutcome, collect_programs, find_missing_programs, submit
from tests.harness import Scheduler, SqlRunner

LONG_NAME = "x" * 201
INVALID_SUBMITS: list[tuple[str, dict[str, Any], type[RotaError], str]] = [
    ("empty command", {"command": []}, InvalidInput, "the command is empty; name a program"),
    ("empty program", {"command": ["", "x"]}, InvalidInput, "the command is empty; name a program"),
    ("blank program", {"command": [" \t"]}, InvalidInput, "the command is empty; name a program"),
    ("NUL in command", {"command": ["echo", "a\x00b"]}, InvalidInput, "the command contains a NUL character"),
    ("line break in name", {"name": "a\nb"}, InvalidInput, r"name 'a\\nb' has a line break; write it on one line"),
    ("line break in a variable", {"env": {"A\nB": "1"}}, InvalidInput, r"variable 'A\\nB' has a line break"),
    ("line break in a param", {"params": {"a\nb": "1"}}, InvalidInput, r"param 'a\\nb' has a line break"),
    ("line separator in name", {"name": "a\u2028b"}, InvalidInput, "has a line break"),
    (
        "line break in key",
        {"unique": "a\rb"},
        InvalidInput,
        "not a usable unique key: .* use 1 to 200 characters on one",
    ),
    (
        "line break in lock",
        {"locks": [{"key": "a\nb"}]},
        InvalidInput,
        "not a usable lock key: .* characters on one line",
    ),
    ("unknown after", {"after": [{"job": "job-99"}]}, NotFound, r"^no such job: job-99 \(--after\); "),
    ("after itself", {"after": [{"job": "job-2"}]}, InvalidInput, "^invalid --after self dependency: job-2$"),
    ("after no id", {"after": [{"job": "99"}]}, InvalidInput, "not a job id: '99'; a job id looks like job-24"),
    ("after a run", {"after": [{"job": "run-1"}]}, InvalidInput, "not a job id: 'run-1'"),
    ("delay", {"delay": "5"}, InvalidInput, "not a duration: '5'; write it like 300ms"),
    ("negative delay", {"delay": "-5s"}, InvalidInput, "not a duration"),
    ("endless delay", {"delay": "9999d"}, InvalidInput, "duration too long"),
    ("timeout", {"timeout": "soon"}, InvalidInput, "not a duration: 'soon'"),
    ("no timeout", {"timeout": "0s"}, InvalidInput, "timeout must be longer than zero; leave it out"),
    ("idle timeout", {"idle_timeout": "0ms"}, InvalidInput, "idle_timeout must be longer than zero"),
    (
        "pool kind",
        {"pools": {"ollama": 1}},
        InvalidInput,
        "not a pool name: 'ollama'; a pool is global or one of type/",
    ),
    ("pool wildcard", {"pools": {"flow/*": 1}}, InvalidInput, "not a pool name"),
    ("pool without name", {"pools": {"flow/": 1}}, InvalidInput, "not a pool name"),
    ("pool with space", {"pools": {"resource/a b": 1}}, InvalidInput, "not a pool name"),
    ("weight zero", {"pools": {"resource/gpu": 0}}, InvalidInput, "weight 0 is out of range; use 1 to 1000000"),
    ("weight negative", {"pools": {"global": -1}}, InvalidInput, "weight -1 is out of range"),
    (
        "weight large",
        {"pools": {"resource/gpu": 10**7}},
        InvalidInput,
        "weight 10000000 is out of range; use 1 to 1000000",
    ),
    (
        "priority high",
        {"priority": 1_000_001},
        InvalidInput,
        "priority 1000001 is out of range; use -1000000 to 1000000",
    ),
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
    ("long target", {"target": LONG_NAME}, InvalidInput, "not a usable target"),
    ("empty lock", {"locks": [{"key": ""}]}, InvalidInput, "not a usable lock key: ''; use 1 to 200 characters"),
    ("long lock", {"locks": [{"key": LONG_NAME}]}, InvalidInput, "not a usable lock key"),
    ("NUL in lock", {"locks": [{"key": "\x00"}]}, InvalidInput, "not a usable lock key"),
    ("empty unique", {"unique": ""}, InvalidInput, "not a usable unique key: ''; use 1 to 200 characters"),
    ("long unique", {"unique": LONG_NAME}, InvalidInput, "not a usable unique key"),
    ("NUL in unique", {"unique": "a\x00b"}, InvalidInput, "not a usable unique key"),
    ("phase without flow", {"phase": "p"}, InvalidInput, "phase p needs a flow; set `flow` too"),
    (
        "parallel phase without flow",
        {"phase": "p", "parallelizable": True},
        InvalidInput,
        "phase p needs a flow; set `flow` too",
    ),
    ("phase with space", {"phase": "a b", "flow": "f"}, InvalidInput, "not a usable phase: 'a b'; use 1 to 200"),
    ("phase with /", {"phase": "a/b", "flow": "f"}, InvalidInput, "not a usable phase: 'a/b'.*and no / at all"),
    ("empty phase", {"phase": "", "flow": "f"}, InvalidInput, "not a usable phase"),
    ("NUL in name", {"name": "a\x00b"}, InvalidInput, "name"),
    ("NUL in skip_if", {"skip_if": "a\x00b"}, InvalidInput, "skip_if"),
]


@pytest.fixture
def busy_scheduler(scheduler: Scheduler) -> Scheduler:
    """Scheduler at capacity, with job 1 running."""
    scheduler.submit()
    return scheduler


def _submit(tx: Transaction, request: list[Submission], environment: DefaultEnvironment) -> SubmitOutcome:
    return submit(
        tx, request, environment, actor="me", warnings=find_missing_programs(collect_programs(request, environment))
    )


def submit_job(scheduler: Scheduler, **body: Any) -> AcceptedSubmit:
    request = msgspec.convert({"command": ["true"], **body}, Submission)
    environment = DefaultEnvironment(cwd="/", variables={"PATH": "/usr/bin:/bin", "OWN": "1"})
    result: AcceptedSubmit = scheduler.run_request(lambda tx: _submit(tx, [request], environment))
    return result


def submit_batch(scheduler: Scheduler, *bodies: dict[str, Any]) -> AcceptedSubmit:
    request = [msgspec.convert({"command": ["true"], **body}, Submission) for body in bodies]
    environment = DefaultEnvironment(cwd="/", variables={"PATH": "/usr/bin:/bin"})
    result: AcceptedSubmit = scheduler.run_request(lambda tx: _submit(tx, request, environment))
    return result


@pytest.mark.parametrize(
    ("body", "kind", "message"), [case[1:] for case in INVALID_SUBMITS], ids=[case[0] for case in INVALID_SUBMITS]
)
def test_invalid_submit_is_refused_by_name_without_changes(
    busy_scheduler: Scheduler, run_sql: SqlRunner, body: dict[str, Any], kind: type[RotaError], message: str
) -> None:
    tables = ("job", "spec", "edge", "lock", "environment", "lane", "event", "idempotency", "sequence")
    before = [run_sql(f"SELECT * FROM {table}") for table in tables]
    with pytest.raises(kind, match=message):
        submit_job(busy_scheduler, **body)
    assert [run_sql(f"SELECT * FROM {table}") for table in tables] == before
    assert busy_scheduler.engine.store_error is None


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
def test_submission_refuses_unknown_fields_and_wrong_types(body: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"command": ["true"], **body} if body else body, Submission)


def test_limit_values_are_accepted(busy_scheduler: Scheduler) -> None:
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
        {"name": "any name, ä"},
        {"params": {"deep": [{"a": None}], "nul": "a\u0000b"}},
    ):
        assert submit_job(busy_scheduler, **body).jobs


def test_zero_delay_is_no_delay(busy_scheduler: Scheduler) -> None:
    job = submit_job(busy_scheduler, delay="0s").jobs[0]
    assert busy_scheduler.job(job).not_before is None


def test_repeated_edges_are_dropped_in_order(busy_scheduler: Scheduler) -> None:
    second = submit_job(busy_scheduler).jobs[0]
    job = submit_job(
        busy_scheduler,
        after=[
            {"job": f"job-{second}"},
            {"job": "job-1"},
            {"job": f"job-{second}", "policy": "success"},
            {"job": "job-1", "policy": "finished"},
            {"job": "job-1"},
        ],
    ).jobs[0]
    assert busy_scheduler.show_job(job).after == [
        Predecessor(job=f"job-{second}", policy="success"),
        Predecessor(job="job-1", policy="success"),
        Predecessor(job="job-1", policy="finished"),
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
        ({"cwd": "/no\n/place"}, [r"the working directory /no\n/place does not exist (yet)"]),
        ({"env": {"PATH": "/nowhere"}}, ["program not found (yet): true"]),
        (
            {"pools": {"resource/gpu": 1}},
            ["pool resource/gpu has no limit: set one with `rota pool set resource/gpu N`"],
        ),
        ({"flow": "any", "type": "any", "target": "any"}, []),
        ({"pools": {"global": 1}}, []),
    ],
)
def test_doubtful_submit_is_accepted_with_warning(
    busy_scheduler: Scheduler, body: dict[str, Any], warnings: list[str]
) -> None:
    assert submit_job(busy_scheduler, **body).warnings == warnings


def test_relative_program_is_resolved_from_working_directory(busy_scheduler: Scheduler, tmp_path: Path) -> None:
    program = tmp_path / "tool"
    program.write_text("#!/bin/sh\n")
    assert submit_job(busy_scheduler, command=["./tool"], cwd=str(tmp_path)).warnings == [
        "program not executable (yet): ./tool"
    ]
    assert submit_job(busy_scheduler, command=["./other"], cwd=str(tmp_path)).warnings == [
        "program not found (yet): ./other"
    ]
    program.chmod(0o755)
    assert submit_job(busy_scheduler, command=["./tool"], cwd=str(tmp_path)).warnings == []


@pytest.mark.parametrize(
    ("body", "variables"),
    [
        ({}, {"PATH": "/usr/bin:/bin", "OWN": "1"}),
        ({"env": {"OWN": "2", "MORE": "3"}}, {"PATH": "/usr/bin:/bin", "OWN": "2", "MORE": "3"}),
        ({"env": {"MORE": "3"}, "inherit_env": False}, {"MORE": "3"}),
    ],
)
def test_environment_extends_or_replaces_scheduler_environment(
    busy_scheduler: Scheduler, body: dict[str, Any], variables: dict[str, str]
) -> None:
    job = busy_scheduler.job(submit_job(busy_scheduler, **body).jobs[0])
    assert busy_scheduler.session.jobs.environment_variables(job.spec.environment) == variables


def test_submit_event_has_actor(busy_scheduler: Scheduler) -> None:
    job = submit_job(busy_scheduler).jobs[0]
    assert [(event.kind, event.actor, event.cause) for event in busy_scheduler.events if event.job == job] == [
        ("job.submitted", "me", "submit")
    ]


def test_batch_resolves_local_names(busy_scheduler: Scheduler) -> None:
    plan, build, merge = submit_batch(
        busy_scheduler,
        {"local": "plan"},
        {"local": "build", "after": [{"job": "plan"}, {"job": "job-1", "policy": "finished"}]},
        {"after": [{"job": "build"}, {"job": "plan"}]},
    ).jobs
    assert busy_scheduler.show_job(merge).after == [
        Predecessor(job=f"job-{build}", policy="success"),
        Predecessor(job=f"job-{plan}", policy="success"),
    ]
    assert busy_scheduler.drain() == [1, plan, build, merge]


def test_batch_may_refer_to_later_job(busy_scheduler: Scheduler) -> None:
    last, first = submit_batch(busy_scheduler, {"after": [{"job": "b"}]}, {"local": "b"}).jobs
    assert busy_scheduler.drain() == [1, first, last]


@pytest.mark.parametrize(
    ("bodies", "kind", "message"),
    [
        ([{}, {"command": []}], InvalidInput, "the command is empty"),
        ([{}, {"after": [{"job": "job-99"}]}], NotFound, r"^no such job: job-99 \(--after\); "),
        ([{}, {"after": [{"job": "missing"}]}], RotaError, "missing"),
        (
            [{"local": "a", "after": [{"job": "b"}]}, {"local": "b", "after": [{"job": "a"}]}],
            InvalidInput,
            r"^invalid --after cycle: a -> b -> a$|^invalid --after cycle: b -> a -> b$",
        ),
        ([{"local": "a", "after": [{"job": "a"}]}], InvalidInput, "^invalid --after self dependency: a$"),
        ([{"after": [{"job": "job-2"}]}], InvalidInput, "^invalid --after self dependency: job-2$"),
        ([{"local": "a"}, {"local": "a"}], InvalidInput, "two jobs have the local name 'a'"),
        ([{"local": "job-5"}], InvalidInput, "not a usable local name"),
        ([{"local": ""}], InvalidInput, "not a usable local name"),
    ],
)
def test_invalid_batch_is_refused_completely(
    busy_scheduler: Scheduler, run_sql: SqlRunner, bodies: list[dict[str, Any]], kind: type[RotaError], message: str
) -> None:
    with pytest.raises(kind, match=message):
        submit_batch(busy_scheduler, *bodies)
    assert run_sql("SELECT count(*) FROM job") == [(1,)]
    assert run_sql("SELECT count(*) FROM idempotency") == [(0,)]
    assert busy_scheduler.submit() == 2, "no id was allocated"


def test_batch_repeats_no_warning(busy_scheduler: Scheduler) -> None:
    result = submit_batch(busy_scheduler, {"command": ["nope"]}, {"command": ["nope"]}, {"pools": {"resource/gpu": 1}})
    assert result.warnings == [
        "program not found (yet): nope",
        "pool resource/gpu has no limit: set one with `rota pool set resource/gpu N`",
    ]


def test_too_long_program_path_is_a_warning() -> None:
    for cwd, program in (("/" + "x" * 4000, "true"), ("/", "./" + "x" * 4000)):
        (output,) = find_missing_programs(frozenset({(cwd, program, "/bin")}))
        assert output.endswith("cannot be looked for: File name too long"), output
        assert len(output) < 300


@pytest.mark.parametrize(
    ("body", "cwd", "path"),
    [
        ({"needs": ["file:a\nb"]}, "/", ".needs[0]"),
        ({"produces": ["file:a", "custom:a:b\nc"]}, "/", ".produces[1]"),
        ({"needs": ["file:a"]}, "/a\nb", ".cwd"),
        ({"pin": "main"}, "/a\nb", ".cwd"),
    ],
)
def test_line_break_in_artifact_or_directory_is_refused(body: dict[str, Any], cwd: str, path: str) -> None:
    with pytest.raises(InvalidInput, match="has a line break") as refused:
        parse_inputs(Submission(command=["true"], **body), cwd)
    assert refused.value.path == path


def test_line_break_in_repository_path_is_refused() -> None:
    """The path of a repository can have a line break though the working directory, a link to it, has none."""
    with pytest.raises(InvalidInput, match=r"path of the repository has a line break: .* rename the directory"):
        check_repository("/a\nb/.git")
    check_repository("/a/.git")
    check_repository(None)

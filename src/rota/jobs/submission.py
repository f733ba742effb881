"""A submit as received, and the validation of its single fields. An unusable value is refused by name, with advice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal

import msgspec

from rota.duration import parse_duration
from rota.errors import InvalidInput, error_path
from rota.ids import ScheduleId, TemplateId
from rota.kernel.artifacts import MissingProducer
from rota.kernel.edges import DependencyPolicy
from rota.kernel.job import TemplateSnapshot
from rota.kernel.locks import Lock, LockMode
from rota.kernel.pools import MAX_WEIGHT
from rota.kernel.retry import RetryPolicies
from rota.kernel.trace import Trace
from rota.naming import (
    KEY_RULE,
    MAX_SCRIPT_LENGTH,
    MAX_TITLE_LENGTH,
    NAME_RULE,
    POOL_KINDS,
    has_line_break,
    is_key,
    is_name,
    is_pool_name,
    quote_unusable,
)
from rota.schema_types import (
    AbsolutePath,
    ArtifactText,
    DurationText,
    GitRef,
    KeyText,
    Name,
    NameOrId,
    Priority,
    Retries,
    ShellScript,
    SimpleName,
    Text,
    TitleText,
    Url,
    Weight,
)
from rota.templates.model import MAX_ARGUMENT_BYTES
from rota.templates.params import check_params

_MAX_PRIORITY = 1_000_000


class Dependency(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A job that has to end first."""

    job: str
    """Job id, or in a batch the `local` name of a job."""
    policy: DependencyPolicy = DependencyPolicy.SUCCESS
    """Required outcome of the job."""


class LockRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A lock to hold during a run."""

    key: KeyText
    """Name of the lock: any text that its users agree on."""
    mode: LockMode = LockMode.EXCLUSIVE
    """`shared` with other shared holders, or `exclusive`."""


class Submission(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A job to submit."""

    command: list[Text] = []
    """The program and its arguments; the template's by default."""
    template: NameOrId | None = None
    """Name or id of a template."""
    name: TitleText | None = None
    """Display name; names need not be unique."""
    type: Name | None = None
    """Kind of work, which selects the pool `type/TYPE` and its breaker."""
    params: dict[str, Any] = {}
    """Params of its template, and any other data to store with the job."""
    priority: Priority | None = None
    """Priority; by default the template's, or 0."""
    after: list[Dependency] = []
    """Jobs that it depends on."""
    locks: list[LockRequest] = []
    """Locks that it holds while it runs."""
    needs: list[ArtifactText] = []
    """Artifacts that must exist before it starts, as `file:plan.md`."""
    produces: list[ArtifactText] = []
    """Artifacts that it produces, as `file:plan.md`."""
    missing_producer: MissingProducer | None = None
    """Behavior while no job produces a needed artifact; null waits for `file` and `custom`, and blocks on the other
    types."""
    pin: GitRef | None = None
    """Commit that a branch must be at when the job starts: `main` for its present head, `main@<oid>` for a commit."""
    pools: dict[str, Weight] = {}
    """Capacity that it uses by pool, in addition to the pools of type, flow and target."""
    flow: Name | None = None
    """Flow that it is a step of."""
    phase: SimpleName | None = None
    """Part of its flow in which jobs run one at a time."""
    parallelizable: bool | None = None
    """Whether it may run in parallel with other jobs of its phase and flow."""
    unique: KeyText | None = None
    """Key that only one active chain can have; a second submit with the key returns that chain's job."""
    target: Name | None = None
    """Object of the work, which selects the pool `target/TARGET` and its breaker."""
    group: NameOrId | None = None
    """Unfinished group to join."""
    webhooks: list[Url] = []
    """URLs to notify of its end, in addition to the webhook endpoints."""
    webhook_events: list[NameOrId] = []
    """Events to notify these URLs of; empty for the default ones."""
    delay: DurationText | None = None
    """Minimum time in the queue, as `10m`."""
    timeout: DurationText | None = None
    """Maximum run time."""
    idle_timeout: DurationText | None = None
    """Maximum time without output on stdout or stderr."""
    skip_if: ShellScript | None = None
    """Shell command that runs first; the job is skipped if it exits with 0."""
    retries: Retries | None = None
    """Maximum number of retries after a failure."""
    retry: NameOrId | None = None
    """Name of a retry policy in the configuration."""
    cwd: AbsolutePath | None = None
    """Working directory, as an absolute path; the scheduler's own by default."""
    worktree: bool | None = None
    """Whether it runs in a git worktree and on a branch of its own."""
    base: GitRef | None = None
    """Start of that branch; HEAD by default."""
    patch: bool | None = None
    """Whether its changes are kept as a patch."""
    with_diff: bool = False
    """Whether it receives the uncommitted changes as a patch, which is applied to its worktree if it has one."""
    env: dict[str, Text] = {}
    """Environment variables."""
    inherit_env: bool = True
    """Whether `env` is added to the scheduler's own environment. The CLI sends its whole environment instead."""
    explicit_env: list[str] = []
    """Names in `env` that were set explicitly, if `env` is a whole environment; they override a template's."""
    local: NameOrId | None = None
    """Name that other jobs of a batch use in `after`, since the job has no id yet."""


class GroupRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A group to create, with its members or before them."""

    name: str | None = None
    """Name to use instead of its id until it is finished."""
    mode: Literal["sequential", "parallel"] = "parallel"
    """Whether members run one after another, or in parallel as capacity allows."""
    on_failure: str = "stop"
    """Policy for the other members after a failure: `stop`, `continue`, `skip`, or the policy of a plugin."""


class JobOrigin(msgspec.Struct, frozen=True, kw_only=True):
    """Origin of a job: a template, a schedule, a legacy endpoint, or by default a plain submit."""

    template: TemplateId | None = None
    schedule: ScheduleId | None = None
    template_snapshot: TemplateSnapshot | None = None
    """Parts of the template that the job keeps."""
    sources: Mapping[str, str] = {}
    """Source of each policy that the template chose, by the name of the policy."""
    is_legacy: bool = False
    """Whether a legacy endpoint made it: its clients rely on retries that they do not request."""

    @property
    def is_by_hand(self) -> bool:
        return self.template is None and self.schedule is None and not self.is_legacy


class DefaultEnvironment(msgspec.Struct, frozen=True, kw_only=True):
    """Environment of a job that does not set its own."""

    cwd: str
    variables: Mapping[str, str]
    trace: Trace = {}
    """Trace context of the request."""


def check_fields(submission: Submission) -> None:
    """Check the fields that need no other knowledge than the submission."""
    check_command(submission.command)
    check_title("name", submission.name)
    check_text("skip_if", submission.skip_if, MAX_SCRIPT_LENGTH)
    if submission.skip_if is not None and not submission.skip_if.strip():
        raise InvalidInput("skip_if is empty, and an empty script always succeeds; leave it out").at_path(".skip_if")
    check_priority(submission.priority or 0)
    check_own_params(submission.params)
    _check_pools(submission.pools)
    for field in ("type", "flow", "target"):
        _check_name(field, getattr(submission, field))
    _check_phase(submission.phase, submission.flow)


def check_limits(submission: Submission, retry: RetryPolicies, now: datetime) -> None:
    """Check the fields that a full submit checks on its way. A client must not be told to retry an invalid submit."""
    parse_limit("timeout", submission.timeout)
    parse_limit("idle_timeout", submission.idle_timeout)
    parse_delay(submission.delay, now)
    merge_locks(submission.locks)
    check_cwd(submission.cwd)
    check_variables(submission.env)
    retry.choose(name=submission.retry, retries=submission.retries, flow=submission.flow)


def check_cwd(cwd: str | None) -> None:
    if cwd is not None and (not cwd.startswith("/") or "\x00" in cwd):
        raise InvalidInput(f"cwd must be an absolute path, not {cwd!r}").at_path(".cwd")


def check_command(command: Sequence[str]) -> None:
    if not command or not command[0].strip():
        raise InvalidInput("the command is empty; name a program and its arguments").at_path(".command")
    for n, word in enumerate(command):
        if len(word) > MAX_ARGUMENT_BYTES // 4 and len(word.encode(errors="surrogateescape")) > MAX_ARGUMENT_BYTES:
            message = f"an argument is longer than {MAX_ARGUMENT_BYTES} bytes, the maximum of the system"
            raise InvalidInput(f"{message}; put the text in a file and pass its path").at_path(f".command[{n}]")
    if "\x00" in "".join(command):
        raise InvalidInput("the command contains a NUL character; remove it").at_path(".command")


def check_own_params(params: Mapping[str, Any], field: str = "params") -> None:
    """Check params apart from a schema: they are stored, shown, and passed to the child process in one variable."""
    if not params:
        return
    with error_path(f".{field}"):
        for name in params:
            if has_line_break(name):
                raise InvalidInput(f"the name of param {name!r} has a line break; write it on one line")
        check_params(None, params)


def check_text(field: str, text: str | None, max_length: int) -> None:
    if text is not None and "\x00" in text:
        raise InvalidInput(f"{field} has a NUL character; remove it").at_path(f".{field}")
    if text is not None and len(text) > max_length:
        message = f"{field} has {len(text):,} characters; the maximum is {max_length:,}"
        raise InvalidInput(f"{message}; put long text in params, or in a file").at_path(f".{field}")


def check_title(field: str, text: str | None) -> None:
    """Refuse a name that does not fit on one line of a list."""
    check_text(field, text, MAX_TITLE_LENGTH)
    if text is not None and has_line_break(text):
        raise InvalidInput(f"{field} {text!r} has a line break; write it on one line").at_path(f".{field}")


def check_priority(priority: int) -> None:
    if abs(priority) > _MAX_PRIORITY:
        advice = f"use -{_MAX_PRIORITY} to {_MAX_PRIORITY}"
        raise InvalidInput(f"priority {priority} is out of range; {advice}").at_path(".priority")


def _check_name(field: str, name: str | None) -> None:
    if name is not None and not is_name(name):
        raise InvalidInput(f"not a usable {field}: {quote_unusable(name)}; use {NAME_RULE}").at_path(f".{field}")


def _check_pools(pools: Mapping[str, int]) -> None:
    for name, weight in pools.items():
        if not is_pool_name(name):
            kinds = ", ".join(f"{kind}/NAME" for kind in POOL_KINDS)
            message = f"not a pool name: {name!r}; a pool is global or one of {kinds}"
            raise InvalidInput(message).at_path(".pools")
        if not 1 <= weight <= MAX_WEIGHT:
            message = f"pool {name}: weight {weight} is out of range; use 1 to {MAX_WEIGHT}"
            raise InvalidInput(message).at_path(".pools")


def check_variables(variables: Mapping[str, str]) -> None:
    for name, value in variables.items():
        if not name or "=" in name or "\x00" in name or "\x00" in value:
            raise InvalidInput(f"not a usable environment variable: {name!r}").at_path(".env")
        if has_line_break(name):
            message = f"the name of environment variable {name!r} has a line break; write it on one line"
            raise InvalidInput(message).at_path(".env")


def parse_limit(field: str, text: str | None) -> timedelta | None:
    if text is None:
        return None
    with error_path(f".{field}"):
        limit = parse_duration(text)
        if not limit:
            raise InvalidInput(f"{field} must be longer than zero; leave it out for no limit")
    return limit


def parse_delay(delay: str | None, now: datetime) -> datetime | None:
    if delay is None:
        return None
    with error_path(".delay"):
        wait = parse_duration(delay)
    return now + wait if wait else None


def _check_phase(phase: str | None, flow: str | None) -> None:
    if phase is None:
        return
    if not is_name(phase) or "/" in phase:  # the key of a phase lock separates phase and flow by a slash
        message = f"not a usable phase: {quote_unusable(phase)}; use {NAME_RULE}, and no / at all"
        raise InvalidInput(message).at_path(".phase")
    if flow is None:
        raise InvalidInput(f"phase {phase} needs a flow; set `flow` too").at_path(".phase")


def merge_locks(requests: Sequence[LockRequest], phase_lock: Lock | None = None) -> tuple[Lock, ...]:
    """Merge locks by key. A key that is named twice is exclusive if either lock is."""
    if not requests and phase_lock is None:
        return ()
    locks: dict[str, Lock] = {} if phase_lock is None else {phase_lock.key: phase_lock}
    for n, lock in enumerate(requests):
        if not is_key(lock.key):
            raise InvalidInput(f"not a usable lock key: {lock.key!r}; use {KEY_RULE}").at_path(f".locks[{n}]")
        known = locks.get(lock.key)
        mode = lock.mode if known is None else min(known.mode, lock.mode)
        locks[lock.key] = Lock(key=lock.key, mode=mode)
    return tuple(sorted(locks.values()))

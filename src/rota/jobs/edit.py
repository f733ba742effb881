"""`edit`: change the request of a waiting job, completely or not at all (INV-001)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from rota.engine.transaction import Transaction
from rota.errors import Conflict, InvalidInput, error_path
from rota.ids import JobId, format_job_id
from rota.jobs.submission import check_command, check_own_params, check_priority, check_title, parse_delay, parse_limit
from rota.kernel.job import Job, TemplateSnapshot, changed_fields
from rota.kernel.retry import DEFAULT_POLICY, FLEET_POLICY, RetryPolicies, RetryPolicy
from rota.kernel.status import TERMINAL, WAITING, Status
from rota.schema_types import DurationText, NameOrId, Priority, Retries, Text, TitleText
from rota.templates.model import rerender_fields
from rota.templates.params import check_params


class EditRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Changes to a job; fields that are left out keep their values."""

    command: list[Text] | UnsetType = UNSET
    """The program and its arguments."""
    params: dict[str, Any] | UnsetType = UNSET
    """Replacement of all params; `set_params` and `unset_params` change single params."""
    set_params: dict[str, Any] | UnsetType = UNSET
    """Params to add or overwrite."""
    unset_params: list[str] | UnsetType = UNSET
    """Names of params to remove."""
    name: TitleText | UnsetType | None = UNSET
    priority: Priority | UnsetType = UNSET
    timeout: DurationText | UnsetType | None = UNSET
    idle_timeout: DurationText | UnsetType | None = UNSET
    retries: Retries | UnsetType = UNSET
    """Maximum number of retries after a failure."""
    retry: NameOrId | UnsetType | None = UNSET
    delay: DurationText | UnsetType | None = UNSET
    """Delay from now, as `10m`; null removes the delay."""


class EditOutcome(msgspec.Struct, frozen=True, kw_only=True):
    job: JobId
    fields: list[str]
    """Names of the fields that changed."""
    warnings: list[str] = []


_FIELDS = ", ".join(EditRequest.__struct_fields__)
_RESUBMIT_ADVICE = "it is fixed at submit; cancel the job and submit it again"
_ADVICE = {
    **dict.fromkeys(("after", "needs", "produces", "missing_producer", "pin", "pinned_head"), _RESUBMIT_ADVICE),
    **dict.fromkeys(
        ("type", "flow", "phase", "target", "pools", "locks", "unique", "group", "cwd", "env", "skip_if", "worktree"),
        _RESUBMIT_ADVICE,
    ),
    **dict.fromkeys(("webhooks", "webhook_events"), _RESUBMIT_ADVICE),
    "position": "use `rota move JOB --first`, `--last`, `--to N`, `--before J` or `--after J`",
    "not_before": "use `delay`, as 10m, or null for none",
    "max_retries": "use `retries`",
    "status": "`rota cancel`, `rota retry` and `rota rewind` change it",
}
"""Advice for fields that cannot be edited."""

_REQUEST_FIELDS = {
    "params": ("set_params", "params", "unset_params"),
    "retry": ("retries", "retry"),
    "not_before": ("delay",),
}
"""Fields of an edit that change a job's field of another name."""

_POLICY_NAMES = {name: name for name in ("timeout", "idle_timeout", "priority")} | {"not_before": "delay"}
"""Fields of a job that are policies, with the name of each policy."""


def parse_edit(body: bytes) -> EditRequest:
    """Decode an edit. Fields that cannot be edited are refused by name, with advice."""
    fields = msgspec.json.decode(body, type=dict[str, Any])
    for name in fields:
        if name not in EditRequest.__struct_fields__:
            advice = _ADVICE.get(name, f"editable fields are {_FIELDS}")
            raise InvalidInput(f"{name} cannot be edited: {advice}").at_path(f".{name}")
    request = msgspec.convert(fields, EditRequest)
    if not fields:
        raise InvalidInput(f"the edit is empty; editable fields are {_FIELDS}")
    return request


def edit(tx: Transaction, job: JobId, request: EditRequest, *, actor: str) -> EditOutcome:
    """Edit this job alone; the other jobs of its chain keep their specs."""
    before = tx.jobs.find(job)
    if before is None:
        raise tx.jobs.not_found(job)
    if before.unreadable is not None:
        raise make_unreadable_error(job, before.unreadable)
    if before.status not in WAITING and not before.was_dispatched:
        advice = suggest_alternative(tx, job, before.status)
        raise Conflict(f"{format_job_id(job)} has ended ({before.status}); {advice}")
    warnings: list[str] = []
    changes = _add_sources(tx, before, request, _collect_changes(tx, before, request, warnings))
    try:
        is_edited = tx.jobs.edit(before, changes, now=tx.now, actor=actor)
    except Conflict as error:
        message = f"{error.message}: {_describe_state(before)}; {suggest_alternative(tx, job, before.status)}"
        raise Conflict(message).at_path(_request_path(request, error.path)) from None
    if not is_edited:
        raise Conflict(f"{format_job_id(job)} was changed by another request; nothing was edited, try again")
    after = tx.jobs.find(job)
    return EditOutcome(job=job, fields=[] if after is None else changed_fields(before, after), warnings=warnings)


def _request_path(request: EditRequest, path: str) -> str:
    """Return the path of the request field that changes the job field at `path`."""
    names = _REQUEST_FIELDS.get(path.removeprefix("."), ())
    return next((f".{name}" for name in names if getattr(request, name) is not UNSET), path)


def _describe_state(job: Job) -> str:
    name = format_job_id(job.id)
    return f"{name} has run before" if job.status in WAITING else f"{name} is {job.status.public}"


def make_unreadable_error(job: JobId, reason: str) -> Conflict:
    """Return the refusal to change a job whose stored record cannot be used."""
    return Conflict(f"{format_job_id(job)} is unreadable: {reason}; `rota cancel {format_job_id(job)}` ends it")


def suggest_alternative(tx: Transaction, job: JobId, status: Status) -> str:
    """Return advice for a job that can no longer be changed."""
    name, last = format_job_id(job), tx.chains.last_job(job)
    if last is not None and last[0] != job and last[1] not in TERMINAL:
        possibility = "can be changed" if last[1] in WAITING else "can no longer be changed"
        return f"{format_job_id(last[0])} of its chain is {last[1].public}, and {possibility}"
    if status in WAITING:
        return f"`rota cancel {name}` and submit it again with other values"
    return "only waiting jobs can be changed"


def _collect_changes(tx: Transaction, job: Job, request: EditRequest, warnings: list[str]) -> Mapping[str, Any]:
    changes: dict[str, Any] = {}
    if request.command is not UNSET:
        check_command(request.command)
        changes["command"] = tuple(request.command)
    if request.name is not UNSET:
        check_title("name", request.name)
        changes["name"] = request.name
    if request.priority is not UNSET:
        check_priority(request.priority)
        changes["priority"] = request.priority
    if request.timeout is not UNSET:
        changes["timeout"] = parse_limit("timeout", request.timeout)
    if request.idle_timeout is not UNSET:
        changes["idle_timeout"] = parse_limit("idle_timeout", request.idle_timeout)
    if request.delay is not UNSET:
        changes["not_before"] = parse_delay(request.delay, tx.now)
    if request.retries is not UNSET or request.retry is not UNSET:
        changes["retry"] = _choose_policy(tx, job, request)
    params_field = next((name for name in _REQUEST_FIELDS["params"] if getattr(request, name) is not UNSET), None)
    if params_field is not None:
        changes["params"] = _merge_params(job, request, warnings)
        check_own_params(changes["params"], params_field)
    if (
        job.spec.template_snapshot is not None
        and not job.was_dispatched
        and changes.keys() & {"command", "params", "name"}
    ):
        with error_path("" if params_field is None else f".{params_field}"):
            return {**_apply_snapshot(job, job.spec.template_snapshot, changes, warnings), **changes}
    return changes


def _add_sources(tx: Transaction, job: Job, request: EditRequest, changes: Mapping[str, Any]) -> Mapping[str, Any]:
    """Add the edit itself as the source of the policies that it changes."""
    kept = {name: source for name, source in job.spec.sources.items() if name not in changes}
    kept |= {_POLICY_NAMES[name]: "option" for name in changes if name in _POLICY_NAMES}
    if "retry" in changes:
        kept |= _retry_sources(job, request, changes["retry"], tx.settings.retry)
    return changes if kept == job.spec.sources else {**changes, "sources": kept}


def _retry_sources(
    job: Job, request: EditRequest, chosen: RetryPolicy | None, policies: RetryPolicies
) -> Mapping[str, str]:
    """Return the sources of the retry policy. A number of retries alone keeps the job's delays and their sources."""
    if chosen is None:
        return {"retry": "option"}
    counted_by = None if request.retries is UNSET else "option"
    if isinstance(request.retry, str):
        return policies.sources(request.retry, chosen_by="option", counted_by=counted_by)
    if job.spec.retry is not None:
        return {"retry": "option"}
    if job.spec.flow is not None:
        return policies.sources(FLEET_POLICY, chosen_by="flow default", counted_by=counted_by)
    return policies.sources(DEFAULT_POLICY, chosen_by=None, counted_by=counted_by)


def _apply_snapshot(
    job: Job, snapshot: TemplateSnapshot, changes: Mapping[str, Any], warnings: list[str]
) -> dict[str, Any]:
    """Render the fields of a job of a template again. Its params are checked by the schema that was in force at submit.
    A command or name that is set by hand is separated from the params."""
    by_hand = {field: None for field in ("command", "name") if field in changes}
    kept = msgspec.structs.replace(snapshot, **by_hand)
    rendered = (
        {} if "params" not in changes else rerender_fields(kept, job.spec.params, changes["params"], check_params)
    )
    check_title("name", rendered.get("name"))
    if "params" in changes and kept.command is None:
        warnings.append("its command was set by hand, so its params do not change it")
    return {**rendered, "template_snapshot": kept}


def _choose_policy(tx: Transaction, job: Job, request: EditRequest) -> RetryPolicy | None:
    """Return the job's retry policy. A number of retries alone keeps the job's delays."""
    retries = None if request.retries is UNSET else request.retries
    if request.retry is None:
        if retries:
            raise InvalidInput("retry null means no retries: leave it out, or name a policy").at_path(".retry")
        return None
    name = None if request.retry is UNSET else request.retry
    chosen = tx.settings.retry.choose(name=name, retries=retries, flow=None if name else job.spec.flow)
    if name is None and job.spec.retry is not None and retries is not None:
        return msgspec.structs.replace(job.spec.retry, max_retries=retries)
    return chosen


def _merge_params(job: Job, request: EditRequest, warnings: list[str]) -> Mapping[str, Any]:
    params = dict(job.spec.params if request.params is UNSET else request.params)
    for name in () if request.unset_params is UNSET else request.unset_params:
        if name not in params:
            warnings.append(f"it has no param {name!r}")
        params.pop(name, None)
    return params | ({} if request.set_params is UNSET else request.set_params)

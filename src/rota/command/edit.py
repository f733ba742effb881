"""`edit`: what a job that waits was asked for becomes something else, whole or not at all (INV-001)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from rota.command.field import check_command, check_own_params, check_priority, check_text, limit_of, not_before_of
from rota.command.schema import check_params
from rota.core.job import Job, changed
from rota.core.retry import RetryPolicy
from rota.core.status import TERMINAL, WAITING, Status
from rota.core.template import Recipe, follow
from rota.engine.work import Work
from rota.errors import Conflict, InvalidInput, within
from rota.ids import JobId, show_job
from rota.names import MOST_TITLE
from rota.wire.text import Called, Priority, Retries, Span, Text, Title


class Edit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What shall be another; what is not named stays."""

    command: list[Text] | UnsetType = UNSET
    """The program and its arguments."""
    params: dict[str, Any] | UnsetType = UNSET
    """All of them anew; `set_params` and `unset_params` change single ones."""
    set_params: dict[str, Any] | UnsetType = UNSET
    """Params to add to those there are, or to give another value."""
    unset_params: list[str] | UnsetType = UNSET
    """Params to take away, by name."""
    name: Title | UnsetType | None = UNSET
    priority: Priority | UnsetType = UNSET
    timeout: Span | UnsetType | None = UNSET
    idle_timeout: Span | UnsetType | None = UNSET
    retries: Retries | UnsetType = UNSET
    """How often it is tried again if it fails."""
    retry: Called | UnsetType | None = UNSET
    delay: Span | UnsetType | None = UNSET
    """How long it waits from now on, as `10m`; null for not at all."""


class Edited(msgspec.Struct, frozen=True, kw_only=True):
    job: JobId
    fields: list[str]
    """What is another than before."""
    warnings: list[str] = []


_FIELDS = ", ".join(Edit.__struct_fields__)
_EDGES = "what a job waits for and makes is fixed at submit: cancel it and submit it anew"
_ELSEWHERE = {
    **dict.fromkeys(("after", "needs", "produces", "missing_producer", "pin", "pinned_head"), _EDGES),
    **dict.fromkeys(
        ("type", "flow", "phase", "target", "pools", "locks", "unique", "group", "cwd", "env", "skip_if", "worktree"),
        "that is fixed at submit: cancel it and submit it anew",
    ),
    **dict.fromkeys(("webhooks", "webhook_events"), "that is fixed at submit: cancel it and submit it anew"),
    "position": "`rota move JOB --first`, `--last`, `--to N`, `--before J` or `--after J`",
    "not_before": "use `delay`, as 10m, or null for none",
    "max_retries": "use `retries`",
    "status": "`rota cancel`, `rota retry` and `rota rewind` change it",
}
"""What cannot be edited, and what to do instead."""

_SENT_AS = {
    "params": ("set_params", "params", "unset_params"),
    "retry": ("retries", "retry"),
    "not_before": ("delay",),
}
"""Fields of a job that an edit has other names for."""


def parse(body: bytes) -> Edit:
    """Fields that cannot be edited are refused by name, with what to do instead."""
    asked = msgspec.json.decode(body, type=dict[str, Any])
    for name in asked:
        if name not in Edit.__struct_fields__:
            advice = _ELSEWHERE.get(name, f"an edit takes {_FIELDS}")
            raise InvalidInput(f"{name} cannot be edited: {advice}").under(f".{name}")
    wanted = msgspec.convert(asked, Edit)
    if not asked:
        raise InvalidInput(f"nothing is to be changed; an edit takes {_FIELDS}")
    return wanted


def edit(work: Work, job: JobId, wanted: Edit, *, actor: str) -> Edited:
    """Acts on the job named, not on its chain: what the chain's other jobs were asked stays as it was."""
    found = work.session.job(job)
    if found is None:
        raise work.session.no_such_job(job)
    if found.status not in WAITING and not found.was_dispatched:
        raise Conflict(f"{show_job(job)} has ended ({found.status}); {whom_to_ask(work, job, found.status)}")
    warnings: list[str] = []
    changes = _changes(work, found, wanted, warnings)
    try:
        is_edited = work.session.edit(found, changes, now=work.now, actor=actor)
    except Conflict as refused:
        said = f"{refused.message}: {_state(found)}; {whom_to_ask(work, job, found.status)}"
        raise Conflict(said).under(_sent_as(wanted, refused.path)) from None
    if not is_edited:
        raise Conflict(f"{show_job(job)} was changed by somebody else meanwhile; nothing was edited, so try again")
    now = work.session.job(job)
    return Edited(job=job, fields=[] if now is None else changed(found, now), warnings=warnings)


def _sent_as(wanted: Edit, path: str) -> str:
    """Where the edit says what the job has at `path`."""
    field = path.removeprefix(".")
    ways = _SENT_AS.get(field, ())
    return next((f".{way}" for way in ways if getattr(wanted, way) is not UNSET), path)


def _state(job: Job) -> str:
    name = show_job(job.id)
    return f"{name} has run before" if job.status in WAITING else f"{name} is {job.status.shown}"


def whom_to_ask(work: Work, job: JobId, status: Status) -> str:
    """What to do with a job whose own time for changes is over."""
    name, last = show_job(job), work.session.last_of_chain(job)
    if last is not None and last[0] != job and last[1] not in TERMINAL:
        then = "can be changed" if last[1] in WAITING else "can be changed no more"
        return f"{show_job(last[0])} of its chain is {last[1].shown}, and {then}"
    if status in WAITING:
        return f"for something else `rota cancel {name}` and submit it anew"
    return "only what waits can be changed"


def _changes(work: Work, job: Job, wanted: Edit, warnings: list[str]) -> Mapping[str, Any]:
    changes: dict[str, Any] = {}
    if wanted.command is not UNSET:
        check_command(wanted.command)
        changes["command"] = tuple(wanted.command)
    if wanted.name is not UNSET:
        check_text("name", wanted.name, MOST_TITLE)
        changes["name"] = wanted.name
    if wanted.priority is not UNSET:
        check_priority(wanted.priority)
        changes["priority"] = wanted.priority
    if wanted.timeout is not UNSET:
        changes["timeout"] = limit_of("timeout", wanted.timeout)
    if wanted.idle_timeout is not UNSET:
        changes["idle_timeout"] = limit_of("idle_timeout", wanted.idle_timeout)
    if wanted.delay is not UNSET:
        changes["not_before"] = not_before_of(wanted.delay, work.now)
    if wanted.retries is not UNSET or wanted.retry is not UNSET:
        changes["retry"] = _policy(work, job, wanted)
    said = next((each for each in _SENT_AS["params"] if getattr(wanted, each) is not UNSET), None)
    if said is not None:
        changes["params"] = _params(job, wanted, warnings)
        check_own_params(changes["params"], said)
    if job.spec.recipe is not None and not job.was_dispatched and changes.keys() & {"command", "params", "name"}:
        with within("" if said is None else f".{said}"):
            return {**_by_recipe(job, job.spec.recipe, changes, warnings), **changes}
    return changes


def _by_recipe(job: Job, recipe: Recipe, changes: Mapping[str, Any], warnings: list[str]) -> dict[str, Any]:
    """A job of a template: its params are checked by the schema that was in force at submit, and its command and name
    are filled anew. What somebody writes by hand follows the params no more."""
    by_hand = {field: None for field in ("command", "name") if field in changes}
    kept = msgspec.structs.replace(recipe, **by_hand)
    follows = {} if "params" not in changes else follow(kept, job.spec.params, changes["params"], check_params)
    if "params" in changes and kept.command is None:
        warnings.append("its command was written by hand, so its params do not change it")
    return {**follows, "recipe": kept}


def _policy(work: Work, job: Job, wanted: Edit) -> RetryPolicy | None:
    """A number alone leaves the job the delays that it has."""
    retries = None if wanted.retries is UNSET else wanted.retries
    if wanted.retry is None:
        if retries:
            raise InvalidInput("retry null means no retries: leave it out, or name a policy").under(".retry")
        return None
    name = None if wanted.retry is UNSET else wanted.retry
    chosen = work.settings.retry.choose(name=name, retries=retries, flow=None if name else job.spec.flow)
    if name is None and job.spec.retry is not None and retries is not None:
        return msgspec.structs.replace(job.spec.retry, max_retries=retries)
    return chosen


def _params(job: Job, wanted: Edit, warnings: list[str]) -> Mapping[str, Any]:
    params = dict(job.spec.params if wanted.params is UNSET else wanted.params)
    for name in () if wanted.unset_params is UNSET else wanted.unset_params:
        if name not in params:
            warnings.append(f"it has no param {name!r}")
        params.pop(name, None)
    return params | ({} if wanted.set_params is UNSET else wanted.set_params)

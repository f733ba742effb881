"""Expansion of a submit that names a template: the same submit with the fields of the template filled in.

Fields of the submit override those of the template; `locks`, `needs`, `produces`, `pools`, `env` and `webhooks` are
merged. Params are merged by key: those of the submit, or of the schedule that fires, override the template's defaults.
The result is a submit like any other, so a job of a template is checked and stored like one without, and the template
is never read again (INV-005).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from difflib import get_close_matches
from typing import Any, NoReturn, Protocol

import msgspec

from rota.db.session import AnyReader
from rota.errors import Conflict, InvalidInput, NotFound, RotaError, error_path, escape_unprintable
from rota.ids import ScheduleId, TemplateId, format_template_id, parse_template_id
from rota.jobs.submission import JobOrigin, LockRequest, Submission
from rota.templates.model import (
    Template,
    TemplateBody,
    fill_all_placeholders,
    fill_placeholders,
    lock_templates,
    make_snapshot,
    merge_params,
)
from rota.templates.params import check_params

_PLAIN_FIELDS = (
    "type",
    "priority",
    "missing_producer",
    "phase",
    "parallelizable",
    "timeout",
    "idle_timeout",
    "skip_if",
    "worktree",
    "patch",
)
"""Fields without placeholders, in which a value of the submit overrides the template's."""
_POLICY_FIELDS = (
    "retry",
    "retries",
    "timeout",
    "idle_timeout",
    "worktree",
    "patch",
    "skip_if",
    "priority",
    "unique",
    "missing_producer",
)
"""Fields whose source is recorded."""
_TEMPLATED_FIELDS = ("unique", "target", "flow")
_FIELD_PATH = re.compile(r"(?:\.jobs\[(?P<job>\d+)\])?\.(?P<field>\w+)(?:\[(?P<n>\d+)\])?")
"""Path of a field of a job in a request."""


class TemplateUse(Protocol):
    """Request that may name a template."""

    @property
    def template(self) -> str | None: ...


class ExpandedSubmit(msgspec.Struct, frozen=True, kw_only=True):
    """Submissions of one request, expanded from their templates."""

    submissions: Sequence[Submission]
    origins: Sequence[JobOrigin]
    warnings: list[str]


def expand_all(reader: AnyReader, submissions: Sequence[Submission]) -> ExpandedSubmit:
    """Expand every submission that names a template, and keep the others."""
    templates = find_templates(reader, [member.template for member in submissions if member.template is not None])
    expanded: list[Submission] = []
    origins: list[JobOrigin] = []
    warnings: dict[str, None] = {}
    cache: dict[object, JobOrigin] = {}
    for n, member in enumerate(submissions):
        if member.template is None:
            expanded.append(member)
            origins.append(JobOrigin())
            continue
        with error_path(f".jobs[{n}]"):
            template = check_usable(member.template, templates[member.template], reader)
            expanded.append(expand(member, template))
        key = (member.template, member.name is None, *(getattr(member, name) is None for name in _TEMPLATED_FIELDS))
        if key not in cache:
            cache[key] = make_origin(member, template)
        origins.append(msgspec.structs.replace(cache[key], sources=template_sources(member, expanded[-1], template)))
        warnings.update(dict.fromkeys(warn_undeclared_params(member, template)))
    return ExpandedSubmit(submissions=expanded, origins=origins, warnings=list(warnings))


def find_usable_template(reader: AnyReader, reference: str) -> Template:
    """Return a template by name or id; refuse one that cannot be used."""
    return check_usable(reference, find_templates(reader, [reference])[reference], reader)


def find_templates(reader: AnyReader, references: Sequence[str]) -> dict[str, Template | None]:
    """Return the templates of these names or ids, archived ones included."""
    ids = {text: number for text in references if (number := template_id_or_none(text)) is not None}
    by_id = reader.templates.find_all(sorted(set(ids.values())))
    by_name = reader.templates.find_named(sorted(set(references) - ids.keys()))
    return {text: by_id.get(ids[text]) if text in ids else by_name.get(text) for text in references}


def find_template(reader: AnyReader, reference: str) -> Template:
    """Return a template by name or id, archived or not."""
    template = find_templates(reader, [reference])[reference]
    if template is None:
        _refuse_unknown_template(reference, reader)
    return template


def template_id_or_none(text: str) -> TemplateId | None:
    try:
        return parse_template_id(text)
    except InvalidInput:
        return None


def check_usable(reference: str, template: Template | None, reader: AnyReader) -> Template:
    with error_path(".template"):
        if template is None:
            _refuse_unknown_template(reference, reader)
        if template.archived_at is not None:
            raise Conflict(
                f"template {template.name} is archived (since {_format_time(template.archived_at)}); unarchive it with"
                f" `rota template unarchive {_suggested_reference(template, reference)}`, or use another"
            )
    return template


def _suggested_reference(template: Template, reference: str) -> str:
    return template.name if template_id_or_none(reference) is None else format_template_id(template.id)


def _format_time(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M} UTC"


def _refuse_unknown_template(reference: str, reader: AnyReader) -> NoReturn:
    names = reader.templates.names()
    near = get_close_matches(reference, names, n=1)
    hint = f"did you mean {near[0]}?" if near else "`rota template list` shows all templates"
    if not names:
        hint = "there are no templates; `rota template example` prints one to start from"
    raise NotFound(f"no such template: {escape_unprintable(reference)}; {hint}")


def expand(submission: Submission, template: Template) -> Submission:
    """Return the submission with the fields of its template; its params are checked by the template's schema."""
    body = template.body
    if submission.command:
        raise InvalidInput(
            f"template {template.name} has its own command: leave out `command`, or submit without a template;"
            " use params for values that vary"
        ).at_path(".command")
    if not body.command:
        message = f"template {template.name} has no command: {body.description or 'add one'}"
        raise InvalidInput(message).at_path(".template")
    params = merge_params(body.default_params, submission.params)
    with error_path(".params"):
        check_params(body.params_schema, params)
        return _apply_template(submission, body, params)


def _apply_template(submission: Submission, body: TemplateBody, params: dict[str, Any]) -> Submission:
    declared = body.declared
    own = {name: getattr(submission, name) for name in _PLAIN_FIELDS if getattr(submission, name) is not None}
    plain = {name: getattr(body, name) for name in _PLAIN_FIELDS if name not in own}
    templated = {
        name: _fill_optional(getattr(body, name), params, declared)
        for name in _TEMPLATED_FIELDS
        if getattr(submission, name) is None
    }
    worktree = body.worktree if submission.worktree is None else submission.worktree
    has_own_policy = submission.retry is not None
    return msgspec.structs.replace(
        submission,
        command=fill_all_placeholders(body.command, params, declared),
        params=params,
        name=submission.name if submission.name is not None else _fill_optional(body.job_name, params, declared),
        **plain,
        **templated,
        retry=submission.retry if has_own_policy else body.retry,
        retries=submission.retries if submission.retries is not None or has_own_policy else body.retries,
        base=submission.base if submission.base is not None or not worktree else body.base,
        pools={**body.pools, **submission.pools},
        locks=[*submission.locks, *_fill_locks(body, params, declared)],
        needs=_merge_lists(submission.needs, fill_all_placeholders(body.needs, params, declared)),
        produces=_merge_lists(submission.produces, fill_all_placeholders(body.produces, params, declared)),
        env=_merge_env(body, submission),
        webhooks=_merge_lists(submission.webhooks, body.webhooks),
        webhook_events=submission.webhook_events or list(body.webhook_events),
    )


def _fill_optional(text: str | None, params: Mapping[str, object], declared: frozenset[str]) -> str | None:
    return None if text is None else fill_placeholders(text, params, declared)


def _fill_locks(body: TemplateBody, params: Mapping[str, object], declared: frozenset[str]) -> list[LockRequest]:
    return [
        LockRequest(key=fill_placeholders(lock.key, params, declared), mode=lock.mode) for lock in lock_templates(body)
    ]


def _merge_lists(own: Sequence[str], others: Iterable[str]) -> list[str]:
    """Append the others without repeats. The submission's own values keep their indexes, which error paths name."""
    return [*own, *(value for value in others if value not in own)]


class blame_template:  # noqa: N801 - used like a function: with blame_template(…)
    """Context manager that keeps the path of an error only if the request set that field; otherwise the path becomes
    `template`, because the template set it. A class for speed, like `error_path`."""

    def __init__(self, *uses: TemplateUse) -> None:
        self._uses = uses

    def __enter__(self) -> None: ...

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if not isinstance(error, RotaError):
            return
        match = _FIELD_PATH.match(error.path)
        if match is not None and not _is_own_field(self._uses[int(match["job"] or 0)], match["field"], match["n"]):
            error.path = f"{error.path[: match.start('field')]}template"


def _is_own_field(use: TemplateUse, field: str, index: str | None) -> bool:
    if use.template is None or field in ("template", "params"):
        return True
    value = getattr(use, field, None)
    return value not in (None, [], {}) if index is None else int(index) < len(value or ())


def _merge_env(body: TemplateBody, submission: Submission) -> dict[str, str]:
    """Merge the variables. If the submission carries its caller's whole environment, only the variables that were
    requested by name override the template's."""
    if submission.inherit_env:
        return {**body.env, **submission.env}
    explicit = {name: submission.env[name] for name in submission.explicit_env if name in submission.env}
    return {**submission.env, **body.env, **explicit}


def make_origin(submission: Submission, template: Template, schedule: ScheduleId | None = None) -> JobOrigin:
    """Return the origin of the job that `expand` makes from this submission."""
    own = frozenset(name for name in _TEMPLATED_FIELDS if getattr(submission, name) is not None)
    snapshot = make_snapshot(template.body, has_own_name=submission.name is not None, overridden=own)
    return JobOrigin(template=template.id, schedule=schedule, template_snapshot=snapshot)


def template_sources(submission: Submission, expanded: Submission, template: Template) -> dict[str, str]:
    """Return the sources of the policies of the expanded submission that come from its template."""
    names = [
        name for name in _POLICY_FIELDS if getattr(submission, name) is None and getattr(expanded, name) is not None
    ]
    names += [f"webhooks.{n}" for n in range(len(set(submission.webhooks)), len(set(expanded.webhooks)))]
    if expanded.webhook_events and not submission.webhook_events:
        names.append("webhook_events")
    names += [f"pools.{name}" for name in expanded.pools if name not in submission.pools]
    own = {lock.key for lock in submission.locks}
    names += [f"locks.{lock.key}" for lock in expanded.locks if lock.key not in own]
    return dict.fromkeys(names, f"template {template.name}")


def warn_undeclared_params(submission: Submission, template: Template) -> list[str]:
    """Return warnings of undeclared params. They are no error: the child process receives them too."""
    declared = template.body.declared
    undeclared = [name for name in submission.params if name not in declared] if declared else []
    return [
        f"template {template.name} declares no param {name}"
        + (f" (did you mean {near[0]}?)" if (near := get_close_matches(name, declared, n=1)) else "")
        for name in undeclared
    ]

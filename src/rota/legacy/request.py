"""Requests to legacy endpoints, and their conversion to current submits.

A type without a command selects a template: the one with this name, or else the one that creates jobs of this type. The
bodies of `trigger` and `batch` are flat: a field that is not a field of a job is a param of its template.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from rota.db.session import Reader
from rota.errors import Conflict, InvalidInput, NotFound, RotaError, error_path
from rota.ids import GroupId, JobId, parse_group_id, parse_job_id
from rota.jobs.submission import Submission
from rota.kernel.job import RUN_COMPLETED, RUN_FAILED, RUN_SKIPPED
from rota.legacy.schemas import STATUS_ALIASES
from rota.schema_types import make_validation_error
from rota.templates.expand import find_templates
from rota.webhooks.model import RUN_CANCELLED

_EVENTS = {"COMPLETED": RUN_COMPLETED, "FAILED": RUN_FAILED, "SKIPPED": RUN_SKIPPED, "CANCELLED": RUN_CANCELLED}
"""Webhook events by the final status of a job."""
_FIELD_PATH = re.compile(
    r"(?P<prefix>(?:\.jobs\[(?P<job>\d+)\])?)\.(?P<field>template|params|webhooks|webhook_events)(?:\[(?P<n>\d+)\])?"
)
"""Paths of fields that have another name or place in legacy requests."""


class LegacySubmission(Submission, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A job to submit, with the fields of `POST /api/jobs` or their legacy names."""

    template_id: str | None = None
    """Legacy name of `template`. Without it and without a command, `type` selects the template."""
    webhook_url: str | None = None
    """URL to add to `webhooks`."""


class _FlatJob(msgspec.Struct, frozen=True, kw_only=True):
    """Fields of a job in a flat body. All other fields are params."""

    type: str | None = None
    template: str | None = None
    template_id: str | None = None
    command: list[str] | None = None
    name: str | None = None
    priority: int | None = None
    params: dict[str, Any] | None = None
    webhook_url: str | None = None
    webhook_events: list[str] | None = None


_FLAT_SCHEMA = msgspec.json.schema_components([_FlatJob])[1]["_FlatJob"]["properties"]
_TRIGGER_SCHEMA = {
    name: schema for name, schema in _FLAT_SCHEMA.items() if name not in ("type", "template", "template_id")
}

LegacyTrigger = Annotated[
    dict[str, Any],
    Meta(
        description="Params of the template, flat or under `params`, and these fields of the job.",
        extra_json_schema={"properties": _TRIGGER_SCHEMA},
    ),
]
LegacyFlatJob = Annotated[
    dict[str, Any],
    Meta(
        description="A `type`, params of its template, flat or under `params`, and these fields of the job.",
        extra_json_schema={"properties": _FLAT_SCHEMA},
    ),
]


class LegacyBatchRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A batch to submit."""

    jobs: Annotated[list[LegacyFlatJob], Meta(min_length=1, max_length=10_000)]
    """Jobs to create, all or none."""
    webhook_url: str | None = None
    """URL to notify of the end of each job."""
    webhook_events: list[str] | None = None
    """Events to notify it of: `succeeded`, `failed`, `skipped`, `cancelled`; the first three by default."""


def parse_legacy_job_id(text: str) -> JobId:
    return parse_job_id(f"job-{text}" if text.isascii() and text.isdigit() else text)


def parse_legacy_group_id(text: str) -> GroupId:
    return parse_group_id(f"group-{text}" if text.isascii() and text.isdigit() else text)


def parse_flat_job(body: Mapping[str, Any], *, path_type: str | None = None, path: str = "") -> LegacySubmission:
    """Parse a flat body. `path_type` is the type in the request's path, `path` the location of the body. A field that
    is null counts as absent."""
    fields = {name: value for name, value in body.items() if value is not None}
    job_fields = _FlatJob.__struct_fields__ if path_type is None else tuple(_TRIGGER_SCHEMA)
    params = {name: fields.pop(name) for name in tuple(fields) if name not in job_fields}
    try:
        flat = msgspec.convert(fields, _FlatJob)
    except msgspec.ValidationError as error:
        raise make_validation_error("the request body", error, prefix=path) from None
    return LegacySubmission(
        type=flat.type if path_type is None else path_type,
        template=flat.template,
        template_id=flat.template_id,
        command=flat.command or [],
        name=flat.name,
        priority=flat.priority,
        params={**params, **(flat.params or {})},
        webhook_url=flat.webhook_url,
        webhook_events=flat.webhook_events or [],
    )


def parse_batch(batch: LegacyBatchRequest) -> list[LegacySubmission]:
    members = []
    for n, body in enumerate(batch.jobs):
        member = parse_flat_job(body, path=f".jobs[{n}]")
        if member.webhook_url is None:
            events = member.webhook_events or batch.webhook_events or []
            member = msgspec.structs.replace(member, webhook_url=batch.webhook_url, webhook_events=events)
        members.append(member)
    return members


@contextmanager
def legacy_error_paths(body: Mapping[str, Any]) -> Iterator[None]:
    """Translate error paths to the field names of the legacy request `body`."""
    try:
        yield
    except RotaError as error:
        if (match := _FIELD_PATH.fullmatch(error.path)) is not None:
            error.path = _legacy_path(body, **match.groupdict())
        raise


def _legacy_path(body: Mapping[str, Any], prefix: str, job: str | None, field: str, n: str | None) -> str:
    fields = body if job is None else body["jobs"][int(job)]
    index = "" if n is None else f"[{n}]"
    if field == "params":
        return f"{prefix}.params" if "params" in fields else prefix
    if field == "template":
        return f"{prefix}.{_template_field(fields)}"
    if field == "webhooks" and int(n or 0) >= len(fields.get("webhooks") or ()):
        field, index = "webhook_url", ""
    # Without a prefix: the batch sets the field for all jobs.
    return f"{prefix if fields.get(field) else ''}.{field}{index}"


def _template_field(fields: Mapping[str, Any]) -> str:
    """Return the field that selects the template: the first with a value, else the first that is set, else the type."""
    names = [name for name in ("template", "template_id") if fields.get(name) is not None]
    for name in names:
        if fields[name]:
            return name
    return names[0] if names else "type"


def to_submission(reader: Reader, request: LegacySubmission) -> Submission:
    """Convert a legacy request to a submission. Error paths start with `.jobs[0]`, as in the batch of one job that a
    single submit becomes; `SINGLE_JOB_PATHS` of the caller removes it."""
    return to_submissions(reader, [request])[0]


def to_submissions(reader: Reader, members: Sequence[LegacySubmission]) -> list[Submission]:
    """Convert legacy requests to submissions."""
    templates_by_type: dict[str, tuple[str, str | None]] = {}
    submissions = []
    for n, request in enumerate(members):
        with error_path(f".jobs[{n}]"):
            submissions.append(_convert_request(reader, request, templates_by_type))
    return submissions


def _convert_request(
    reader: Reader, request: LegacySubmission, templates_by_type: dict[str, tuple[str, str | None]]
) -> Submission:
    template, type_ = request.template or request.template_id, request.type
    if template is None and not request.command:
        if type_ is None:
            message = "the job has no command and no template; set `type`, `template_id` or `command`"
            raise InvalidInput(message).at_path(".type")
        if type_ not in templates_by_type:
            templates_by_type[type_] = _find_template(reader, type_)
        template, template_type = templates_by_type[type_]
        type_ = template_type or type_
    urls = [*request.webhooks, *(() if request.webhook_url is None else (request.webhook_url,))]
    events = _webhook_events(request.webhook_events)
    fields = {name: getattr(request, name) for name in Submission.__struct_fields__}
    # Legacy clients send events even if they send no URL.
    return Submission(
        **{**fields, "template": template, "type": type_, "webhooks": urls, "webhook_events": events if urls else []}
    )


def _find_template(reader: Reader, type_: str) -> tuple[str, str | None]:
    """Return the name of a template, and the type of its jobs. A template with the name wins, even if it is
    archived."""
    template_by_name = find_templates(reader, [type_])[type_]
    if template_by_name is not None:
        return template_by_name.name, template_by_name.body.type
    templates = [template for template in reader.templates.list_all(with_archived=False) if template.body.type == type_]
    match templates:
        case [template]:
            return template.name, type_
        case []:
            raise NotFound(
                f"no template has the name {type_}, and none creates jobs of that type; add one with"
                " `rota template add`, or set `command`"
            ).at_path(".type")
        case _:
            names = ", ".join(template.name for template in templates)
            raise Conflict(
                f"several templates create jobs of type {type_}: {names}; set `template_id` to one of them"
            ).at_path(".type")


def _webhook_events(names: Sequence[str]) -> list[str]:
    """Convert the legacy names of events. Current names are kept; the submit refuses unknown ones."""
    statuses = {name: STATUS_ALIASES.get(name.lower()) for name in names}
    return [name if (status := statuses[name]) is None else _EVENTS.get(status, name) for name in names]

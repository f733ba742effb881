"""What is sent to legacy endpoints, as a submit of today.

A type without a command stands for a template: the one of that name, else the one that makes jobs of that type.
Bodies of `trigger` and `batch` are flat: what is not a field of a job is a param of its template.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from rota.command.expand import find_named
from rota.command.submission import Submission
from rota.core.webhook import CANCELLED, COMPLETED, FAILED, SKIPPED
from rota.errors import Conflict, InvalidInput, NotFound, RotaError, within
from rota.ids import GroupId, JobId, parse_group, parse_job
from rota.store.session import Reader
from rota.wire.legacy import SPELLINGS
from rota.wire.misfit import misfit

_EVENTS = {"COMPLETED": COMPLETED, "FAILED": FAILED, "SKIPPED": SKIPPED, "CANCELLED": CANCELLED}
"""What a URL is told of, by the status that a job ends with."""
_PLACE = re.compile(
    r"(?P<at>(?:\.jobs\[(?P<job>\d+)\])?)\.(?P<field>template|params|webhooks|webhook_events)(?:\[(?P<n>\d+)\])?"
)
"""What had another name before, or another place."""


class LegacySubmission(Submission, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A job as asked for: as `POST /api/jobs` takes it, or by the old names."""

    template_id: str | None = None
    """`template`. Without it and without a command, `type` names the template."""
    webhook_url: str | None = None
    """One of `webhooks`."""


class _Flat(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a job in a flat body; all else in it are params."""

    type: str | None = None
    template: str | None = None
    template_id: str | None = None
    command: list[str] | None = None
    name: str | None = None
    priority: int | None = None
    params: dict[str, Any] | None = None
    webhook_url: str | None = None
    webhook_events: list[str] | None = None


_FLAT_SCHEMA = msgspec.json.schema_components([_Flat])[1]["_Flat"]["properties"]
_OF_ONE = {name: schema for name, schema in _FLAT_SCHEMA.items() if name not in ("type", "template", "template_id")}

Trigger = Annotated[
    dict[str, Any],
    Meta(
        description="Params of the template, flat or under `params`, and these fields of the job.",
        extra_json_schema={"properties": _OF_ONE},
    ),
]
BatchedJob = Annotated[
    dict[str, Any],
    Meta(
        description="A `type`, params of its template, flat or under `params`, and these fields of the job.",
        extra_json_schema={"properties": _FLAT_SCHEMA},
    ),
]


class BatchTrigger(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A batch as asked for."""

    jobs: Annotated[list[BatchedJob], Meta(min_length=1, max_length=10_000)]
    """All of them are made, or none."""
    webhook_url: str | None = None
    """Told of the end of each job."""
    webhook_events: list[str] | None = None
    """Of which ends: `succeeded`, `failed`, `skipped`, `cancelled`; none named: of the first three."""


def job_id_of(text: str) -> JobId:
    return parse_job(f"job-{text}" if text.isascii() and text.isdigit() else text)


def group_id_of(text: str) -> GroupId:
    return parse_group(f"group-{text}" if text.isascii() and text.isdigit() else text)


def read_flat(body: Mapping[str, Any], *, called: str | None = None, at: str = "") -> LegacySubmission:
    """`called` is the type that the path names, `at` where in the request it stands. What is null was left to its
    default, and is left out."""
    given = {name: value for name, value in body.items() if value is not None}
    own = _Flat.__struct_fields__ if called is None else tuple(_OF_ONE)
    rest = {name: given.pop(name) for name in tuple(given) if name not in own}
    try:
        flat = msgspec.convert(given, _Flat)
    except msgspec.ValidationError as error:
        raise misfit("the request body", error, at=at, of=given) from None
    return LegacySubmission(
        type=flat.type if called is None else called,
        template=flat.template,
        template_id=flat.template_id,
        command=flat.command or [],
        name=flat.name,
        priority=flat.priority,
        params={**rest, **(flat.params or {})},
        webhook_url=flat.webhook_url,
        webhook_events=flat.webhook_events or [],
    )


def read_batch(batch: BatchTrigger) -> list[LegacySubmission]:
    members = []
    for n, body in enumerate(batch.jobs):
        member = read_flat(body, at=f".jobs[{n}]")
        if member.webhook_url is None:
            events = member.webhook_events or batch.webhook_events or []
            member = msgspec.structs.replace(member, webhook_url=batch.webhook_url, webhook_events=events)
        members.append(member)
    return members


@contextmanager
def as_sent(body: Mapping[str, Any]) -> Iterator[None]:
    """What is refused of today's submit is said of the field that it was sent in."""
    try:
        yield
    except RotaError as error:
        if (found := _PLACE.fullmatch(error.path)) is not None:
            error.path = _sent_at(body, **found.groupdict())
        raise


def _sent_at(body: Mapping[str, Any], at: str, job: str | None, field: str, n: str | None) -> str:
    own = body if job is None else body["jobs"][int(job)]
    index = "" if n is None else f"[{n}]"
    if field == "params":
        return f"{at}.params" if "params" in own else at
    if field == "template":
        said = [name for name in ("template", "template_id") if own.get(name) is not None]
        return f"{at}.{[*filter(own.get, said), *said, 'type'][0]}"
    if field == "webhooks" and int(n or 0) >= len(own.get("webhooks") or ()):
        field, index = "webhook_url", ""
    return f"{at if own.get(field) else ''}.{field}{index}"  # a batch can say it for all of its jobs


def submission_of(reader: Reader, wanted: LegacySubmission) -> Submission:
    return submissions_of(reader, [wanted])[0]


def submissions_of(reader: Reader, members: Sequence[LegacySubmission]) -> list[Submission]:
    """What today's submit is to make of these."""
    found: dict[str, tuple[str, str | None]] = {}
    made = []
    for n, wanted in enumerate(members):
        with within(f".jobs[{n}]"):
            made.append(_submission(reader, wanted, found))
    return made


def _submission(reader: Reader, wanted: LegacySubmission, found: dict[str, tuple[str, str | None]]) -> Submission:
    template, kind = wanted.template or wanted.template_id, wanted.type
    if template is None and not wanted.command:
        if kind is None:
            said = "name a `type`, which is that of a template, or a `template_id`, or give a `command`"
            raise InvalidInput(said).under(".type")
        if kind not in found:
            found[kind] = _template_for(reader, kind)
        template, its_kind = found[kind]
        kind = its_kind or kind
    urls = [*wanted.webhooks, *(() if wanted.webhook_url is None else (wanted.webhook_url,))]
    events = _events(wanted.webhook_events)
    fields = {name: getattr(wanted, name) for name in Submission.__struct_fields__}
    # Old clients send the events that they would be told of also where they name nobody to tell.
    return Submission(**{**fields, "template": template, "type": kind, "webhooks": urls,
                         "webhook_events": events if urls else []})  # fmt: skip


def _template_for(reader: Reader, kind: str) -> tuple[str, str | None]:
    """Its name, and the type that it gives its jobs. The template of that name speaks, archived or not."""
    named = find_named(reader, [kind])[kind]
    if named is not None:
        return named.name, named.body.type
    of_type = [template for template in reader.templates(with_archived=False) if template.body.type == kind]
    match of_type:
        case [template]:
            return template.name, kind
        case []:
            raise NotFound(
                f"no template is called {kind}, and none makes jobs of that type; `rota template add` adds one, or"
                " give a `command`"
            ).under(".type")
        case _:
            names = ", ".join(template.name for template in of_type)
            raise Conflict(f"several templates make jobs of type {kind}: {names}; name one of them").under(".type")


def _events(named: Sequence[str]) -> list[str]:
    """The names of today are understood too; what is neither is refused by them."""
    statuses = {name: SPELLINGS.get(name.lower()) for name in named}
    return [name if (status := statuses[name]) is None else _EVENTS.get(status, name) for name in named]

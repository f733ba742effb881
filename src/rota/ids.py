"""Typed ids: integers in the code, `job-24` in the API and in output."""

from __future__ import annotations

import re
from typing import NewType

from rota.errors import InvalidInput

JobId = NewType("JobId", int)
RunId = NewType("RunId", int)
ReservationId = NewType("ReservationId", int)
LaneId = NewType("LaneId", int)
GroupId = NewType("GroupId", int)
TemplateId = NewType("TemplateId", int)
ScheduleId = NewType("ScheduleId", int)
WebhookId = NewType("WebhookId", int)
DeliveryId = NewType("DeliveryId", int)

_ID_PATTERN = re.compile(r"(?P<kind>[a-z]+)-(?P<number>[1-9][0-9]{0,17})")


def format_job_id(job: JobId) -> str:
    return f"job-{job}"


def format_run_id(run: RunId) -> str:
    return f"run-{run}"


def format_reservation_id(reservation: ReservationId) -> str:
    return f"reservation-{reservation}"


def format_group_id(group: GroupId) -> str:
    return f"group-{group}"


def format_template_id(template: TemplateId) -> str:
    return f"template-{template}"


def format_schedule_id(schedule: ScheduleId) -> str:
    return f"schedule-{schedule}"


def format_webhook_id(webhook: WebhookId) -> str:
    return f"webhook-{webhook}"


def format_delivery_id(delivery: DeliveryId) -> str:
    return f"delivery-{delivery}"


def _parse(text: str, kind: str) -> int:
    match = _ID_PATTERN.fullmatch(text)
    if match is None or match["kind"] != kind:
        raise InvalidInput(f"not a {kind} id: {text!r}; a {kind} id looks like {kind}-24")
    return int(match["number"])


def check_id(text: str, kind: str) -> None:
    """Raise if the text is not an id of this kind, such as `job`."""
    _parse(text, kind)


def parse_job_id(text: str) -> JobId:
    return JobId(_parse(text, "job"))


def parse_run_id(text: str) -> RunId:
    return RunId(_parse(text, "run"))


def parse_reservation_id(text: str) -> ReservationId:
    return ReservationId(_parse(text, "reservation"))


def parse_group_id(text: str) -> GroupId:
    return GroupId(_parse(text, "group"))


def parse_template_id(text: str) -> TemplateId:
    return TemplateId(_parse(text, "template"))


def parse_schedule_id(text: str) -> ScheduleId:
    return ScheduleId(_parse(text, "schedule"))


def parse_webhook_id(text: str) -> WebhookId:
    return WebhookId(_parse(text, "webhook"))


def parse_delivery_id(text: str) -> DeliveryId:
    return DeliveryId(_parse(text, "delivery"))

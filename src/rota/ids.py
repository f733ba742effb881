"""Typed ids: an integer inside, `job-24` at every surface."""

from __future__ import annotations

import re
from typing import NewType

from rota.errors import InvalidInput

JobId = NewType("JobId", int)
RunId = NewType("RunId", int)
SlotId = NewType("SlotId", int)
LaneId = NewType("LaneId", int)
GroupId = NewType("GroupId", int)
TemplateId = NewType("TemplateId", int)
ScheduleId = NewType("ScheduleId", int)
WebhookId = NewType("WebhookId", int)
DeliveryId = NewType("DeliveryId", int)

_SHAPE = re.compile(r"(?P<kind>[a-z]+)-(?P<number>[1-9][0-9]{0,17})")


def show_job(job: JobId) -> str:
    return f"job-{job}"


def show_run(run: RunId) -> str:
    return f"run-{run}"


def show_slot(slot: SlotId) -> str:
    return f"slot-{slot}"


def show_group(group: GroupId) -> str:
    return f"group-{group}"


def show_template(template: TemplateId) -> str:
    return f"template-{template}"


def show_schedule(schedule: ScheduleId) -> str:
    return f"schedule-{schedule}"


def show_webhook(webhook: WebhookId) -> str:
    return f"webhook-{webhook}"


def show_delivery(delivery: DeliveryId) -> str:
    return f"delivery-{delivery}"


def _parse(text: str, kind: str) -> int:
    match = _SHAPE.fullmatch(text)
    if match is None or match["kind"] != kind:
        raise InvalidInput(f"not a {kind} id: {text!r}; a {kind} id looks like {kind}-24")
    return int(match["number"])


def parse_job(text: str) -> JobId:
    return JobId(_parse(text, "job"))


def parse_run(text: str) -> RunId:
    return RunId(_parse(text, "run"))


def parse_slot(text: str) -> SlotId:
    return SlotId(_parse(text, "slot"))


def parse_group(text: str) -> GroupId:
    return GroupId(_parse(text, "group"))


def parse_template(text: str) -> TemplateId:
    return TemplateId(_parse(text, "template"))


def parse_schedule(text: str) -> ScheduleId:
    return ScheduleId(_parse(text, "schedule"))


def parse_webhook(text: str) -> WebhookId:
    return WebhookId(_parse(text, "webhook"))


def parse_delivery(text: str) -> DeliveryId:
    return DeliveryId(_parse(text, "delivery"))

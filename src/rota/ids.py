"""Typed ids: an integer inside, `job-24` at every surface."""

from __future__ import annotations

import re
from typing import NewType

from rota.errors import InvalidInput

JobId = NewType("JobId", int)
RunId = NewType("RunId", int)
SlotId = NewType("SlotId", int)
LaneId = NewType("LaneId", int)

_SHAPE = re.compile(r"(?P<kind>[a-z]+)-(?P<number>[1-9][0-9]{0,17})")


def show_job(job: JobId) -> str:
    return f"job-{job}"


def show_run(run: RunId) -> str:
    return f"run-{run}"


def show_slot(slot: SlotId) -> str:
    return f"slot-{slot}"


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

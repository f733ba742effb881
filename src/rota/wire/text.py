"""Texts and numbers that mean something, as schemas say it.

Most of this is for the OpenAPI document alone. The commands check it, in words of their own, which are better than
those of a pattern that did not match; here stands what they let through. What no command looks at has its length from
here.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from rota.core.address import LONGEST_URL
from rota.core.pool import MOST_WEIGHT
from rota.core.retry import MOST_RETRIES
from rota.names import MOST_SCRIPT, MOST_TITLE

# Not `\s`: what that is differs between Python and what else reads patterns.
_SPACE = r"\u0000-\u0020\u007f\u0085\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
_NAME = rf"^[^*/{_SPACE}][^*{_SPACE}]*$"
_WORD = rf"^[^*/{_SPACE}]+$"

Name = Annotated[str, Meta(extra_json_schema={"pattern": _NAME, "maxLength": 200})]
"""Of a type, a flow, a target."""
Word = Annotated[str, Meta(extra_json_schema={"pattern": _WORD, "maxLength": 200})]
"""A name without a slash."""
WITHOUT_NUL = r"^[^\u0000]*$"
Text = Annotated[str, Meta(extra_json_schema={"pattern": WITHOUT_NUL})]
"""Anything that can be given to a program."""
Title = Annotated[str, Meta(extra_json_schema={"pattern": WITHOUT_NUL, "maxLength": MOST_TITLE})]
"""What people call something."""
Script = Annotated[str, Meta(extra_json_schema={"pattern": WITHOUT_NUL, "maxLength": MOST_SCRIPT})]
Called = Annotated[str, Meta(max_length=200, extra_json_schema={"pattern": WITHOUT_NUL})]
"""The name of something that is there already, or its id; nothing has a longer one."""
Ref = Annotated[str, Meta(max_length=1000, extra_json_schema={"pattern": WITHOUT_NUL})]
"""What git calls a commit."""
Key = Annotated[str, Meta(extra_json_schema={"pattern": r"^[^\u0000]+$", "minLength": 1, "maxLength": 200})]
"""Of a lock, or a unique one."""
Span = Annotated[
    str, Meta(extra_json_schema={"pattern": r"^([0-9]+(\.[0-9]+)?(ms|s|m|h|d))+$", "examples": ["300ms", "2m30s"]})
]
"""A duration; the longest is ten years."""
AbsolutePath = Annotated[str, Meta(max_length=4096, extra_json_schema={"pattern": r"^/[^\u0000]*$"})]
Url = Annotated[str, Meta(max_length=LONGEST_URL, extra_json_schema={"pattern": "^https?://[!-~]+$"})]
ArtifactText = Annotated[
    str, Meta(extra_json_schema={"pattern": r"^[a-z_]+:[^\u0000]+$", "maxLength": 1000, "examples": ["file:plan.md"]})
]
Priority = Annotated[int, Meta(extra_json_schema={"minimum": -1_000_000, "maximum": 1_000_000})]
Retries = Annotated[int, Meta(extra_json_schema={"minimum": 0, "maximum": MOST_RETRIES})]
Weight = Annotated[int, Meta(extra_json_schema={"minimum": 1, "maximum": MOST_WEIGHT})]


def _id(noun: str) -> Meta:
    return Meta(extra_json_schema={"pattern": f"^{noun}-[1-9][0-9]{{0,17}}$", "examples": [f"{noun}-24"]})


JobText = Annotated[str, _id("job")]
RunText = Annotated[str, _id("run")]
SlotText = Annotated[str, _id("slot")]
GroupText = Annotated[str, _id("group")]
TemplateText = Annotated[str, _id("template")]
ScheduleText = Annotated[str, _id("schedule")]
WebhookText = Annotated[str, _id("webhook")]
DeliveryText = Annotated[str, _id("delivery")]
JobsCursor = Annotated[
    str, Meta(extra_json_schema={"pattern": r"^(active(\.-?[0-9]{1,18}){4}|ended\.job-[1-9][0-9]{0,17})$"})
]
QueueCursor = Annotated[str, Meta(extra_json_schema={"pattern": r"^-?[0-9]{1,18}(\.-?[0-9]{1,18}){3}$"})]
ArtifactsCursor = Annotated[str, Meta(extra_json_schema={"pattern": r"^[0-9]{1,5}\."})]
"""Of lists whose order is not that of ids."""
Moment = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]

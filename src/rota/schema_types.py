"""Types of the texts and numbers in JSON, with their schemas, and the error for JSON that does not match a schema.

They describe the JSON of the API, `--json`, webhooks and the files in the home.

Most constraints only appear in the OpenAPI document: the commands validate them with better error messages than a
failed pattern gives, and the schemas repeat what the commands accept. Texts that no command validates get their maximum
length here.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from rota.errors import InvalidInput
from rota.kernel.job import MAX_URL_LENGTH
from rota.kernel.pools import MAX_WEIGHT
from rota.kernel.retry import MAX_RETRIES
from rota.naming import MAX_SCRIPT_LENGTH, MAX_TITLE_LENGTH, ONE_LINE_PATTERN

# Not `\s`: its meaning differs between Python and JSON Schema.
_SPACE_CHARACTERS = r"\u0000-\u0020\u007f\u0085\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
_NAME_PATTERN = rf"^[^*/{_SPACE_CHARACTERS}][^*{_SPACE_CHARACTERS}]*$"
_SIMPLE_NAME_PATTERN = rf"^[^*/{_SPACE_CHARACTERS}]+$"
NO_NUL_PATTERN = r"^[^\u0000]*$"

_ERROR_LOCATION_PATTERN = re.compile(r" - at `\$([^`]*)`$")
"""Location of the error in a message of msgspec."""
_ERROR_FIELD_PATTERN = re.compile(r"(?:unknown|missing required) field `([^`]*)`")

Name = Annotated[str, Meta(extra_json_schema={"pattern": _NAME_PATTERN, "maxLength": 200})]
"""Name of a type, flow or target."""
SimpleName = Annotated[str, Meta(extra_json_schema={"pattern": _SIMPLE_NAME_PATTERN, "maxLength": 200})]
"""Name without a slash."""
Text = Annotated[str, Meta(extra_json_schema={"pattern": NO_NUL_PATTERN})]
"""Text that can be passed to a program."""
TitleText = Annotated[str, Meta(extra_json_schema={"pattern": f"^{ONE_LINE_PATTERN}*$", "maxLength": MAX_TITLE_LENGTH})]
"""Display name."""
ShellScript = Annotated[str, Meta(extra_json_schema={"pattern": NO_NUL_PATTERN, "maxLength": MAX_SCRIPT_LENGTH})]
NameOrId = Annotated[str, Meta(max_length=200, extra_json_schema={"pattern": NO_NUL_PATTERN})]
"""Name or id of an existing object. No object has a longer one."""
GitRef = Annotated[str, Meta(max_length=1000, extra_json_schema={"pattern": NO_NUL_PATTERN})]
"""Revision of a git repository."""
KeyText = Annotated[
    str, Meta(extra_json_schema={"pattern": f"^{ONE_LINE_PATTERN}+$", "minLength": 1, "maxLength": 200})
]
"""Key of a lock, or unique key."""
DurationText = Annotated[
    str, Meta(extra_json_schema={"pattern": r"^([0-9]+(\.[0-9]+)?(ms|s|m|h|d))+$", "examples": ["300ms", "2m30s"]})
]
"""Duration. The maximum is ten years."""
AbsolutePath = Annotated[str, Meta(max_length=4096, extra_json_schema={"pattern": r"^/[^\u0000]*$"})]
Url = Annotated[str, Meta(max_length=MAX_URL_LENGTH, extra_json_schema={"pattern": "^https?://[!-~]+$"})]
ArtifactText = Annotated[
    str,
    Meta(
        extra_json_schema={"pattern": f"^[a-z_]+:{ONE_LINE_PATTERN}+$", "maxLength": 1000, "examples": ["file:plan.md"]}
    ),
]
Priority = Annotated[int, Meta(extra_json_schema={"minimum": -1_000_000, "maximum": 1_000_000})]
Retries = Annotated[int, Meta(extra_json_schema={"minimum": 0, "maximum": MAX_RETRIES})]
Weight = Annotated[int, Meta(extra_json_schema={"minimum": 1, "maximum": MAX_WEIGHT})]
TimestampText = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]


PageSize = Annotated[int, Meta(ge=1, le=1000)]


def _id_schema(noun: str) -> Meta:
    return Meta(extra_json_schema={"pattern": f"^{noun}-[1-9][0-9]{{0,17}}$", "examples": [f"{noun}-24"]})


JobIdText = Annotated[str, _id_schema("job")]
RunIdText = Annotated[str, _id_schema("run")]
ReservationIdText = Annotated[str, _id_schema("reservation")]
GroupIdText = Annotated[str, _id_schema("group")]
TemplateIdText = Annotated[str, _id_schema("template")]
ScheduleIdText = Annotated[str, _id_schema("schedule")]
WebhookIdText = Annotated[str, _id_schema("webhook")]
DeliveryIdText = Annotated[str, _id_schema("delivery")]
JobsCursor = Annotated[
    str, Meta(extra_json_schema={"pattern": r"^((started|waiting)(\.-?[0-9]{1,18}){4}|ended\.job-[1-9][0-9]{0,17})$"})
]
QueueCursor = Annotated[str, Meta(extra_json_schema={"pattern": r"^-?[0-9]{1,18}(\.-?[0-9]{1,18}){3}$"})]
ArtifactsCursor = Annotated[str, Meta(extra_json_schema={"pattern": r"^[0-9]{1,5}\."})]
"""Cursor of a list that is not sorted by id."""


def encode(value: Any) -> bytes:
    return msgspec.json.encode(value)


def make_validation_error(subject: str, error: Exception, prefix: str = "") -> InvalidInput:
    """Make a refusal from an error of msgspec. `subject` is the invalid part of the request, and `prefix` its
    location."""
    text = _ERROR_LOCATION_PATTERN.sub("", f"{error}")
    match = _ERROR_LOCATION_PATTERN.search(f"{error}")
    location = "" if match is None else match[1]
    path = location.partition("[...]")[0]  # msgspec does not report keys of mappings
    if (field := _ERROR_FIELD_PATTERN.search(text)) is not None:
        path += f".{field[1]}"
    message = f"{subject} cannot be used: {text}"
    return InvalidInput(f"{message} - at `${prefix}{location}`" if location or prefix else message).at_path(
        prefix + path
    )

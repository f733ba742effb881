"""What may be a name: of a type, a flow, a target, a pool. One rule, for submit and configuration alike."""

from __future__ import annotations

import re

POOL_KINDS = ("type", "flow", "target", "resource")
GLOBAL = "global"

_NAME = re.compile(r"[^\s*/\x00-\x1f\x7f\ud800-\udfff][^\s*\x00-\x1f\x7f\ud800-\udfff]{0,199}")

_SHOWN = r"[^\s*/\x00-\x1f\x7f][^\s*\x00-\x1f\x7f]{0,199}"
POOL_SHOWN = rf"^(global|({'|'.join(POOL_KINDS)})/({_SHOWN}|\*))$"
SCOPE_SHOWN = rf"^(global|({'|'.join(POOL_KINDS)})/{_SHOWN})$"
"""As the API's document says it: a text of JSON has no surrogates."""

MOST_TITLE = 500
"""Characters of what people call a job. Whatever is longer is what it is to do, and belongs into its params."""
MOST_SCRIPT = 65_536
"""Characters of a shell command that stands in a job."""
NAME_RULE = "1 to 200 characters without spaces or *, not starting with /"


def is_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None


def is_pool_name(text: str, *, wildcard: bool = False) -> bool:
    """`global`, or a kind and a name; in the configuration also `flow/*`, for each one without a line of its own."""
    kind, _, name = text.partition("/")
    return text == GLOBAL or (kind in POOL_KINDS and (is_name(name) or (wildcard and name == "*")))

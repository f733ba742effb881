"""Rules for names of types, flows, targets, pools and keys, shared by submit, the configuration and the OpenAPI
document.
"""

from __future__ import annotations

import re

POOL_KINDS = ("type", "flow", "target", "resource")
GLOBAL = "global"

NAME_RULE = "1 to 200 characters without spaces or *, not starting with /"
_NAME = re.compile(r"[^\s*/\x00-\x1f\x7f\ud800-\udfff][^\s*\x00-\x1f\x7f\ud800-\udfff]{0,199}")
_NAME_PATTERN = r"[^\s*/\x00-\x1f\x7f][^\s*\x00-\x1f\x7f]{0,199}"
POOL_PATTERN = rf"^(global|({'|'.join(POOL_KINDS)})/({_NAME_PATTERN}|\*))$"
SCOPE_PATTERN = rf"^(global|({'|'.join(POOL_KINDS)})/{_NAME_PATTERN})$"
"""Pattern for the OpenAPI document. It needs no surrogates, because JSON text has none."""

_MAX_KEY_LENGTH = 200
KEY_RULE = f"1 to {_MAX_KEY_LENGTH} characters on one line"

LINE_BREAKS = r"\n\v\f\r\x1c-\x1e\x85\u2028\u2029"
_LINE_BREAK = re.compile(f"[{LINE_BREAKS}]")
ONE_LINE_PATTERN = r"[^\u0000\n\u000b\u000c\r\u001c-\u001e\u0085\u2028\u2029]"
"""Character class of a one-line text without NUL, as a pattern for the OpenAPI document."""

MAX_TITLE_LENGTH = 500
"""Maximum length of the name of a job. A longer text is a description of the work and belongs in its params."""
MAX_SCRIPT_LENGTH = 65_536
"""Maximum length of the shell command of a job."""


def is_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None


def quote_unusable(name: str) -> str:
    """Quote a name for a refusal. Name a line break: it is hard to see in the quoted text."""
    return f"{name!r}, which has a line break" if has_line_break(name) else repr(name)


def is_key(text: str) -> bool:
    """Return whether the text is valid as the key of a lock or as a unique key."""
    return 0 < len(text) <= _MAX_KEY_LENGTH and "\x00" not in text and not has_line_break(text)


def has_line_break(text: str) -> bool:
    """Return whether the text contains a line break of any kind that `str.splitlines` knows."""
    return _LINE_BREAK.search(text) is not None


def is_pool_name(text: str, *, wildcard: bool = False) -> bool:
    """Return whether the text is `global` or KIND/NAME.

    With `wildcard`, the name can be `*`. In the configuration, `flow/*` applies to every flow without its own key.
    """
    kind, _, name = text.partition("/")
    return text == GLOBAL or (kind in POOL_KINDS and (is_name(name) or (wildcard and name == "*")))

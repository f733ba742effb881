"""Working directory and environment of the calling program. Jobs run in them and relative paths refer to them, as with
the CLI."""

from __future__ import annotations

import os

from rota.client.requests import Request
from rota.client.requests.arguments import as_mapping


def with_environment(request: Request) -> Request:
    """Add the program's directory and environment to a request that does not specify them. `env` is added to the
    program's own environment; an explicit `inherit_env` replaces it."""
    body = dict(request.body)
    if body.get("cwd") is None:
        body["cwd"] = current_directory()
    if "inherit_env" not in body:
        explicit = as_mapping("env", body.get("env") or {})
        body |= {"env": {**_text_environment(), **explicit}, "inherit_env": False}
        if explicit and "jobs" not in body:
            body["explicit_env"] = list(explicit)
    return request.with_body(body)


def current_directory() -> str:
    return os.getcwd()  # noqa: PTH109 - a path as the shell shows it


def _text_environment() -> dict[str, str]:
    """Return the environment without variables that are not UTF-8: JSON cannot represent them."""
    return {name: value for name, value in os.environ.items() if _is_text(name + value)}


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # Python represents bytes that are not UTF-8 as lone surrogates.
        return False
    return True

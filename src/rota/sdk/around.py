"""Where a program stands that asks the scheduler of a home. What it submits runs there and what it puts belongs there,
as with the CLI."""

from __future__ import annotations

import os

from rota.client.ask import Ask
from rota.client.ask.given import mapped


def here(ask: Ask) -> Ask:
    """With the program's directory and environment, unless it says something else. `env` goes on top of its own; who
    says `inherit_env` has said all of it."""
    body = dict(ask.body)
    if body.get("cwd") is None:
        body["cwd"] = directory()
    if "inherit_env" not in body:
        given = mapped("env", body.get("env") or {})
        body |= {"env": {**_environment(), **given}, "inherit_env": False}
        if given and "jobs" not in body:
            body["env_given"] = list(given)
    return ask.with_body(body)


def directory() -> str:
    return os.getcwd()  # noqa: PTH109 - as the shell names it


def _environment() -> dict[str, str]:
    """JSON is text, so a variable that is not UTF-8 cannot be carried."""
    return {name: value for name, value in os.environ.items() if _is_text(name + value)}


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # Python keeps bytes that are not UTF-8 as lone surrogates.
        return False
    return True

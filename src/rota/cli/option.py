"""What the scheduler says of fields of a request, said of the options that a person has written."""

from __future__ import annotations

import argparse
import re

_FIELD = re.compile(r"`([a-z_]+)`")


def in_options(message: str, parser: argparse.ArgumentParser) -> str:
    """`with_diff` is --with-diff, and `webhooks` are given by --webhook; what is no option stays as it is."""
    options = _options(parser)

    def option(found: re.Match[str]) -> str:
        name = f"--{found[1].replace('_', '-')}"
        return next((each for each in (name, name.removesuffix("s")) if each in options), found[0])

    return _FIELD.sub(option, message)


def _options(parser: argparse.ArgumentParser) -> set[str]:
    """Those of its actions too."""
    options: set[str] = set()
    for action in parser._actions:
        options.update(action.option_strings)
        if isinstance(action, argparse._SubParsersAction):
            for child in action.choices.values():
                options |= _options(child)
    return options

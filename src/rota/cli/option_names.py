"""Translation of request fields in messages of the scheduler to command-line options."""

from __future__ import annotations

import argparse
import re

from rota.cli.parser import option_strings

_FIELD = re.compile(r"`([a-z_]+)`")


def as_option_names(message: str, parser: argparse.ArgumentParser) -> str:
    """Replace `with_diff` by --with-diff and `webhooks` by --webhook; keep names that are not options."""
    options = option_strings(parser)

    def replace(match: re.Match[str]) -> str:
        name = f"--{match[1].replace('_', '-')}"
        return next((option for option in (name, name.removesuffix("s")) if option in options), match[0])

    return _FIELD.sub(replace, message)

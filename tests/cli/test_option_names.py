"""Fields in messages of the scheduler are replaced by the options of the command."""

from __future__ import annotations

import pytest

from rota.cli.option_names import as_option_names
from rota.cli.parser import verb_parser


@pytest.mark.parametrize(
    ("verb", "message", "output"),
    [
        ("submit", "phase p needs a flow; set `flow` too", "phase p needs a flow; set --flow too"),
        ("submit", "leave `with_diff` out", "leave --with-diff out"),
        ("submit", "name one, in `webhooks`", "name one, in --webhook"),
        ("schedule", "unknown `base`: x", "unknown --base: x"),
        ("move", "`last` puts it last", "--last puts it last"),
        # A field of the workflow file: `apply` has no option of that name.
        ("apply", "set `flow` too", "set `flow` too"),
        (
            "submit",
            "`rota list` shows them; use the `next` of the previous page",
            "`rota list` shows them; use the `next` of the previous page",
        ),
    ],
)
def test_fields_are_replaced_by_option_names(verb: str, message: str, output: str) -> None:
    parser, _ = verb_parser(verb)
    assert as_option_names(message, parser) == output

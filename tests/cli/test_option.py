"""What the scheduler says of a field is said of the option that it was written with."""

from __future__ import annotations

import pytest

from rota.cli.option import in_options
from rota.cli.parser import verb_parser


@pytest.mark.parametrize(
    ("verb", "message", "said"),
    [
        ("submit", "phase p is one of a flow: name the `flow` too", "phase p is one of a flow: name the --flow too"),
        ("submit", "leave `with_diff` out", "leave --with-diff out"),
        ("submit", "name one, in `webhooks`", "name one, in --webhook"),
        ("schedule", "unknown `base`: x", "unknown --base: x"),
        ("move", "`last` puts it last", "--last puts it last"),
        ("apply", "name the `flow` too", "name the `flow` too"),
        ("submit", "`rota list` shows them; use the `next` of the page before",
         "`rota list` shows them; use the `next` of the page before"),
    ],
)  # fmt: skip
def test_a_field_is_the_option_of_its_name(verb: str, message: str, said: str) -> None:
    parser, _ = verb_parser(verb)
    assert in_options(message, parser) == said

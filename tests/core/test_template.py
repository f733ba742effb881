"""Places: only those of declared params are filled, each within its argument, and nothing else is touched."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.core.template import Recipe, TemplateBody, fill, fill_all, follow, merged, places, recipe_of
from rota.errors import InvalidInput

NAMES = st.sampled_from(["a", "b", "prompt", "model-1", "ü", "a b"])
VALUES = st.one_of(
    st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\x00")),
    st.sampled_from(["{a}", "{b}", "}{", "{prompt", "-rf", "$(x)", "'\"\n"]),
    st.integers(), st.booleans(), st.none(), st.lists(st.integers()), st.dictionaries(st.text("ab{}"), st.integers()),
)  # fmt: skip
PIECES = st.one_of(
    NAMES.map(lambda name: f"{{{name}}}"),
    st.sampled_from(["{", "}", "{{", "{}", "{ a }", "{A}", "{print $1}", "x", ""]),
)


def shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"), ensure_ascii=False)


@given(st.lists(st.lists(PIECES, max_size=6), max_size=5), st.dictionaries(NAMES, VALUES), st.frozensets(NAMES))
def test_what_is_no_place_stays_and_what_is_one_is_filled_once(
    argv: list[list[str]], params: dict[str, Any], others: frozenset[str]
) -> None:
    """The number of arguments never changes, whatever the values are."""
    declared = frozenset(params)
    texts = ["".join(pieces) for pieces in argv]
    filled = fill_all(texts, params, declared)
    assert len(filled) == len(texts)
    for text, result in zip(texts, filled, strict=True):
        parts = re.split(r"\{([^{}]*)\}", text)
        expected = "".join(
            part if n % 2 == 0 else shown(params[part]) if part in declared else f"{{{part}}}"
            for n, part in enumerate(parts)
        )
        assert result == expected
        assert fill(text, params, frozenset()) == text
        if not places(text, declared):
            assert result == text


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("{prompt}", "say {n} \"x\""), ("--n={n}", "--n=3"), ("{n}{n}", "33"), ("{on}", "true"), ("{none}", "null"),
        ("{list}", '[1,"é"]'), ("{{n}}", "{3}"), ("{}", "{}"), ('{"n": {n}}', '{"n": 3}'), ("{print $1}", "{print $1}"),
        ("{other}", "{other}"), ("{ n }", "{ n }"), ("{n", "{n"), ("{1.5}", "2.5"), ("", ""),
    ],
)  # fmt: skip
def test_fill(text: str, result: str) -> None:
    params = {"prompt": 'say {n} "x"', "n": 3, "on": True, "none": None, "list": [1, "é"], "1.5": 2.5}
    assert fill(text, params, frozenset(params)) == result


def test_a_param_without_a_value_is_named_with_how_to_give_it() -> None:
    with pytest.raises(InvalidInput, match=r"^param prompt has no value.*give it in `params`"):
        fill("-p {prompt}", {}, frozenset({"prompt"}))


def test_a_value_with_nul_is_refused() -> None:
    with pytest.raises(InvalidInput, match="param a has a NUL character"):
        fill("{a}", {"a": "x\x00y"}, frozenset("a"))


def test_an_argument_that_no_program_can_be_given_is_refused() -> None:
    assert len(fill_all(["{a}"], {"a": "x" * 131071}, frozenset("a"))[0]) == 131071
    for value in ("x" * 131072, "é" * 65536):
        with pytest.raises(InvalidInput, match=r"argument '\{a\}' becomes longer than 131071 bytes.*in a file"):
            fill_all(["{a}"], {"a": value}, frozenset("a"))


def test_params_are_declared_by_a_default_or_by_the_schema() -> None:
    body = TemplateBody(default_params={"a": 1}, params_schema={"properties": {"b": {}, "c": True}})
    assert body.declared == {"a", "b", "c"}
    assert TemplateBody(params_schema={"properties": 5}).declared == frozenset()


def test_later_layers_win_by_key_and_are_not_merged_further() -> None:
    assert merged({"a": 1, "b": {"x": 1}}, {"b": {"y": 2}, "c": 3}, {"c": None}) == {"a": 1, "b": {"y": 2}, "c": None}


BODY = TemplateBody(
    command=("say", "{what}"), default_params={"what": "x", "where": "y", "who": "z"}, job_name="say {what}",
    locks=("door/{where}",), target="{who}",
)  # fmt: skip


def taken(_schema: object, _params: object) -> None: ...


def test_what_follows_from_new_params() -> None:
    recipe = recipe_of(BODY, has_own_name=False)
    was = {"what": "x", "where": "y", "who": "z"}
    assert follow(recipe, was, {**was, "what": "{who}"}, taken) == {"command": ("say", "{who}"), "name": "say {who}"}
    for name, field in (("where", "locks"), ("who", "target")):
        for params in ({**was, name: "other"}, {key: value for key, value in was.items() if key != name}):
            with pytest.raises(
                InvalidInput, match=rf"param {name} has a place in its {field}, which is fixed at submit"
            ):
                follow(recipe, was, params, taken)


def test_what_the_submit_said_itself_does_not_follow() -> None:
    recipe = recipe_of(BODY, has_own_name=True, own=frozenset({"target"}))
    was = {"what": "x", "where": "y", "who": "z"}
    assert follow(recipe, was, {**was, "who": "other"}, taken) == {"command": ("say", "x")}


def test_the_schema_in_force_is_asked_first() -> None:
    def refuse(schema: object, params: object) -> None:
        raise InvalidInput(f"{schema} {params}")

    with pytest.raises(InvalidInput, match=r"\{'type': 'object'\} \{\}"):
        follow(Recipe(schema={"type": "object"}), {}, {}, refuse)

"""Placeholders: only declared params are filled, each within its argument, and other text is unchanged."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.errors import InvalidInput
from rota.kernel.job import TemplateSnapshot
from rota.templates.model import (
    TemplateBody,
    fill_all_placeholders,
    fill_placeholders,
    find_placeholders,
    make_snapshot,
    merge_params,
    rerender_fields,
)

NAMES = st.sampled_from(["a", "b", "prompt", "model-1", "ü", "a b"])
VALUES = st.one_of(
    st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\x00")),
    st.sampled_from(["{a}", "{b}", "}{", "{prompt", "-rf", "$(x)", "'\"\n"]),
    st.integers(),
    st.booleans(),
    st.none(),
    st.lists(st.integers()),
    st.dictionaries(st.text("ab{}"), st.integers()),
)
PIECES = st.one_of(
    NAMES.map(lambda name: f"{{{name}}}"),
    st.sampled_from(["{", "}", "{{", "{}", "{ a }", "{A}", "{print $1}", "x", ""]),
)


def format_value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"), ensure_ascii=False)


@given(st.lists(st.lists(PIECES, max_size=6), max_size=5), st.dictionaries(NAMES, VALUES), st.frozensets(NAMES))
def test_only_declared_placeholders_are_filled_once(
    argv: list[list[str]], params: dict[str, Any], others: frozenset[str]
) -> None:
    """The number of arguments never changes, whatever the values are."""
    declared = frozenset(params)
    texts = ["".join(pieces) for pieces in argv]
    filled = fill_all_placeholders(texts, params, declared)
    assert len(filled) == len(texts)
    for text, result in zip(texts, filled, strict=True):
        parts = re.split(r"\{([^{}]*)\}", text)
        expected = "".join(
            part if n % 2 == 0 else format_value(params[part]) if part in declared else f"{{{part}}}"
            for n, part in enumerate(parts)
        )
        assert result == expected
        assert fill_placeholders(text, params, frozenset()) == text
        if not find_placeholders(text, declared):
            assert result == text


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("{prompt}", 'say {n} "x"'),
        ("--n={n}", "--n=3"),
        ("{n}{n}", "33"),
        ("{on}", "true"),
        ("{none}", "null"),
        ("{list}", '[1,"é"]'),
        ("{{n}}", "{3}"),
        ("{}", "{}"),
        ('{"n": {n}}', '{"n": 3}'),
        ("{print $1}", "{print $1}"),
        ("{other}", "{other}"),
        ("{ n }", "{ n }"),
        ("{n", "{n"),
        ("{1.5}", "2.5"),
        ("", ""),
    ],
)
def test_fill_placeholders(text: str, result: str) -> None:
    params = {"prompt": 'say {n} "x"', "n": 3, "on": True, "none": None, "list": [1, "é"], "1.5": 2.5}
    assert fill_placeholders(text, params, frozenset(params)) == result


def test_param_without_value_is_refused_with_a_hint() -> None:
    with pytest.raises(InvalidInput, match=r"^param prompt has no value.*set it in `params`"):
        fill_placeholders("-p {prompt}", {}, frozenset({"prompt"}))


def test_value_with_nul_is_refused() -> None:
    with pytest.raises(InvalidInput, match="param a contains a NUL character"):
        fill_placeholders("{a}", {"a": "x\x00y"}, frozenset("a"))


def test_too_long_argument_is_refused() -> None:
    assert len(fill_all_placeholders(["{a}"], {"a": "x" * 131071}, frozenset("a"))[0]) == 131071
    for value in ("x" * 131072, "é" * 65536):
        with pytest.raises(InvalidInput, match=r"argument '\{a\}' is longer than 131071 bytes.*in a file"):
            fill_all_placeholders(["{a}"], {"a": value}, frozenset("a"))


def test_params_are_declared_by_default_or_schema() -> None:
    body = TemplateBody(default_params={"a": 1}, params_schema={"properties": {"b": {}, "c": True}})
    assert body.declared == {"a", "b", "c"}
    assert TemplateBody(params_schema={"properties": 5}).declared == frozenset()


def test_merge_params_overrides_by_key_without_deep_merge() -> None:
    assert merge_params({"a": 1, "b": {"x": 1}}, {"b": {"y": 2}, "c": 3}, {"c": None}) == {
        "a": 1,
        "b": {"y": 2},
        "c": None,
    }


BODY = TemplateBody(
    command=("say", "{text}"),
    default_params={"text": "x", "room": "y", "host": "z"},
    job_name="say {text}",
    locks=("door/{room}",),
    target="{host}",
)


def accept_params(_schema: object, _params: object) -> None: ...


def test_new_params_rerender_command_and_name() -> None:
    snapshot = make_snapshot(BODY, has_own_name=False)
    old_params = {"text": "x", "room": "y", "host": "z"}
    assert rerender_fields(snapshot, old_params, {**old_params, "text": "{host}"}, accept_params) == {
        "command": ("say", "{host}"),
        "name": "say {host}",
    }
    for name, field in (("room", "locks"), ("host", "target")):
        for params in ({**old_params, name: "other"}, {key: value for key, value in old_params.items() if key != name}):
            with pytest.raises(
                InvalidInput, match=rf"param {name} has a placeholder in {field}, which is fixed at submit"
            ):
                rerender_fields(snapshot, old_params, params, accept_params)


def test_overridden_fields_do_not_follow_params() -> None:
    snapshot = make_snapshot(BODY, has_own_name=True, overridden=frozenset({"target"}))
    old_params = {"text": "x", "room": "y", "host": "z"}
    assert rerender_fields(snapshot, old_params, {**old_params, "host": "other"}, accept_params) == {
        "command": ("say", "x")
    }


def test_params_are_checked_against_the_stored_schema_first() -> None:
    def refuse(schema: object, params: object) -> None:
        raise InvalidInput(f"{schema} {params}")

    with pytest.raises(InvalidInput, match=r"\{'type': 'object'\} \{\}"):
        rerender_fields(TemplateSnapshot(schema={"type": "object"}), {}, {}, refuse)

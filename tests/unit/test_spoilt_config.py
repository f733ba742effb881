"""`rota.toml` of any bytes, and of files that were right once: a configuration that can be used, or a clear refusal."""

from __future__ import annotations

import io
import json
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st

from rota.cli.main import main
from rota.config import Config, Queue, Retry, get, listing, load
from rota.config.key import path_of
from rota.engine.settings import gc_policy, settings_of
from rota.errors import ConfigError
from rota.home import Home
from sample import sample


def _written(config: Config) -> str:
    """All of it, as somebody could have typed it."""
    tables: dict[tuple[str, ...], list[str]] = {}
    for key, value in listing(config).items():
        *table, name = path_of(key)
        if value is not None:
            tables.setdefault(tuple(table), []).append(f"{json.dumps(name)} = {json.dumps(value)}\n")
    return "\n".join(
        f"[{'.'.join(map(json.dumps, table))}]\n{''.join(lines)}" for table, lines in sorted(tables.items())
    )


WHOLE = _written(
    Config(
        pools={"global": 2, "flow/*": 1, "resource/ollama": 1},
        policies={"night": Retry(), "fleet": Retry()},
        flows={"build": Queue(soft_limit=4, hard_limit=9)},
        routes={"/story/generate": "story"},
    )
)
LINES = WHOLE.splitlines(keepends=True)
VALUES = [
    "", "0", "-1", "1.5", "-0.0", "inf", "-inf", "nan", "true", "[]", "{}", "[[]]", "[1, 'a']", '""', "' '", "'x'",
    "'off'", "'auto'", "'1s'", "'-1s'", "'9999999d'", "'1e9s'", "'0s'", "1979-05-27", "07:32:00", "0xff",
    "1979-05-27T07:32:00Z", "9223372036854775807", "9223372036854775808", "1" + "0" * 400, "1e400", "[" * 2000,
    "{a=" * 2000, '"\\u0000"', '"\\ud800"', "'''", "'\\'", "# x", "'" + "x" * 70_000 + "'", "'../../x'",
    "'::1/0'", "['::1/999']", "['a', 'a']",
]  # fmt: skip
HEADS = [
    "[pools]",
    "[[pools]]",
    "[scheduler.x]",
    "[retry.x.y]",
    '[""]',
    '["\\u0000"]',
    "[display]",
    "[queue.'*']",
    "[x",
    "]",
]


@st.composite
def spoilt_files(draw: st.DrawFn) -> bytes:
    how = draw(st.sampled_from(["binary", "cut", "overwritten", "value", "value", "value", "value", "twice", "head"]))
    data = WHOLE.encode()
    if how == "binary":
        return draw(st.binary(max_size=300))
    if how == "cut":
        return data[: draw(st.integers(0, len(data)))]
    if how == "overwritten":
        begin = draw(st.integers(0, len(data)))
        return data[:begin] + draw(st.binary(min_size=1, max_size=6)) + data[begin + draw(st.integers(0, 6)) :]
    lines = list(LINES)
    at = draw(st.integers(0, len(lines) - 1))
    if how == "twice":
        lines.insert(at, draw(st.sampled_from(LINES)))
    elif how == "head" or " = " not in lines[at]:
        lines[at] = draw(st.sampled_from(HEADS)) + "\n"
    else:
        lines[at] = f"{lines[at].partition(' = ')[0]} = {draw(st.sampled_from(VALUES))}\n"
    return "".join(lines).encode()


def trouble_with(home: Home, data: bytes) -> str | None:
    """What is wrong with such a file; none where all that is made of it can be used."""
    home.config.write_bytes(data)
    try:
        config = load(home.config)
    except ConfigError as error:
        return error.message
    settings_of(config, home)
    gc_policy(config.gc)
    assert all(get(config, key) == value for key, value in listing(config).items())
    return None


def test_the_whole_is_right() -> None:
    with tempfile.TemporaryDirectory() as directory:
        assert trouble_with(Home(Path(directory)), WHOLE.encode()) is None
    assert len(LINES) > 60


@settings(max_examples=sample(300))
@given(spoilt_files())
@example(b"\xff")
@example(b"[pools]\nglobal = \xed\xa0\x80\n")
@example(b'[pools]\n"global\\u0000" = 1\n')
def test_any_file_is_understood_or_refused_in_words(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as directory:
        trouble = trouble_with(Home(Path(directory)), data)
    if trouble is not None:
        assert "rota.toml" in trouble
        assert trouble.encode(), "it can be printed anywhere"
        assert len(trouble) < 2000


@settings(max_examples=sample(25))
@given(spoilt_files())
def test_the_doctor_says_the_same(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as directory:
        home = Home(Path(directory))
        trouble = trouble_with(home, data)
        said = io.StringIO()
        with redirect_stdout(said), redirect_stderr(said):
            code = main(["--home", directory, "doctor", "--json"])
    found = {each["name"]: each for each in json.loads(said.getvalue())["checks"]}["config"]
    assert found["verdict"] == ("ok" if trouble is None else "fail")
    if trouble is not None:
        assert (code, found["text"]) == (1, trouble)

"""Random bytes and damaged versions of a valid `rota.toml`: a usable configuration or a clear refusal."""

from __future__ import annotations

import io
import json
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st

from rota.cli.main import main
from rota.config import Config, QueueConfig, RetryConfig, SourceConfig, TargetConfig, get, list_values, load
from rota.config.key import split_key
from rota.engine.settings import make_gc_policy, settings_from_config
from rota.errors import ConfigError
from rota.home import Home
from tests.sample import sample


def _render(config: Config) -> str:
    """Return the complete configuration as TOML."""
    tables: dict[tuple[str, ...], list[str]] = {}
    for key, value in list_values(config).items():
        *table, name = split_key(key)
        if value is not None:
            tables.setdefault(tuple(table), []).append(f"{json.dumps(name)} = {json.dumps(value)}\n")
    return "\n".join(
        f"[{'.'.join(map(json.dumps, table))}]\n{''.join(lines)}" for table, lines in sorted(tables.items())
    )


COMPLETE = _render(
    Config(
        pools={"global": 2, "flow/*": 1, "resource/ollama": 1},
        policies={"night": RetryConfig(), "fleet": RetryConfig()},
        flows={"build": QueueConfig(soft_limit=4, hard_limit=9)},
        routes={"/story/generate": "story"},
        sources={"town": SourceConfig(path="/town"), "my.list": SourceConfig(path="list.yaml", kind="list")},
        targets={"web": TargetConfig(path="/web", prefix="web-", template="agent", base="main", max=2)},
    )
)
LINES = COMPLETE.splitlines(keepends=True)
VALUES = [
    "",
    "0",
    "-1",
    "1.5",
    "-0.0",
    "inf",
    "-inf",
    "nan",
    "true",
    "[]",
    "{}",
    "[[]]",
    "[1, 'a']",
    '""',
    "' '",
    "'x'",
    "'off'",
    "'auto'",
    "'1s'",
    "'-1s'",
    "'9999999d'",
    "'1e9s'",
    "'0s'",
    "1979-05-27",
    "07:32:00",
    "0xff",
    "1979-05-27T07:32:00Z",
    "9223372036854775807",
    "9223372036854775808",
    "1" + "0" * 400,
    "1e400",
    "[" * 2000,
    "{a=" * 2000,
    '"\\u0000"',
    '"\\ud800"',
    "'''",
    "'\\'",
    "# x",
    "'" + "x" * 70_000 + "'",
    "'../../x'",
    "'::1/0'",
    "['::1/999']",
    "['a', 'a']",
]
HEADERS = [
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
def damaged_files(draw: st.DrawFn) -> bytes:
    damage = draw(
        st.sampled_from(["random", "cut", "overwrite", "value", "value", "value", "value", "duplicate", "header"])
    )
    data = COMPLETE.encode()
    if damage == "random":
        return draw(st.binary(max_size=300))
    if damage == "cut":
        return data[: draw(st.integers(0, len(data)))]
    if damage == "overwrite":
        begin = draw(st.integers(0, len(data)))
        return data[:begin] + draw(st.binary(min_size=1, max_size=6)) + data[begin + draw(st.integers(0, 6)) :]
    lines = list(LINES)
    index = draw(st.integers(0, len(lines) - 1))
    if damage == "duplicate":
        lines.insert(index, draw(st.sampled_from(LINES)))
    elif damage == "header" or " = " not in lines[index]:
        lines[index] = draw(st.sampled_from(HEADERS)) + "\n"
    else:
        lines[index] = f"{lines[index].partition(' = ')[0]} = {draw(st.sampled_from(VALUES))}\n"
    return "".join(lines).encode()


def find_fault(home: Home, data: bytes) -> str | None:
    """Return the refusal of the file, or None if the whole configuration can be used."""
    home.config.write_bytes(data)
    try:
        config = load(home.config)
    except ConfigError as error:
        return error.message
    settings_from_config(config, home)
    make_gc_policy(config.gc)
    assert all(get(config, key) == value for key, value in list_values(config).items())
    return None


def test_complete_file_is_valid() -> None:
    with tempfile.TemporaryDirectory() as directory:
        assert find_fault(Home(Path(directory)), COMPLETE.encode()) is None
    assert len(LINES) > 60


@settings(max_examples=sample(300))
@given(damaged_files())
@example(b"\xff")
@example(b"[pools]\nglobal = \xed\xa0\x80\n")
@example(b'[pools]\n"global\\u0000" = 1\n')
def test_any_file_is_loaded_or_refused_with_a_message(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as directory:
        fault = find_fault(Home(Path(directory)), data)
    if fault is not None:
        assert "rota.toml" in fault
        assert fault.encode(), "the message can be printed"
        assert len(fault) < 2000


@settings(max_examples=sample(25))
@given(damaged_files())
def test_doctor_reports_the_same_fault(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as directory:
        home = Home(Path(directory))
        fault = find_fault(home, data)
        output = io.StringIO()
        with redirect_stdout(output), redirect_stderr(output):
            code = main(["--home", directory, "doctor", "--json"])
    finding = {check["name"]: check for check in json.loads(output.getvalue())["checks"]}["config"]
    assert finding["verdict"] == ("ok" if fault is None else "fail")
    if fault is not None:
        assert (code, finding["text"]) == (1, fault)

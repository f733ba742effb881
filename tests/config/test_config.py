"""`rota.toml`: accepted values, refusals and their messages, and edits that preserve the file."""

from __future__ import annotations

import errno
import json
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota import config, naming
from rota.cli import config as config_command
from rota.config import UNSET, Config, GcConfig, QueueConfig, RetryConfig, SchedulerConfig, edit, get, list_values, load
from rota.config.key import POLICY_RULE, POOL_RULE
from rota.config.section import TABLES
from rota.duration import format_duration, parse_duration
from rota.errors import ConfigError, InvalidInput, StorageFull
from rota.kernel import pools as kernel_pools
from tests.sample import sample

DISPLAY = ("display.list.format", "display.list.fields", "display.show.format", "display.show.fields")

COMMENTED = """\
# Local settings.

[pools]   # how much at once
global = 2  # two cores
# one agent to a flow
"flow/*" = 1

# How the scheduler behaves.
[scheduler]
grace   =   "1m"   # long enough for a test run
# nothing below
"""


@pytest.fixture
def toml(tmp_path: Path) -> Path:
    return tmp_path / "rota.toml"


def write_file(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_missing_file_gives_defaults(toml: Path) -> None:
    assert load(toml) == Config()


def listed_policy(prefix: str, **values: object) -> dict[str, object]:
    """Return the listing of a retry policy."""
    defaults = {
        "max_retries": 3,
        "base": "10s",
        "multiplier": 2.0,
        "jitter": 0.1,
        "cap": "5m",
        "exit_codes": [],
        "unknown_exit": "retry",
    }
    return {f"{prefix}.{name}": value for name, value in {**defaults, **values}.items()}


def test_dec_011_con_002_default_values() -> None:
    assert list_values(Config()) == {
        "pools.global": 1,
        "pools.flow/*": 1,
        "pools.resource/ollama": 1,
        "artifacts.plan_doc": "plans/{slug}.md",
        "scheduler.batch_size": None,
        "scheduler.spawn_delay": "0s",
        "scheduler.dispatch_interval": "off",
        "scheduler.policy": "pools",
        "scheduler.grace": "30s",
        "scheduler.kill_after": "5s",
        "scheduler.start_timeout": "5m",
        "scheduler.cgroups": "auto",
        "scheduler.hold_file": None,
        **listed_policy("retry", max_retries=3, base="10s"),
        **listed_policy("retry.fleet", max_retries=5, base="30s"),
        "queue.soft_limit": "off",
        "queue.hard_limit": "off",
        "breaker.dispatch_failures": 3,
        "breaker.start_delays": ["30s", "5m"],
        "breaker.window": "10m",
        "breaker.failures": 20,
        "breaker.cool_down": "10m",
        "direct.wait": "5m",
        "direct.lease": "10m",
        "webhooks.retries": 3,
        "webhooks.base": "5s",
        "webhooks.timeout": "30s",
        "webhooks.allow": [],
        "gc.days": 7,
        "gc.interval": "1d",
        "server.host": "127.0.0.1",
        "server.port": 7682,
        "server.tls_cert": None,
        "server.tls_key": None,
        "server.allowed_hosts": [],
        "store.url": None,
        "log.max_bytes": None,
        "log.depth_interval": "30s",
        "display.list.format": "table",
        "display.list.fields": None,
        "display.show.format": "block",
        "display.show.fields": None,
    }


def test_pool_kinds_equal_the_kinds_of_the_core() -> None:
    assert naming.POOL_KINDS == kernel_pools._KINDS


def test_values_are_merged_over_defaults(toml: Path) -> None:
    write_file(toml, '[pools]\nglobal = -1\n"target/web.app" = 0\n[scheduler]\nbatch_size = 3\ngrace = "1m30s"\n')
    assert load(toml) == Config(
        pools={"global": -1, "flow/*": 1, "resource/ollama": 1, "target/web.app": 0},
        scheduler=SchedulerConfig(batch_size=3, grace=timedelta(seconds=90)),
    )


def test_listing_is_in_pool_and_section_order(toml: Path) -> None:
    write_file(toml, '[scheduler]\n[pools]\n"resource/gpu" = 1\n"flow/b" = 1\n"flow/a" = 1\n"type/*" = 2\n')
    assert list(list_values(load(toml)))[:8] == [
        "pools.global",
        "pools.type/*",
        "pools.flow/*",
        "pools.flow/a",
        "pools.flow/b",
        "pools.resource/gpu",
        "pools.resource/ollama",
        "scheduler.batch_size",
    ]


def test_policy_inherits_from_retry(toml: Path) -> None:
    lines = ("[retry]", "multiplier = 3", "max_retries = 2", "[retry.fleet]", 'base = "1m"')
    write_file(toml, "\n".join((*lines, "[retry.night]", "exit_codes = [75]", "[retry.same]")))
    loaded = load(toml)
    assert loaded.retry == RetryConfig(multiplier=3, max_retries=2)
    assert loaded.policies == {
        "fleet": RetryConfig(multiplier=3, max_retries=5, base=timedelta(minutes=1)),
        "night": RetryConfig(multiplier=3, max_retries=2, exit_codes=(75,)),
        "same": RetryConfig(multiplier=3, max_retries=2),
    }
    assert get(loaded, "retry.night.exit_codes") == [75]


def test_queue_limits_of_flow_inherit_nothing(toml: Path) -> None:
    lines = ("[queue]", 'soft_limit = "auto"', "hard_limit = 50", "[queue.plan]", "soft_limit = 50", "[queue.build]")
    loaded = load(write_file(toml, "\n".join(lines)))
    assert loaded.queue == QueueConfig(soft_limit="auto", hard_limit=50)
    assert loaded.flows == {"build": QueueConfig(), "plan": QueueConfig(soft_limit=50)}
    assert get(loaded, "queue.plan.soft_limit") == 50
    assert get(loaded, "queue.plan.hard_limit") == "off"
    assert get(loaded, "queue.other.hard_limit") is None


def test_listing_is_plain_data() -> None:
    assert json.loads(json.dumps(list_values(Config()))) == list_values(Config())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "[scheduler]\nbatchsize = 1",
            "unknown key scheduler.batchsize in rota.toml; did you mean scheduler.batch_size?",
        ),
        ("concurrency = 4", f"unknown key concurrency in rota.toml; known sections: {', '.join(TABLES)}"),
        ("[nonsense]\nkey = 1", f"unknown key nonsense in rota.toml; known sections: {', '.join(TABLES)}"),
        ("[schedular]\nx = 1", "unknown key schedular in rota.toml; did you mean scheduler?"),
        ("[schedule]\n", "unknown key schedule in rota.toml; did you mean scheduler?"),
        ("[pool]\nglobal = 1", "unknown key pool in rota.toml; did you mean pools?"),
        ('grace = "1m"', "unknown key grace in rota.toml; did you mean scheduler.grace?"),
        ("[pools]\nglobl = 1", "unknown key pools.globl in rota.toml; did you mean pools.global?"),
        ("[pools]\nollama = 1", "unknown key pools.ollama in rota.toml; did you mean pools.resource/ollama?"),
        ("[retry]\nbse = 1", "unknown key retry.bse in rota.toml; did you mean retry.base?"),
        ("[retry.night]\nbse = 1", "unknown key retry.night.bse in rota.toml; did you mean retry.night.base?"),
        ("[retry.default]\nbase = 1", f"unknown key retry.default in rota.toml; {POLICY_RULE}"),
        ("[queue]\nsoftlimit = 1", "unknown key queue.softlimit in rota.toml; did you mean queue.soft_limit?"),
        ("[queue]\nplan = 1", "unknown key queue.plan in rota.toml; known keys: queue.soft_limit, queue.hard_limit"),
        (
            "[queue.plan]\nsoftlimit = 1",
            "unknown key queue.plan.softlimit in rota.toml; did you mean queue.plan.soft_limit?",
        ),
        ('[queue."*"]\n', "unknown key queue.* in rota.toml; known keys: queue.soft_limit, queue.hard_limit"),
        ("[displays]\n", "unknown key displays in rota.toml; did you mean display?"),
        ("[display.lst]\n", "unknown key display.lst in rota.toml; did you mean display.list?"),
        (
            "[display.show]\nfield = []",
            "unknown key display.show.field in rota.toml; did you mean display.show.fields?",
        ),
        ("[display.lists.jobs]\n", "unknown key display.lists in rota.toml; did you mean display.list?"),
        ("[display]\nlist = 3", f"unknown key display.list in rota.toml; known keys: {', '.join(DISPLAY)}"),
        ('[pools]\n"flows/x" = 1', "unknown key pools.flows/x in rota.toml; did you mean pools.flow/x?"),
        ("[pools]\ngpu = 1", f"unknown key pools.gpu in rota.toml; {POOL_RULE}"),
        ('[pools]\n"flow/" = 1', f"unknown key pools.flow/ in rota.toml; {POOL_RULE}"),
        ('[pools]\n"flow/im*" = 1', f"unknown key pools.flow/im* in rota.toml; {POOL_RULE}"),
        ('[pools]\n"global/*" = 1', f"unknown key pools.global/* in rota.toml; {POOL_RULE}"),
    ],
)
def test_unknown_key_is_refused_with_a_suggestion(toml: Path, text: str, message: str) -> None:
    write_file(toml, text)
    with pytest.raises(ConfigError) as refused:
        load(toml)
    assert refused.value.message == message


def test_unknown_section_is_refused(toml: Path) -> None:
    write_file(toml, '[trackers.cards]\nkind = "cards"\n')
    with pytest.raises(ConfigError, match=r"unknown key trackers in rota\.toml; "):
        load(toml)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("[pools]\nglobal = -2", "pools.global = -2 in rota.toml cannot be used; it takes a whole number"),
        ("[pools]\nglobal = true", "pools.global = true in"),
        ("[pools]\nglobal = 1.0", "pools.global = 1.0 in"),
        ('[pools]\nglobal = "1"', 'pools.global = "1" in'),
        (f"[pools]\nglobal = 1{'0' * 30}", "pools.global = 1000000000"),
        ("[pools]\nglobal = 2026-01-01", 'pools.global = "2026-01-01" in'),
        ("[scheduler]\nbatch_size = 0", "scheduler.batch_size = 0 in rota.toml cannot be used; it takes a whole"),
        ("[scheduler]\ngrace = 30", "scheduler.grace = 30 in rota.toml cannot be used; it takes a duration such as"),
        ('[scheduler]\ngrace = "soon"', 'scheduler.grace = "soon" in'),
        ('[scheduler]\ngrace = "99999d"', 'scheduler.grace = "99999d" in'),
        ('[scheduler]\ngrace = ""', 'scheduler.grace = "" in'),
        ("[scheduler]\nspawn_delay = 3", "scheduler.spawn_delay = 3 in rota.toml cannot be used; it takes a duration"),
        (
            '[scheduler]\ndispatch_interval = "0s"',
            'scheduler.dispatch_interval = "0s" in rota.toml cannot be used; it takes a duration',
        ),
        (
            '[scheduler]\ndispatch_interval = "never"',
            'scheduler.dispatch_interval = "never" in rota.toml cannot be used; it takes a',
        ),
        (
            "[scheduler]\ndispatch_interval = 3",
            "scheduler.dispatch_interval = 3 in rota.toml cannot be used; it takes a duration",
        ),
        ("[scheduler]\npolicy = 3", "scheduler.policy = 3 in rota.toml cannot be used; it takes the name of"),
        (
            "[retry]\nmax_retries = -1",
            "retry.max_retries = -1 in rota.toml cannot be used; it takes a whole number from 0",
        ),
        ("[retry]\nbase = 10", "retry.base = 10 in rota.toml cannot be used; it takes a duration"),
        ("[retry]\nmultiplier = 0.5", "retry.multiplier = 0.5 in rota.toml cannot be used; it takes a number from 1"),
        ("[retry]\njitter = 2", "retry.jitter = 2 in rota.toml cannot be used; it takes a number from 0 to 1"),
        ("[retry]\nexit_codes = [0]", "retry.exit_codes = [0] in rota.toml cannot be used; it takes exit codes from 1"),
        ("[breaker]\nstart_delays = []", "breaker.start_delays = [] in rota.toml cannot be used; it takes durations"),
        (
            "[breaker]\nstart_delays = [30]",
            "breaker.start_delays = [30] in rota.toml cannot be used; it takes durations",
        ),
        ("[retry]\nexit_codes = 75", "retry.exit_codes = 75 in rota.toml cannot be used; it takes exit codes"),
        ("[retry.night]\ncap = 5", "retry.night.cap = 5 in rota.toml cannot be used; it takes a duration"),
        ("[retry.base]\ncap = 5", 'retry.base = {"cap": 5} in rota.toml cannot be used; it takes a duration'),
        (
            "[queue]\nsoft_limit = 0",
            'queue.soft_limit = 0 in rota.toml cannot be used; it takes a whole number from 1 to 2147483647, "auto",',
        ),
        ("[queue]\nhard_limit = 'atuo'", 'queue.hard_limit = "atuo" in rota.toml cannot be used; it takes'),
        ("[queue.plan]\nhard_limit = true", "queue.plan.hard_limit = true in rota.toml cannot be used; it takes"),
        (
            "[queue]\nsoft_limit = 9\nhard_limit = 8",
            (
                "queue.soft_limit = 9 in rota.toml is above queue.hard_limit = 8; "
                "the queue would be full before the warning"
            ),
        ),
        (
            "[queue.plan]\nsoft_limit = 9\nhard_limit = 8",
            "queue.plan.soft_limit = 9 in rota.toml is above queue.plan.hard_limit = 8",
        ),
        (
            '[display.list]\nfields = ["id", "stauts"]',
            'display.list.fields = ["id", "stauts"] in rota.toml cannot be used: unknown field \'stauts\'; did',
        ),
        (
            "[display.list]\nfields = []",
            "display.list.fields = [] in rota.toml cannot be used; it takes fields of a job",
        ),
        ("[display.list]\nfields = 'id'", 'display.list.fields = "id" in rota.toml cannot be used; it takes fields of'),
        ("[display.show]\nformat = 'xml'", 'display.show.format = "xml" in rota.toml cannot be used; it takes table,'),
        (
            "[server]\nport = 65536",
            "server.port = 65536 in rota.toml cannot be used; it takes a port from 1 to 65535, 0",
        ),
        ('[server]\nport = "7682"', 'server.port = "7682" in rota.toml cannot be used; it takes a port'),
        (
            '[server]\nhost = "127.0.0.1 "',
            'server.host = "127.0.0.1 " in rota.toml cannot be used; it takes an address',
        ),
        ('[server]\nhost = "[::1]"', 'server.host = "[::1]" in rota.toml cannot be used; it takes an address of'),
        (
            '[server]\nallowed_hosts = ["*.example.org"]',
            (
                'server.allowed_hosts = ["*.example.org"] in rota.toml cannot be used: '
                "'*.example.org' is not a host; write"
            ),
        ),
        ('[server]\nallowed_hosts = "a"', 'server.allowed_hosts = "a" in rota.toml cannot be used; it takes hosts as'),
        ("pools = 3", "pools = 3 in rota.toml cannot be used; write it as a table, [pools]"),
        ("[[scheduler]]", "scheduler = [{}] in rota.toml cannot be used; write it as a table, [scheduler]"),
    ],
)
def test_invalid_value_is_refused_with_accepted_values(toml: Path, text: str, shown: str) -> None:
    write_file(toml, text)
    with pytest.raises(ConfigError) as refused:
        load(toml)
    assert refused.value.message.startswith(shown)


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"[pools]\nglobal = \n", "line 2"),
        (b"[pools]\nflow/* = 1\n", "line 2"),
        (b"[pools]\nglobal = 1\nglobal = 2\n", "line 3"),
        (b"[pools]\n# \xff\n", "line 2"),
    ],
)
def test_invalid_toml_is_refused_with_its_line(toml: Path, content: bytes, line: str) -> None:
    toml.write_bytes(content)
    with pytest.raises(ConfigError, match=rf"rota.toml is not valid TOML: .*{line}"):
        load(toml)


@pytest.mark.parametrize("content", ["x = " + "[" * 100_000, f"x = {'9' * 5000}"])
def test_toml_beyond_parser_limits_is_refused(toml: Path, content: str) -> None:
    write_file(toml, content)
    with pytest.raises(ConfigError, match=r"rota.toml is not valid TOML"):
        load(toml)


def test_unreadable_file_is_refused(toml: Path) -> None:
    toml.mkdir()
    with pytest.raises(ConfigError, match="cannot be read"):
        load(toml)


def test_get_returns_a_value_or_none(toml: Path) -> None:
    write_file(toml, '[pools]\n"type/story" = 4\n')
    assert get(load(toml), "pools.type/story") == 4
    assert get(load(toml), "pools.type/other") is None
    assert get(load(toml), "scheduler.batch_size") is None
    assert get(load(toml), "scheduler.grace") == "30s"
    with pytest.raises(InvalidInput, match=r"unknown key scheduler\.grase; did you mean scheduler\.grace\?"):
        get(load(toml), "scheduler.grase")


@pytest.mark.parametrize("value", ["-5s", "-1h30m"])
def test_negative_duration_is_refused(toml: Path, value: str) -> None:
    with pytest.raises(InvalidInput, match=f'retry.base cannot be "{value}"; it takes a duration such as'):
        edit(toml, "retry.base", value)
    assert not toml.exists()


def test_refused_edit_suggests_a_key_or_accepted_values(toml: Path) -> None:
    with pytest.raises(InvalidInput, match=r"unknown key pool\.global; did you mean pools\.global\?"):
        edit(toml, "pool.global", "1")
    with pytest.raises(InvalidInput, match=r'pools\.global cannot be "many"; it takes a whole number'):
        edit(toml, "pools.global", "many")
    with pytest.raises(InvalidInput, match=r'scheduler\.grace cannot be "30"; it takes a duration'):
        edit(toml, "scheduler.grace", "30")
    with pytest.raises(InvalidInput, match=r'cannot be "id,lock": unknown field \'lock\'; did you mean locks'):
        edit(toml, "display.list.fields", "id,lock")
    with pytest.raises(InvalidInput, match=r"unknown key queue\.\*\.soft_limit; \[queue\] limits all jobs"):
        edit(toml, "queue.*.soft_limit", "1")
    with pytest.raises(InvalidInput, match="a pool is global, type/NAME"):
        edit(toml, "pools.flow/\udcff", "1")  # bytes of an argument that are not UTF-8
    assert not toml.exists()


def test_edit_creates_a_private_file(toml: Path) -> None:
    assert edit(toml, "pools.global", "-1").pools["global"] == -1
    assert toml.read_text() == "[pools]\nglobal = -1\n"
    assert stat.S_IMODE(toml.stat().st_mode) == 0o600
    assert [file.name for file in toml.parent.iterdir()] == ["rota.toml"]


def test_edit_keeps_comments_and_layout(toml: Path) -> None:
    write_file(toml, COMMENTED)
    edit(toml, "pools.global", "-1")
    edit(toml, "scheduler.grace", "2m")
    edit(toml, "pools.flow/implement", "3")
    edit(toml, "scheduler.batch_size", "10")
    assert toml.read_text() == (
        COMMENTED.replace("global = 2", "global = -1")
        .replace('"1m"', '"2m"')
        .replace('"flow/*" = 1\n', '"flow/*" = 1\n"flow/implement" = 3\n')
        .replace("a test run\n", "a test run\nbatch_size = 10\n")
    )


@pytest.mark.parametrize(
    ("before", "key", "text", "after"),
    [
        ("# mine", "pools.global", "2", "# mine\n\n[pools]\nglobal = 2\n"),
        ("[scheduler]", "pools.global", "2", "[scheduler]\n\n[pools]\nglobal = 2\n"),
        ("pools = {global = 1} # x\n", "pools.global", "2", "pools = {global = 2} # x\n"),
        ("pools.global = 1 # x\n", "pools.global", "2", "pools.global = 2 # x\n"),
        ("[pools]\r\nglobal=1 # c\r\n", "pools.global", "2", "[pools]\r\nglobal=2 # c\r\n"),
        ("[pools]\nglobal = 2\n# end", "pools.flow/x", "1", '[pools]\nglobal = 2\n"flow/x" = 1\n# end\n'),
        ("[pools]\nglobal = 2\n\n\n[scheduler]\n", "pools.global", UNSET, "[pools]\n\n\n[scheduler]\n"),
        ("[pools]\nglobal = 2\n", "pools.flow/x", UNSET, "[pools]\nglobal = 2\n"),
        ("[pools]\nglobal = true # broken\n", "pools.global", "1", "[pools]\nglobal = 1 # broken\n"),
        ("[scheduler]\ngrace = 30 # broken\n", "scheduler.grace", "30s", '[scheduler]\ngrace = "30s" # broken\n'),
        ("", "retry.night.base", "1m", '[retry.night]\nbase = "1m"\n'),
        ("[retry]\n", "retry.ä.b.base", "1m", '[retry]\n\n[retry."ä.b"]\nbase = "1m"\n'),
        ('[retry]\nbase = "1s" # c\n', "retry.exit_codes", "1,75", '[retry]\nbase = "1s" # c\nexit_codes = [1, 75]\n'),
        ("", "breaker.start_delays", "1s, 2m", '[breaker]\nstart_delays = ["1s", "2m"]\n'),
        ("", "breaker.start_delays", '["0s"]', '[breaker]\nstart_delays = ["0s"]\n'),
        ("[retry.night]\ncap='1s'\n", "retry.base", "2s", "[retry]\nbase = \"2s\"\n\n[retry.night]\ncap='1s'\n"),
        ("[retry.night]\ncap='1s' # c\n", "retry.night.cap", "2s", '[retry.night]\ncap="2s" # c\n'),
        (
            "retry = {night = {base = '1s'}}\n",
            "retry.night.cap",
            "2s",
            "retry = {night = {base = '1s',cap = \"2s\"}}\n",
        ),
        ("[retry.night]\nbase = '1s'\n", "retry.night.base", UNSET, "[retry.night]\n"),
        ("", "display.list.fields", "id, run.exit_code", '[display.list]\nfields = ["id", "run.exit_code"]\n'),
        ("[display.list] # c\n", "display.list.fields", '["id"]', '[display.list] # c\nfields = ["id"]\n'),
        (
            "[display.list]\nformat = 'block'\n",
            "display.show.format",
            "table",
            "[display.list]\nformat = 'block'\n\n[display.show]\nformat = \"table\"\n",
        ),
        ("[display.show]\nfields = ['id']\n", "display.show.fields", UNSET, "[display.show]\n"),
        ("", "queue.soft_limit", "8", "[queue]\nsoft_limit = 8\n"),
        ("[queue]\n", "queue.a.b.hard_limit", "auto", '[queue]\n\n[queue."a.b"]\nhard_limit = "auto"\n'),
        ("[queue]\nsoft_limit = 'auto'\n", "queue.soft_limit", "off", '[queue]\nsoft_limit = "off"\n'),
    ],
)
def test_edits_in_many_layouts(toml: Path, before: str, key: str, text: str, after: str) -> None:
    toml.write_bytes(before.encode())
    assert edit(toml, key, text) == load(toml)
    assert toml.read_bytes().decode() == after


@pytest.mark.parametrize(
    ("content", "key", "text"),
    [
        (b"[pools]\nglobal = 1 # keep\n", "pools.global", "-2"),
        (b"[pools]\nglobal = 1 # keep\n", "pools.gpu", "1"),
        (b"[pools]\nglobal = \n", "pools.global", "1"),
        (b"[pools]\nglobal = 1\n[schedular]\n", "pools.global", "2"),
        (b"[pools]\nglobal = 1\n[scheduler]\ngrace = 30\n", "pools.global", "2"),
        (b"pools = 3\n", "pools.global", "2"),
        (b"retry = {base = '1s'}\n", "retry.night.base", "2s"),
        (b"[retry]\nbase = '1s'\n", "retry.default.base", "2s"),
        (b"[retry]\nbase = '1s'\n", "retry.exit_codes", "zero"),
        (b"[breaker]\nfailures = 3\n", "breaker.start_delays", "[]"),
        (b"[breaker]\nfailures = 3\n", "breaker.start_delays", "1s,-2s"),
        (b"[breaker]\nfailures = 3\n", "breaker.start_delays", "30"),
        (b"[display.list]\nfields = ['id']\n", "display.list.fields", "id,stauts"),
        (b"[display.list]\nfields = ['id']\n", "display.list.fields", "id,,status"),
        (b"[display.list]\nfields = ['id']\n", "display.list.fields", "[]"),
        (b"[display.list]\nfields = ['id']\n", "display.list.fields", '["id"'),
        (b"# \xff\n", "pools.global", "2"),
    ],
)
def test_refused_edit_leaves_the_file_unchanged(toml: Path, content: bytes, key: str, text: str) -> None:
    toml.write_bytes(content)
    before = toml.stat()
    with pytest.raises((ConfigError, InvalidInput)):
        edit(toml, key, text)
    assert toml.read_bytes() == content
    assert (toml.stat().st_ino, toml.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert [file.name for file in toml.parent.iterdir()] == ["rota.toml"]


def test_edit_follows_a_link(tmp_path: Path, toml: Path) -> None:
    (tmp_path / "dotfiles").mkdir()
    target = write_file(tmp_path / "dotfiles" / "rota.toml", "[pools]\nglobal = 1\n")
    toml.symlink_to(target)
    edit(toml, "pools.global", "5")
    assert toml.is_symlink()
    assert load(target).pools["global"] == 5


def test_copy_of_killed_edit_is_replaced(toml: Path) -> None:
    (toml.parent / ".rota.toml.new").write_text("half a f")
    edit(toml, "pools.global", "5")
    assert load(toml).pools["global"] == 5


@pytest.mark.parametrize(("number", "error"), [(errno.ENOSPC, StorageFull), (errno.EIO, ConfigError)])
def test_failed_write_leaves_the_file_unchanged(
    toml: Path, monkeypatch: pytest.MonkeyPatch, number: int, error: type[Exception]
) -> None:
    write_file(toml, "[pools]\nglobal = 1\n")

    def fail(descriptor: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(error):
        edit(toml, "pools.global", "5")
    assert toml.read_text() == "[pools]\nglobal = 1\n"
    assert [file.name for file in toml.parent.iterdir()] == ["rota.toml"]


def test_edit_in_missing_home_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be changed"):
        edit(tmp_path / "nowhere" / "rota.toml", "pools.global", "1")


EDITOR = """
import sys
from pathlib import Path
from rota.config import edit
path, name, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
for number in range(count):
    edit(path, f"pools.flow/{name}-{number}", str(number))
    edit(path, "pools.global", str(number))
"""


def test_concurrent_edits_are_not_lost(toml: Path) -> None:
    write_file(toml, COMMENTED)
    names, count = "abcd", 20
    editors = [subprocess.Popen([sys.executable, "-c", EDITOR, str(toml), name, str(count)]) for name in names]
    assert [editor.wait(timeout=60) for editor in editors] == [0] * len(names)
    pools = load(toml).pools
    assert {f"flow/{name}-{number}": number for name in names for number in range(count)}.items() <= pools.items()
    assert pools["global"] == count - 1
    assert "# How the scheduler behaves.\n[scheduler]\n" in toml.read_text()


def test_load_does_not_import_tomlkit() -> None:
    script = "import sys, rota.config; sys.exit('tomlkit' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


pool_names = st.one_of(
    st.just("global"),
    st.builds(
        "{}/{}".format,
        st.sampled_from(naming.POOL_KINDS),
        st.one_of(
            st.just("*"),
            st.text(st.characters(exclude_categories=("C", "Z"), exclude_characters="*/"), min_size=1, max_size=12),
        ),
    ),
)
sizes = st.integers(-1, 2**31 - 1)
durations = st.timedeltas(timedelta(0), timedelta(days=3650))
positive_durations = st.timedeltas(timedelta(microseconds=1000), timedelta(days=3650))
policies = st.builds(
    RetryConfig,
    max_retries=st.integers(0, 1000),
    base=durations,
    multiplier=st.floats(1, 100),
    jitter=st.floats(0, 1),
    cap=durations,
    exit_codes=st.lists(st.integers(1, 255), max_size=3).map(tuple),
    unknown_exit=st.sampled_from(["retry", "hold"]),
)
queues = st.builds(
    QueueConfig,
    soft_limit=st.sampled_from(["off", "auto"]) | st.integers(1, 9),
    hard_limit=st.just("off") | st.integers(9, 99),
)
policy_names = st.text(st.characters(exclude_categories=("C", "Z"), exclude_characters="*/"), min_size=1, max_size=8)
configs = st.builds(
    lambda pools, scheduler, retry, fleet, policies, queue, flows: Config(
        pools={**config.DEFAULT_POOLS, **pools},
        scheduler=scheduler,
        retry=retry,
        policies=dict(sorted({"fleet": fleet, **policies}.items())),
        queue=queue,
        flows=flows,
    ),
    st.dictionaries(pool_names, sizes, max_size=4),
    st.builds(
        SchedulerConfig,
        batch_size=st.none() | st.integers(1, 2**31 - 1),
        spawn_delay=durations,
        dispatch_interval=st.sampled_from(["off", "manual"]) | positive_durations,
        grace=durations,
        kill_after=durations,
        start_timeout=positive_durations,
        cgroups=st.sampled_from(["auto", "off"]),
    ),
    policies,
    policies,
    st.dictionaries(policy_names.filter(lambda name: name not in RetryConfig.__struct_fields__), policies, max_size=2),
    queues,
    st.dictionaries(policy_names, queues, max_size=2),
)


def run_in_new_directory(check: Callable[[Path], None]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        check(Path(directory) / "rota.toml")


@settings(max_examples=sample(10))
@given(configs)
def test_listed_values_can_be_set_again(expected: Config) -> None:
    def check(toml: Path) -> None:
        for key, value in list_values(expected).items():
            edit(toml, key, UNSET if value is None else config_command.format_value(value))
        assert load(toml) == expected
        assert list_values(load(toml)) == list_values(expected)

    run_in_new_directory(check)


@settings(max_examples=sample(10))
@given(st.lists(st.tuples(pool_names, sizes | st.just(UNSET)), max_size=8))
def test_last_edit_of_each_key_wins(edits: list[tuple[str, int | str]]) -> None:
    def check(toml: Path) -> None:
        write_file(toml, COMMENTED)
        expected: dict[str, int | str] = {"global": 2, "flow/*": 1}
        for name, size in edits:
            edit(toml, f"pools.{name}", str(size))
            expected[name] = size
        kept = {name: size for name, size in expected.items() if size != UNSET}
        assert load(toml).pools == {**config.DEFAULT_POOLS, **kept}
        assert "# How the scheduler behaves.\n[scheduler]\n" in toml.read_text()

    run_in_new_directory(check)


@given(durations)
def test_listed_duration_can_be_parsed(duration: timedelta) -> None:
    listed = list_values(Config(scheduler=SchedulerConfig(grace=duration)))["scheduler.grace"]
    assert listed == format_duration(duration)
    assert parse_duration(str(listed)) == duration


@pytest.mark.parametrize("key", ["scheduler.start_timeout", "breaker.window", "breaker.cool_down"])
def test_zero_duration_is_refused(tmp_path: Path, key: str) -> None:
    path = tmp_path / "rota.toml"
    with pytest.raises(InvalidInput, match=f'{key} cannot be "0s"; it takes a duration above zero'):
        edit(path, key, "0s")
    assert not path.exists()


def test_gc_interval_is_a_duration_or_off(toml: Path) -> None:
    assert edit(toml, "gc.interval", "off").gc.interval == "off"
    assert edit(toml, "gc.interval", "12h").gc.interval == timedelta(hours=12)
    assert edit(toml, "gc.days", "0").gc.days == 0
    for key, text in (("gc.interval", "0s"), ("gc.interval", "never"), ("gc.days", "-1"), ("gc.days", "1.5")):
        with pytest.raises(InvalidInput, match=f"{key} cannot be"):
            edit(toml, key, text)
    assert load(toml).gc == GcConfig(days=0, interval=timedelta(hours=12))
    with pytest.raises(
        ConfigError, match=r'interval = 24 in rota\.toml cannot be used; it takes a duration such as "24h"'
    ):
        load(write_file(toml, "[gc]\ninterval = 24\n"))


def test_unknown_key_is_quoted_on_one_line(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"unknown key pools\.resource/a\\nb;"):
        config.edit(tmp_path / "rota.toml", "pools.resource/a\nb", "3")

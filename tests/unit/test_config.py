"""`rota.toml`: what is accepted, what is refused in which words, and edits that lose nothing."""

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

from rota import config, names
from rota.config import UNSET, Config, Gc, Queue, Retry, Scheduler, edit, get, listing, load
from rota.config.key import POLICY_FORMS, POOL_FORMS
from rota.core import pool
from rota.duration import parse_duration, show_duration
from rota.errors import ConfigError, InvalidInput, StorageFull
from sample import sample

DISPLAY = ("display.list.format", "display.list.fields", "display.show.format", "display.show.fields")

COMMENTED = """\
# The house rules.

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


def given_file(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_a_missing_file_sets_nothing(toml: Path) -> None:
    assert load(toml) == Config()


def policy(prefix: str, **values: object) -> dict[str, object]:
    """A retry policy as it is listed."""
    defaults = {"max_retries": 3, "base": "10s", "multiplier": 2.0, "jitter": 0.1, "cap": "5m", "exit_codes": []}
    return {f"{prefix}.{name}": value for name, value in {**defaults, **values}.items()}


def test_dec_011_con_002_one_job_at_a_time_and_one_user_of_ollama_unless_told_otherwise() -> None:
    assert listing(Config()) == {
        "pools.global": 1,
        "pools.flow/*": 1,
        "pools.resource/ollama": 1,
        "artifacts.plan_doc": "plans/{slug}.md",
        "artifacts.missing_producer": "block",
        "scheduler.batch_size": None,
        "scheduler.spawn_delay": "0s",
        "scheduler.heartbeat": "off",
        "scheduler.policy": "pools",
        "scheduler.grace": "30s",
        "scheduler.kill_after": "5s",
        "scheduler.start_timeout": "5m",
        "scheduler.hold_file": None,
        **policy("retry", max_retries=3, base="10s"),
        **policy("retry.fleet", max_retries=5, base="30s"),
        "queue.soft_limit": "off",
        "queue.hard_limit": "off",
        "breaker.dispatch_failures": 3,
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


def test_pool_kinds_are_those_the_rules_know() -> None:
    assert names.POOL_KINDS == pool.KINDS


def test_lines_are_laid_over_the_defaults(toml: Path) -> None:
    given_file(toml, '[pools]\nglobal = -1\n"target/web.app" = 0\n[scheduler]\nbatch_size = 3\ngrace = "1m30s"\n')
    assert load(toml) == Config(
        pools={"global": -1, "flow/*": 1, "resource/ollama": 1, "target/web.app": 0},
        scheduler=Scheduler(batch_size=3, grace=timedelta(seconds=90)),
    )


def test_the_order_of_the_listing_is_that_of_the_pools_and_the_sections(toml: Path) -> None:
    given_file(toml, '[scheduler]\n[pools]\n"resource/gpu" = 1\n"flow/b" = 1\n"flow/a" = 1\n"type/*" = 2\n')
    assert list(listing(load(toml)))[:8] == [
        "pools.global",
        "pools.type/*",
        "pools.flow/*",
        "pools.flow/a",
        "pools.flow/b",
        "pools.resource/gpu",
        "pools.resource/ollama",
        "scheduler.batch_size",
    ]


def test_a_policy_has_what_retry_has_unless_it_says_otherwise(toml: Path) -> None:
    lines = ("[retry]", "multiplier = 3", "max_retries = 2", "[retry.fleet]", 'base = "1m"')
    given_file(toml, "\n".join((*lines, "[retry.night]", "exit_codes = [75]", "[retry.same]")))
    loaded = load(toml)
    assert loaded.retry == Retry(multiplier=3, max_retries=2)
    assert loaded.policies == {
        "fleet": Retry(multiplier=3, max_retries=5, base=timedelta(minutes=1)),
        "night": Retry(multiplier=3, max_retries=2, exit_codes=(75,)),
        "same": Retry(multiplier=3, max_retries=2),
    }
    assert get(loaded, "retry.night.exit_codes") == [75]


def test_a_flow_has_queue_limits_of_its_own_and_inherits_none(toml: Path) -> None:
    lines = ("[queue]", 'soft_limit = "auto"', "hard_limit = 50", "[queue.plan]", "soft_limit = 50", "[queue.build]")
    loaded = load(given_file(toml, "\n".join(lines)))
    assert loaded.queue == Queue(soft_limit="auto", hard_limit=50)
    assert loaded.flows == {"build": Queue(), "plan": Queue(soft_limit=50)}
    assert get(loaded, "queue.plan.soft_limit") == 50
    assert get(loaded, "queue.plan.hard_limit") == "off"
    assert get(loaded, "queue.other.hard_limit") is None


def test_the_listing_is_plain_data() -> None:
    assert json.loads(json.dumps(listing(Config()))) == listing(Config())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "[scheduler]\nbatchsize = 1",
            "unknown key scheduler.batchsize in rota.toml; did you mean scheduler.batch_size?",
        ),
        ("[schedule]\n", "unknown key schedule in rota.toml; did you mean scheduler?"),
        ("[pool]\nglobal = 1", "unknown key pool in rota.toml; did you mean pools?"),
        ('grace = "1m"', "unknown key grace in rota.toml; did you mean scheduler.grace?"),
        ("[pools]\nglobl = 1", "unknown key pools.globl in rota.toml; did you mean pools.global?"),
        ("[pools]\nollama = 1", "unknown key pools.ollama in rota.toml; did you mean pools.resource/ollama?"),
        ("[retry]\nbse = 1", "unknown key retry.bse in rota.toml; did you mean retry.base?"),
        ("[retry.night]\nbse = 1", "unknown key retry.night.bse in rota.toml; did you mean retry.night.base?"),
        (
            "[retry.default]\nbase = 1",
            f"unknown key retry.default in rota.toml; {POLICY_FORMS}",
        ),
        ("[queue]\nsoftlimit = 1", "unknown key queue.softlimit in rota.toml; did you mean queue.soft_limit?"),
        ("[queue]\nplan = 1", "unknown key queue.plan in rota.toml; known are queue.soft_limit, queue.hard_limit"),
        (
            "[queue.plan]\nsoftlimit = 1",
            "unknown key queue.plan.softlimit in rota.toml; did you mean queue.plan.soft_limit?",
        ),
        ('[queue."*"]\n', "unknown key queue.* in rota.toml; known are queue.soft_limit, queue.hard_limit"),
        ("[displays]\n", "unknown key displays in rota.toml; did you mean display?"),
        ("[display.lst]\n", "unknown key display.lst in rota.toml; did you mean display.list?"),
        (
            "[display.show]\nfield = []",
            "unknown key display.show.field in rota.toml; did you mean display.show.fields?",
        ),
        ("[display.lists.jobs]\n", "unknown key display.lists in rota.toml; did you mean display.list?"),
        (
            "[display]\nlist = 3",
            f"unknown key display.list in rota.toml; known are {', '.join(DISPLAY)}",
        ),
        ('[pools]\n"flows/x" = 1', "unknown key pools.flows/x in rota.toml; did you mean pools.flow/x?"),
        ("[pools]\ngpu = 1", f"unknown key pools.gpu in rota.toml; {POOL_FORMS}"),
        ('[pools]\n"flow/" = 1', f"unknown key pools.flow/ in rota.toml; {POOL_FORMS}"),
        ('[pools]\n"flow/im*" = 1', f"unknown key pools.flow/im* in rota.toml; {POOL_FORMS}"),
        ('[pools]\n"global/*" = 1', f"unknown key pools.global/* in rota.toml; {POOL_FORMS}"),
    ],
)
def test_an_unknown_key_is_named_with_the_nearest_known_one(toml: Path, text: str, message: str) -> None:
    given_file(toml, text)
    with pytest.raises(ConfigError) as refused:
        load(toml)
    assert refused.value.message == message


def test_a_section_that_has_no_effect_yet_is_refused(toml: Path) -> None:
    given_file(toml, '[sources.cards]\nkind = "cards"\n')
    with pytest.raises(ConfigError, match=r"unknown key sources in rota\.toml; "):
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
            '[scheduler]\nheartbeat = "0s"',
            'scheduler.heartbeat = "0s" in rota.toml cannot be used; it takes a duration',
        ),
        ('[scheduler]\nheartbeat = "never"', 'scheduler.heartbeat = "never" in rota.toml cannot be used; it takes a'),
        ("[scheduler]\nheartbeat = 3", "scheduler.heartbeat = 3 in rota.toml cannot be used; it takes a duration such"),
        ("[scheduler]\npolicy = 3", "scheduler.policy = 3 in rota.toml cannot be used; it takes the name of"),
        (
            "[retry]\nmax_retries = -1",
            "retry.max_retries = -1 in rota.toml cannot be used; it takes a whole number from 0",
        ),
        ("[retry]\nbase = 10", "retry.base = 10 in rota.toml cannot be used; it takes a duration"),
        ("[retry]\nmultiplier = 0.5", "retry.multiplier = 0.5 in rota.toml cannot be used; it takes a number from 1"),
        ("[retry]\njitter = 2", "retry.jitter = 2 in rota.toml cannot be used; it takes a number from 0 to 1"),
        ("[retry]\nexit_codes = [0]", "retry.exit_codes = [0] in rota.toml cannot be used; it takes exit codes from 1"),
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
            "queue.soft_limit = 9 in rota.toml is above queue.hard_limit = 8; a queue is full before it could warn",
        ),
        (
            "[queue.plan]\nsoft_limit = 9\nhard_limit = 8",
            "queue.plan.soft_limit = 9 in rota.toml is above queue.plan.hard_limit = 8",
        ),
        (
            '[display.list]\nfields = ["id", "stauts"]',
            'display.list.fields = ["id", "stauts"] in rota.toml cannot be used: there is no field \'stauts\'; did',
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
            "server.allowed_hosts = [\"*.example.org\"] in rota.toml cannot be used: '*.example.org' is no host; write",
        ),
        ('[server]\nallowed_hosts = "a"', 'server.allowed_hosts = "a" in rota.toml cannot be used; it takes names as'),
        ("pools = 3", "pools = 3 in rota.toml cannot be used; write it as a table, [pools]"),
        ("[[scheduler]]", "scheduler = [{}] in rota.toml cannot be used; write it as a table, [scheduler]"),
    ],
)
def test_a_bad_value_is_shown_with_its_key_and_what_is_accepted(toml: Path, text: str, shown: str) -> None:
    given_file(toml, text)
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
def test_what_is_not_toml_is_refused_with_its_line(toml: Path, content: bytes, line: str) -> None:
    toml.write_bytes(content)
    with pytest.raises(ConfigError, match=rf"rota.toml is not valid TOML: .*{line}"):
        load(toml)


@pytest.mark.parametrize("content", ["x = " + "[" * 100_000, f"x = {'9' * 5000}"])
def test_what_no_parser_can_hold_is_refused_too(toml: Path, content: str) -> None:
    given_file(toml, content)
    with pytest.raises(ConfigError, match=r"rota.toml is not valid TOML"):
        load(toml)


def test_a_file_that_cannot_be_read_is_not_taken_for_an_empty_one(toml: Path) -> None:
    toml.mkdir()
    with pytest.raises(ConfigError, match="cannot be read"):
        load(toml)


def test_get_answers_one_value_and_none_for_what_is_not_set(toml: Path) -> None:
    given_file(toml, '[pools]\n"type/story" = 4\n')
    assert get(load(toml), "pools.type/story") == 4
    assert get(load(toml), "pools.type/other") is None
    assert get(load(toml), "scheduler.batch_size") is None
    assert get(load(toml), "scheduler.grace") == "30s"
    with pytest.raises(InvalidInput, match=r"unknown key scheduler\.grase; did you mean scheduler\.grace\?"):
        get(load(toml), "scheduler.grase")


def test_a_refused_edit_names_the_nearest_key_or_what_the_key_takes(toml: Path) -> None:
    with pytest.raises(InvalidInput, match=r"unknown key pool\.global; did you mean pools\.global\?"):
        edit(toml, "pool.global", "1")
    with pytest.raises(InvalidInput, match=r'pools\.global cannot be "many"; it takes a whole number'):
        edit(toml, "pools.global", "many")
    with pytest.raises(InvalidInput, match=r'scheduler\.grace cannot be "30"; it takes a duration'):
        edit(toml, "scheduler.grace", "30")
    with pytest.raises(InvalidInput, match=r'cannot be "id,lock": there is no field \'lock\'; did you mean locks'):
        edit(toml, "display.list.fields", "id,lock")
    with pytest.raises(InvalidInput, match=r"unknown key queue\.\*\.soft_limit; \[queue\] itself is for all jobs"):
        edit(toml, "queue.*.soft_limit", "1")
    with pytest.raises(InvalidInput, match="a pool is global, or"):
        edit(toml, "pools.flow/\udcff", "1")  # bytes of an argument that are not UTF-8
    assert not toml.exists()


def test_an_edit_makes_the_file_for_its_owner_only(toml: Path) -> None:
    assert edit(toml, "pools.global", "-1").pools["global"] == -1
    assert toml.read_text() == "[pools]\nglobal = -1\n"
    assert stat.S_IMODE(toml.stat().st_mode) == 0o600
    assert [each.name for each in toml.parent.iterdir()] == ["rota.toml"]


def test_comments_and_layout_stay(toml: Path) -> None:
    given_file(toml, COMMENTED)
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
        (b"[display.list]\nfields = ['id']\n", "display.list.fields", "id,stauts"),
        (b"[display.list]\nfields = ['id']\n", "display.list.fields", "id,,status"),
        (b"[display.list]\nfields = ['id']\n", "display.list.fields", "[]"),
        (b"[display.list]\nfields = ['id']\n", "display.list.fields", '["id"'),
        (b"# \xff\n", "pools.global", "2"),
    ],
)
def test_an_edit_that_would_not_load_leaves_the_file_byte_for_byte(
    toml: Path, content: bytes, key: str, text: str
) -> None:
    toml.write_bytes(content)
    before = toml.stat()
    with pytest.raises((ConfigError, InvalidInput)):
        edit(toml, key, text)
    assert toml.read_bytes() == content
    assert (toml.stat().st_ino, toml.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert [each.name for each in toml.parent.iterdir()] == ["rota.toml"]


def test_a_linked_file_is_changed_where_it_is(tmp_path: Path, toml: Path) -> None:
    (tmp_path / "dotfiles").mkdir()
    kept = given_file(tmp_path / "dotfiles" / "rota.toml", "[pools]\nglobal = 1\n")
    toml.symlink_to(kept)
    edit(toml, "pools.global", "5")
    assert toml.is_symlink()
    assert load(kept).pools["global"] == 5


def test_what_a_killed_editor_left_does_not_stop_the_next(toml: Path) -> None:
    (toml.parent / ".rota.toml.new").write_text("half a f")
    edit(toml, "pools.global", "5")
    assert load(toml).pools["global"] == 5


@pytest.mark.parametrize(("number", "error"), [(errno.ENOSPC, StorageFull), (errno.EIO, ConfigError)])
def test_a_write_that_fails_is_told_and_leaves_the_file(
    toml: Path, monkeypatch: pytest.MonkeyPatch, number: int, error: type[Exception]
) -> None:
    given_file(toml, "[pools]\nglobal = 1\n")

    def full(descriptor: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(error):
        edit(toml, "pools.global", "5")
    assert toml.read_text() == "[pools]\nglobal = 1\n"
    assert [each.name for each in toml.parent.iterdir()] == ["rota.toml"]


def test_an_edit_in_a_home_that_is_not_there_is_refused(tmp_path: Path) -> None:
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


def test_edits_from_several_processes_at_once_lose_nothing(toml: Path) -> None:
    given_file(toml, COMMENTED)
    names, count = "abcd", 20
    editors = [subprocess.Popen([sys.executable, "-c", EDITOR, str(toml), name, str(count)]) for name in names]
    assert [editor.wait(timeout=60) for editor in editors] == [0] * len(names)
    pools = load(toml).pools
    assert {f"flow/{name}-{number}": number for name in names for number in range(count)}.items() <= pools.items()
    assert pools["global"] == count - 1
    assert "# How the scheduler behaves.\n[scheduler]\n" in toml.read_text()


def test_loading_does_not_load_the_editor() -> None:
    loading = "import sys, rota.config; sys.exit('tomlkit' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", loading], check=False).returncode == 0


pool_names = st.one_of(
    st.just("global"),
    st.builds(
        "{}/{}".format,
        st.sampled_from(names.POOL_KINDS),
        st.one_of(
            st.just("*"),
            st.text(st.characters(exclude_categories=("C", "Z"), exclude_characters="*/"), min_size=1, max_size=12),
        ),
    ),
)
sizes = st.integers(-1, 2**31 - 1)
durations = st.timedeltas(timedelta(0), timedelta(days=3650))
spans = st.timedeltas(timedelta(microseconds=1000), timedelta(days=3650))
policies = st.builds(
    Retry,
    max_retries=st.integers(0, 1000),
    base=durations,
    multiplier=st.floats(1, 100),
    jitter=st.floats(0, 1),
    cap=durations,
    exit_codes=st.lists(st.integers(1, 255), max_size=3).map(tuple),
)
queues = st.builds(
    Queue,
    soft_limit=st.sampled_from(["off", "auto"]) | st.integers(1, 9),
    hard_limit=st.just("off") | st.integers(9, 99),
)
policy_names = st.text(st.characters(exclude_categories=("C", "Z"), exclude_characters="*/"), min_size=1, max_size=8)
configs = st.builds(
    lambda pools, scheduler, retry, fleet, named, queue, flows: Config(
        pools={**config.DEFAULT_POOLS, **pools},
        scheduler=scheduler,
        retry=retry,
        policies=dict(sorted({"fleet": fleet, **named}.items())),
        queue=queue,
        flows=flows,
    ),
    st.dictionaries(pool_names, sizes, max_size=4),
    st.builds(
        Scheduler,
        batch_size=st.none() | st.integers(1, 2**31 - 1),
        spawn_delay=durations,
        heartbeat=st.sampled_from(["off", "manual"]) | spans,
        grace=durations,
        kill_after=durations,
        start_timeout=spans,
    ),
    policies,
    policies,
    st.dictionaries(policy_names.filter(lambda name: name not in Retry.__struct_fields__), policies, max_size=2),
    queues,
    st.dictionaries(policy_names, queues, max_size=2),
)


def in_new_directory(act: Callable[[Path], None]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        act(Path(directory) / "rota.toml")


@settings(max_examples=sample(10))
@given(configs)
def test_every_listing_can_be_typed_in_again(wanted: Config) -> None:
    def act(toml: Path) -> None:
        for key, value in listing(wanted).items():
            edit(toml, key, UNSET if value is None else str(value))
        assert load(toml) == wanted
        assert listing(load(toml)) == listing(wanted)

    in_new_directory(act)


@settings(max_examples=sample(10))
@given(st.lists(st.tuples(pool_names, sizes | st.just(UNSET)), max_size=8))
def test_edits_in_any_order_leave_the_last_word_of_each(edits: list[tuple[str, int | str]]) -> None:
    def act(toml: Path) -> None:
        given_file(toml, COMMENTED)
        said: dict[str, int | str] = {"global": 2, "flow/*": 1}
        for name, size in edits:
            edit(toml, f"pools.{name}", str(size))
            said[name] = size
        kept = {name: size for name, size in said.items() if size != UNSET}
        assert load(toml).pools == {**config.DEFAULT_POOLS, **kept}
        assert "# How the scheduler behaves.\n[scheduler]\n" in toml.read_text()

    in_new_directory(act)


@given(durations)
def test_a_duration_is_listed_as_it_can_be_written(duration: timedelta) -> None:
    listed = listing(Config(scheduler=Scheduler(grace=duration)))["scheduler.grace"]
    assert listed == show_duration(duration)
    assert parse_duration(str(listed)) == duration


@pytest.mark.parametrize("key", ["scheduler.start_timeout", "breaker.window", "breaker.cool_down"])
def test_a_limit_of_nothing_is_refused_where_it_would_let_nothing_pass(tmp_path: Path, key: str) -> None:
    path = tmp_path / "rota.toml"
    with pytest.raises(InvalidInput, match=f'{key} cannot be "0s"; it takes a duration longer than nothing'):
        edit(path, key, "0s")
    assert not path.exists()


def test_collection_is_daily_or_off(toml: Path) -> None:
    assert edit(toml, "gc.interval", "off").gc.interval == "off"
    assert edit(toml, "gc.interval", "12h").gc.interval == timedelta(hours=12)
    assert edit(toml, "gc.days", "0").gc.days == 0
    for key, text in (("gc.interval", "0s"), ("gc.interval", "never"), ("gc.days", "-1"), ("gc.days", "1.5")):
        with pytest.raises(InvalidInput, match=f"{key} cannot be"):
            edit(toml, key, text)
    assert load(toml).gc == Gc(days=0, interval=timedelta(hours=12))
    with pytest.raises(
        ConfigError, match=r'interval = 24 in rota\.toml cannot be used; it takes a duration such as "24h"'
    ):
        load(given_file(toml, "[gc]\ninterval = 24\n"))

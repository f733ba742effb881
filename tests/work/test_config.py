"""`[sources]` and `[targets]` in `rota.toml`, and their checks by `rota doctor`."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from rota import config
from rota.cli.doctor import Finding, check_work
from rota.config import SourceConfig, TargetConfig, edit, get, list_values, load
from rota.config.key import NAMED_RULES
from rota.db.sqlite.store import SqliteStore
from rota.engine.settings import settings_from_config
from rota.errors import ConfigError, InvalidInput
from rota.home import Home
from rota.templates.model import TemplateBody
from tests.work.town import bead, write_beads

COMPLETE = """\
[sources.town]
path = "../town"

[sources."my.list"]
kind = "list"
path = "prompts.yaml"

[targets.gastown]
path = "/srv/gastown"
prefix = "gt-"
template = "agent"
base = "main"
max = 2
on_dispatch = "notify-send dispatched"

[targets.any]
path = "/srv/any"
"""


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(str(tmp_path / "home"))
    home.prepare()
    return home


def test_sources_and_targets_are_read(home: Home) -> None:
    home.config.write_text(COMPLETE)
    loaded = load(home.config)
    assert loaded.sources == {
        "town": SourceConfig(path="../town", kind="beads"),
        "my.list": SourceConfig(path="prompts.yaml", kind="list"),
    }
    assert loaded.targets == {
        "gastown": TargetConfig(
            path="/srv/gastown",
            prefix="gt-",
            template="agent",
            base="main",
            max=2,
            on_dispatch="notify-send dispatched",
        ),
        "any": TargetConfig(path="/srv/any"),
    }
    listed = list_values(loaded)
    assert listed["sources.my.list.kind"] == "list"
    assert get(loaded, "targets.gastown.max") == 2
    assert get(loaded, "targets.any.max") is None
    assert get(loaded, "targets.none.path") is None


def test_every_listed_value_can_be_set_again(home: Home, tmp_path: Path) -> None:
    home.config.write_text(COMPLETE)
    copy = tmp_path / "rota.toml"
    for key, value in list_values(load(home.config)).items():
        if key.startswith(("sources.", "targets.")) and value is not None:
            edit(copy, key, str(value))
    assert load(copy) == load(home.config)


def test_path_is_set_first_and_removed_last(tmp_path: Path) -> None:
    toml = tmp_path / "rota.toml"
    with pytest.raises(ConfigError, match=r"sources\.web in rota\.toml has no path; set it first: rota config set"):
        edit(toml, "sources.web.kind", "list")
    edit(toml, "sources.web.path", "web.yaml")
    edit(toml, "sources.web.kind", "list")
    with pytest.raises(ConfigError, match="has no path"):
        edit(toml, "sources.web.path", config.UNSET)
    edit(toml, "sources.web.kind", config.UNSET)
    assert edit(toml, "sources.web.path", config.UNSET).sources == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[sources]\nkind = 'beads'", f"unknown key sources.kind in rota.toml; {NAMED_RULES['sources']}"),
        ("[targets]\nmax = 2", f"unknown key targets.max in rota.toml; {NAMED_RULES['targets']}"),
        ("[sources.town]\npaht = 'x'", "unknown key sources.town.paht in rota.toml; did you mean sources.town.path?"),
        (
            "[targets.web]\npath = 'x'\nmaximum = 3",
            "unknown key targets.web.maximum in rota.toml; did you mean targets.web.max?",
        ),
        (
            "[targets.web]\npath = 'x'\nzzz = 3",
            "unknown key targets.web.zzz in rota.toml; known keys: path, prefix, template, base, max, on_dispatch",
        ),
        ("[source.town]\npath = 'x'", "unknown key source in rota.toml; did you mean sources?"),
        ("[sources.town]\nkind = 'beads'", "sources.town in rota.toml has no path; set it first: rota config set"),
        ("[sources.town]\npath = ''", 'sources.town.path = "" in rota.toml cannot be used; it takes a path'),
        ("[sources.town]\npath = 'x'\nkind = 'my list'", 'sources.town.kind = "my list" in rota.toml cannot be used'),
        ("[targets.web]\npath = 'x'\nmax = 0", "targets.web.max = 0 in rota.toml cannot be used; it takes a whole"),
        ("[targets.web]\npath = 'x'\nprefix = ''", 'targets.web.prefix = "" in rota.toml cannot be used; it takes the'),
        ("[targets.'a b']\npath = 'x'", "unknown key targets.a b in rota.toml; [targets.NAME] defines a target"),
        ("sources = 3", "sources = 3 in rota.toml cannot be used; write it as a table, [sources]"),
    ],
)
def test_invalid_section_is_refused(tmp_path: Path, text: str, message: str) -> None:
    toml = tmp_path / "rota.toml"
    toml.write_text(text)
    with pytest.raises(ConfigError) as refused:
        load(toml)
    assert refused.value.message.startswith(message)


def test_unknown_key_of_an_edit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"unknown key targets\.web\.pat; did you mean targets\.web\.path\?"):
        edit(tmp_path / "rota.toml", "targets.web.pat", "x")


def test_max_is_the_size_of_the_pool(home: Home) -> None:
    home.config.write_text(COMPLETE)
    pools = config.pool_sizes(load(home.config))
    assert pools["target/gastown"] == 2
    assert "target/any" not in pools
    edit(home.config, "pools.target/gastown", "5")
    assert config.pool_sizes(load(home.config))["target/gastown"] == 5
    assert settings_from_config(load(home.config), home).pool_sizes.size("target/gastown") == 5


def test_missing_paths_do_not_stop_the_scheduler(home: Home) -> None:
    home.config.write_text(COMPLETE)
    settings_from_config(load(home.config), home)


@pytest.mark.parametrize("path", ["~no-such-user/town", "~", "/" + "x" * 300, "/dev/null/x", "a" * 5000])
def test_odd_paths_are_warnings(home: Home, path: str) -> None:
    home.config.write_text(f'[sources.town]\npath = "{path}"\n[targets.web]\npath = "{path}/missing"\n')
    findings = check_work(home)
    assert [finding.name for finding in findings] == ["sources", "targets"]
    assert findings[0].text.startswith("source town cannot be read: ")
    assert "is not a directory" in findings[1].text


def test_doctor_says_nothing_without_sources_and_targets(home: Home) -> None:
    assert check_work(home) == []
    home.config.write_text("nonsense = 1\n")
    assert check_work(home) == []


def test_doctor_names_missing_paths_and_templates(home: Home) -> None:
    home.config.write_text(COMPLETE)
    findings = check_work(home)
    assert {finding.verdict for finding in findings} == {"warn"}
    texts = [f"{finding.name}: {finding.text}" for finding in findings]
    assert texts == [
        f"sources: source town cannot be read: {home.root.parent / 'town/.beads/issues.jsonl'} does not exist",
        f"sources: source my.list cannot be read: {home.root / 'prompts.yaml'} does not exist",
        "targets: targets.gastown.path: /srv/gastown is not a directory; create it or change the path",
        "targets: targets.any.path: /srv/any is not a directory; create it or change the path",
        "targets: targets.gastown.template: there is no template agent; add it",
    ]


def test_doctor_accepts_what_exists(home: Home, tmp_path: Path) -> None:
    write_beads(tmp_path / "town", bead("gt-1"), bead("gt-2"))
    session = SqliteStore(home.database).session()
    session.begin()
    session.templates.add("agent", TemplateBody(command=("true",)), datetime(2026, 1, 1, tzinfo=UTC), None)
    session.commit()
    session.close()
    home.config.write_text(
        f'[sources.town]\npath = "{tmp_path}/town"\n[targets.web]\npath = "{tmp_path}"\ntemplate = "agent"\n'
    )
    assert check_work(home) == [Finding("sources", "ok", "town: 2 work items"), Finding("targets", "ok", "web")]
    home.config.write_text(home.config.read_text().replace('"agent"', '"agnet"'))
    assert check_work(home)[1].text == "targets.web.template: there is no template agnet; add it"

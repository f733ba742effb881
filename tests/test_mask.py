"""No output shows the password of the store or the query of a webhook URL."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rota import config
from rota.cli.main import main
from rota.errors import ConfigError, InvalidInput
from rota.mask import mask_query, mask_store_url
from rota.webhooks.model import parse_url

SECRET = "hunter2"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://db/work", "postgresql://db/work"),
        ("postgresql://me@db:5432/work?search_path=night", "postgresql://me@db:5432/work?search_path=night"),
        ("postgresql://me:hunter2@db/work", "postgresql://me:***@db/work"),
        ("postgres://me:hunter2@db/work?sslmode=require", "postgres://me:***@db/work?sslmode=require"),
        ("postgresql://me:a?hunter2@db/work", "postgresql://me:***@db/work"),
        ("postgresql://:hunter2@db/work", "postgresql://:***@db/work"),
        ("postgresql:///work?host=/run&password=hunter2&port=1", "postgresql:///work?host=/run&password=***"),
        ("postgresql:///work?password=a&hunter2", "postgresql:///work?password=***"),
        ("postgresql:///work?p%61ssword=hunter2", "postgresql:///work?p%61ssword=***"),
        ("postgresql:///work?sslpassword=hunter2", "postgresql:///work?sslpassword=***"),
        ("postgresql://me:hun/ter2@db/work", "postgresql://***"),
        ("postgresql://me:a@hunter2@db/work", "postgresql://***"),
        ("mysql://me:hunter2@db/work", "mysql://***"),
        ("postgresql:/me:hunter2@db/work", "postgresql:/***"),
        ("me:hunter2@db", "***"),
        ("host=db user=me password=hunter2", "***"),
        ("host=db Password = hunter2", "***"),
        ("/srv/me@work/rota.db", "/srv/me@work/rota.db"),
        ("postgresql://me@127.0.0.1:hunter2/db", "postgresql://***"),
        ("postgresql://a:5432,[fd00::2]:5433/db", "postgresql://a:5432,[fd00::2]:5433/db"),
        (
            "postgresql://me@db/work?connect_timeout=3&token=hunter2&x",
            "postgresql://me@db/work?connect_timeout=3&token=***",
        ),
        ("postgresql://me@db/work?hunter2", "postgresql://me@db/work?***"),
        ("postgresql://me@db/work\nhunter2", "postgresql://***"),
    ],
)
def test_store_url_is_shown_without_password(url: str, shown: str) -> None:
    assert mask_store_url(url) == shown


def test_query_of_webhook_url_is_masked() -> None:
    assert mask_query("https://example.org/@me/hook?token=hunter2") == "https://example.org/@me/hook?***"
    assert mask_query("https://example.org/hook") == "https://example.org/hook"


@pytest.mark.parametrize(
    "url",
    [
        "http://example.org/?token=hunter2#part",
        "http://example.org:0/?token=hunter2",
        "http://exa mple.org/?token=hunter2",
        "http://[::1/?token=hunter2",
        "http:///?token=hunter2",
        "ftp://me:hunter2@example.org/",
        "http://me:hunter2/x@example.org/",
        "http://me:a?hunter2@example.org/",
    ],
)
def test_refused_webhook_url_is_quoted_without_secrets(url: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_url(url)
    assert SECRET not in refused.value.message


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ROTA_HOME", str(tmp_path))
    return tmp_path


def test_config_prints_masked_url(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = "postgresql://me:hunter2@127.0.0.1:9/work?connect_timeout=1"
    masked = url.replace(SECRET, "***")
    assert main(["config", "set", "store.url", url, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"store.url": masked}
    assert url in (home / "rota.toml").read_text()
    assert main(["config", "get", "store.url"]) == 0
    assert capsys.readouterr().out == f"{masked}\n"
    for command in (["config", "list"], ["config", "list", "--json"], ["config", "get", "store.url", "--json"]):
        assert main(command) == 0
        shown = capsys.readouterr().out
        assert masked in shown
        assert SECRET not in shown
    for command in (
        ["doctor"],
        ["doctor", "--json"],
        ["store", "show"],
        ["store", "show", "--json"],
        ["store", "migrate"],
    ):
        main(command)
        output = capsys.readouterr()
        assert SECRET not in output.out + output.err


def test_masked_url_is_not_stored(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "set", "store.url", "postgresql://me:***@db/work"]) == 2
    assert "stands for the password in output; write the password itself" in capsys.readouterr().err
    assert not (home / "rota.toml").exists() or "***" not in (home / "rota.toml").read_text()


@pytest.mark.parametrize(
    "command",
    [
        ["config", "set", "store.url", "mysql://me:hunter2@db/work"],
        ["store", "copy", "postgresql:/me:hunter2@db/work", "home"],
        ["store", "copy", "mysql://me:hunter2@db/work", "home"],
        ["store", "copy", "home", "home", "postgresql://me:hunter2@db/work"],
        ["postgresql://me:hunter2@db/work"],
    ],
)
def test_error_does_not_quote_password(home: Path, capsys: pytest.CaptureFixture[str], command: list[str]) -> None:
    assert home.exists()
    assert main(command) != 0
    output = capsys.readouterr()
    assert output.err.startswith("rota: ")
    assert SECRET not in output.out + output.err


@pytest.mark.parametrize(
    "line",
    [
        'store = "postgresql://me:hunter2@db/work"',
        '[store]\nurl = "mysql://me:hunter2@db/work"',
        '[store]\nurl = ["postgresql://me:hunter2@db/work"]',
        '[store]\nurl = "postgresql://me:hunter2@db/work',
        "[store]\nurl = postgresql://me:hunter2@db/work",
        '[store]\nurl = "host=db password=hunter2"',
        '[server]\nhost = "postgresql://me:hunter2@db/work"',
        '[server]\nhost = "postgresql:///work?password=hunter2"',
        '[pools]\n"postgresql://me:hunter2@db/work" = 3',
    ],
)
def test_refused_file_is_quoted_without_password(tmp_path: Path, line: str) -> None:
    file = tmp_path / "rota.toml"
    file.write_text(line)
    with pytest.raises(ConfigError) as refused:
        config.load(file)
    assert SECRET not in refused.value.message


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("postgresql://user@127.0.0.1:hunter2/db", "the port is not a number"),
        ("postgresql://user@db/work\nhunter2", "the address has a line break"),
        ("postgresql://user:hunter2@db:99999/work", "the port is not in 1-65535"),
        ("postgresql://user:hunter2@one:5432,two:0/work", "the port is not in 1-65535"),
        (f"postgresql://user:hunter2@db:{'9' * 5000}/work", "the port is not in 1-65535"),
    ],
)
def test_malformed_store_url_is_refused_without_quoting_it(tmp_path: Path, url: str, reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason) as refused:
        config.edit(tmp_path / "rota.toml", "store.url", url)
    assert SECRET not in refused.value.message
    assert not (tmp_path / "rota.toml").exists()

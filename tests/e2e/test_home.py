"""The home itself: where it may be, who may read it, and what is in it (docs/home.md)."""

from __future__ import annotations

import ctypes
import os
import re
import sqlite3
import stat
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from e2e.rig import Rota, Stage, ends_within, eventually

_PR_CAPBSET_DROP, _CAP_DAC_OVERRIDE, _CAP_DAC_READ_SEARCH = 24, 1, 2


def _obey_modes() -> None:
    """In a child before its exec: root without the right to ignore file modes. Nobody else has that right."""
    libc = ctypes.CDLL(None)
    for capability in (_CAP_DAC_OVERRIDE, _CAP_DAC_READ_SEARCH):
        libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)


def test_a_home_that_cannot_be_written(make_rota: Callable[..., Rota], tmp_path: Path) -> None:
    folder = tmp_path / "locked"
    folder.mkdir()
    below, itself = make_rota(folder / "home"), make_rota(folder)
    folder.chmod(0o500)
    try:
        for verb in (["submit", "--", "true"], ["up"], ["serve"], ["config", "set", "scheduler.grace", "1s"]):
            said = below.ask(*verb, code=1, preexec_fn=_obey_modes)
            assert said.out == ""
            assert said.err == (
                f"rota: cannot make the home {folder}/home: Permission denied;"
                " set ROTA_HOME to a directory you can write\n"
            )
            said = itself.ask(*verb, code=1, preexec_fn=_obey_modes)
            assert said.err == (
                f"rota: the home {folder} cannot be written; give yourself the right to, or set ROTA_HOME elsewhere\n"
            )
        assert list(folder.iterdir()) == []
    finally:
        folder.chmod(0o700)


def test_something_else_is_in_the_way(make_rota: Callable[..., Rota], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for home in (tmp_path / "file", tmp_path / "file/home"):
        said = make_rota(home).ask("submit", "--", "true", code=1)
        assert "not a directory" in said.err


@pytest.mark.parametrize("name", ["with a space", "ünï cödé", "100%?#[x]", "deep/" * 20 + "x" * 150])
def test_homes_of_any_name(make_rota: Callable[..., Rota], tmp_path: Path, stage: Stage, name: str) -> None:
    rota = make_rota(tmp_path / name)
    job = rota.submit(*stage.actor("one"))
    assert stage.hear() == ["one begins"]
    said = rota.ask("down", "--grace", "0s")
    assert f"left running: {job}" in said.err
    assert rota.json("up")["home"] == str(rota.home)
    stage.release("one", 4)
    rota.wait(job, code=4)
    assert stage.hear() == ["one ends"]


def test_the_nearest_marked_folder_is_the_home(rota: Rota, tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / ".rota").mkdir(parents=True, mode=0o700)
    (project / "src/deep").mkdir(parents=True)
    here = Rota(project / ".rota", project / "src/deep")
    del here.env["ROTA_HOME"]
    try:
        here.ask("submit", "--", "true")
        assert here.json("status")["home"] == str(project / ".rota")
        assert not rota.home.exists()
    finally:
        here.ask("down")
        # Its processes have the home in their environment all the same.
        here.close()


def test_a_database_of_a_newer_version_is_left_alone(rota: Rota) -> None:
    rota.submit("--", "true")
    rota.ask("down")
    with sqlite3.connect(rota.home / "rota.db") as database:
        (known,) = database.execute("SELECT value FROM meta WHERE key = 'schema_version'").fetchone()
        database.execute("UPDATE meta SET value = '999' WHERE key = 'schema_version'")
    database.close()
    said = rota.ask("list", code=1)
    assert said.out == ""
    text = f"was written by a newer version of Rota (schema 999, this one knows {known}); upgrade Rota"
    assert text in said.err
    assert text in rota.ask("serve", code=1).err
    with sqlite3.connect(rota.home / "rota.db") as database:
        database.execute("UPDATE meta SET value = ? WHERE key = 'schema_version'", (known,))
    database.close()
    assert [job["id"] for job in rota.json("list", "--all")["jobs"]] == ["job-1"]


def test_a_damaged_database_is_named(rota: Rota) -> None:
    rota.home.mkdir(mode=0o700)
    (rota.home / "rota.db").write_bytes(b"something else entirely, and long enough " * 50)
    said = rota.ask("status", code=1)
    assert f"{rota.home}/rota.db is damaged or not a Rota database" in said.err
    assert "not an SQLite database" in rota.ask("doctor", code=1).out


def test_everything_is_for_its_owner_alone(rota: Rota, stage: Stage) -> None:
    """LESSONS Store: world-readable secret in a race at creation. With the most careless umask there is."""
    jobs = [
        rota.submit(*stage.actor("one"), umask=0),
        rota.submit("--skip-if", "echo skip", "--", "true", umask=0),
        rota.submit("--", "sh", "-c", 'echo x > "$ROTA_SESSION_FILE"', umask=0),
    ]
    rota.ask("pool", "set", "global", "2", umask=0)
    rota.ask("config", "set", "scheduler.grace", "1s", umask=0)
    rota.wait(*jobs[1:])
    rota.running(jobs[0])
    modes = {path: stat.S_IMODE(path.lstat().st_mode) for path in (rota.home, *rota.home.rglob("*"))}
    own = rota.home / "jobs/3/session"
    assert own in modes, "made by the child, under its own umask, behind directories that nobody else may enter"
    wrong = {
        str(path.relative_to(rota.home)): oct(mode)
        for path, mode in modes.items()
        if path != own and mode != (0o700 if path.is_dir() else 0o600)
    }
    assert wrong == {}
    assert modes[rota.socket] == 0o600
    stage.release("one")
    rota.wait(jobs[0])


class Row(NamedTuple):
    pattern: str
    survives: str
    deletable: str


_DOCUMENT = Path(__file__).parents[2] / "docs/home.md"


def _table(heading: str) -> list[Row]:
    section = _DOCUMENT.read_text().partition(f"## {heading}\n")[2].partition("\n## ")[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line.startswith("| `")
    ]
    return [Row(row[0].strip("`"), row[3], row[4]) for row in rows]


def _matches(pattern: str, path: str) -> bool:
    known = re.escape(pattern).replace("<id>", "[0-9]+").replace("<digest>", "[0-9a-f]{64}")
    return re.fullmatch(known, path) is not None


def _busy(rota: Rota, repository: Path) -> str:
    """A job that leaves everything that a job can leave, behind a direct execution."""
    rota.ask("run", "--", "true")
    (repository / "mine").write_text("not committed\n")
    script = 'echo x > "$ROTA_SESSION_FILE"; echo y > yours'
    return rota.submit(
        "--worktree", "--with-diff", "--skip-if", "exit 1", "--", "sh", "-c", script, cwd=repository
    )  # fmt: skip


def _there(rota: Rota) -> set[str]:
    """All that is in the home; what a worktree holds is the job's."""
    found = {str(path.relative_to(rota.home)) + ("/" if path.is_dir() else "") for path in rota.home.rglob("*")}
    return {path for path in found if not re.match("worktrees/job-[0-9]+/.", path)}


def test_the_page_about_the_home_names_every_file_and_no_other(rota: Rota, stage: Stage, repository: Path) -> None:
    """docs/home.md against a home in use."""
    rota.ask("config", "set", "scheduler.grace", "1s")
    jobs = [_busy(rota, repository), rota.submit(*stage.actor("one"))]
    rota.wait(jobs[0])
    rota.running(jobs[1])
    eventually((rota.home / "jobs/1/outcome.json").exists, what="the file that is written behind")
    lasting, passing = _table("Files"), _table("For a moment only")
    assert len(lasting) > 10
    assert len(passing) > 2
    there = _there(rota) - {"jobs/1/", "jobs/2/", "slots/1/"}
    unnamed = {path for path in there if not any(_matches(row.pattern, path) for row in (*lasting, *passing))}
    assert unnamed == set(), "add them to docs/home.md"
    invented = {row.pattern for row in lasting if not any(_matches(row.pattern, path) for path in there)}
    assert invented == set(), "take them out of docs/home.md, or use them here"
    stage.release("one")
    rota.wait(jobs[1])


def test_what_the_page_says_may_be_deleted_may_be_deleted(rota: Rota) -> None:
    rota.ask("config", "set", "scheduler.grace", "1s")
    job = rota.submit("--skip-if", "exit 1", "--", "sh", "-c", 'echo out; echo x > "$ROTA_SESSION_FILE"')
    rota.wait(job)
    before = rota.show(job)
    supervisor = rota.supervisor
    rota.ask("down")
    assert ends_within(supervisor, 20)
    rows = _table("Files")
    assert {row.deletable.split(",")[0] for row in rows} == {"yes", "when stopped", "no"}
    rows += _table("For a moment only")
    for path in sorted(rota.home.rglob("*")):
        name = str(path.relative_to(rota.home))
        if path.is_file() and any(_matches(row.pattern, name) and not row.deletable.startswith("no") for row in rows):
            path.unlink()
    left = {path.name for path in rota.home.rglob("*") if path.is_file()}
    assert left == {"rota.db"}
    after = {**rota.json("show", job), "session_path": before["session_path"]}
    assert after == before
    rota.wait(rota.submit("--", "true"))


def test_what_the_page_says_survives_a_restart_does(rota: Rota, repository: Path) -> None:
    rota.ask("config", "set", "scheduler.grace", "1s")
    rota.wait(_busy(rota, repository))
    supervisor = rota.supervisor
    rota.ask("down")
    assert ends_within(supervisor, 20)
    left = _there(rota)
    for row in _table("Files"):
        is_left = any(_matches(row.pattern, path) for path in left)
        assert is_left is row.survives.startswith("yes"), row


def test_the_home_of_somebody_else_is_not_taken_by_accident(rota: Rota, tmp_path: Path) -> None:
    """A submit hands over the whole environment."""
    if os.getuid() != 0:
        return  # only root can plant another's directory, and only root can test it
    project = tmp_path / "project"
    (project / ".rota").mkdir(parents=True)
    os.chown(project / ".rota", 65534, 65534)
    del rota.env["ROTA_HOME"]
    said = rota.ask("submit", "--", "true", cwd=project, code=1)
    assert "belongs to another user" in said.err

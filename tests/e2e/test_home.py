"""The home directory: location, permissions and contents (docs/reference/home-directory.md)."""

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

from tests.e2e.rig import ChildControl, Rota, eventually, exits_within

_PR_CAPBSET_DROP, _CAP_DAC_OVERRIDE, _CAP_DAC_READ_SEARCH = 24, 1, 2


def _drop_mode_override() -> None:
    """Make root respect file modes. Runs in the child before `exec`."""
    libc = ctypes.CDLL(None)
    for capability in (_CAP_DAC_OVERRIDE, _CAP_DAC_READ_SEARCH):
        libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)


def test_unwritable_home_is_refused(make_rota: Callable[..., Rota], tmp_path: Path) -> None:
    folder = tmp_path / "locked"
    folder.mkdir()
    nested, locked = make_rota(folder / "home"), make_rota(folder)
    folder.chmod(0o500)
    try:
        for words in (["submit", "--", "true"], ["up"], ["serve"], ["config", "set", "scheduler.grace", "1s"]):
            output = nested.run(*words, code=1, preexec_fn=_drop_mode_override)
            assert output.out == ""
            assert output.err == (
                f"rota: cannot create the home directory {folder}/home: Permission denied;"
                " set ROTA_HOME to a writable directory\n"
            )
            output = locked.run(*words, code=1, preexec_fn=_drop_mode_override)
            assert output.err == (
                f"rota: the home directory {folder} is not writable;"
                " change its permissions, or set ROTA_HOME to another directory\n"
            )
        assert list(folder.iterdir()) == []
    finally:
        folder.chmod(0o700)


def test_home_that_is_not_a_directory_is_refused(make_rota: Callable[..., Rota], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for home in (tmp_path / "file", tmp_path / "file/home"):
        output = make_rota(home).run("submit", "--", "true", code=1)
        assert "not a directory" in output.err


@pytest.mark.parametrize("name", ["with a space", "ünï cödé", "100%?#[x]", "deep/" * 20 + "x" * 150])
def test_home_path_may_contain_any_characters(
    make_rota: Callable[..., Rota], tmp_path: Path, children: ChildControl, name: str
) -> None:
    rota = make_rota(tmp_path / name)
    job = rota.submit(*children.gated("one"))
    assert children.read_lines() == ["one begins"]
    output = rota.run("down", "--grace", "0s")
    assert f"left running: {job}" in output.err
    assert rota.json("up")["home"] == str(rota.home)
    children.release("one", 4)
    rota.wait(job, code=4)
    assert children.read_lines() == ["one ends"]


def test_nearest_rota_directory_is_the_home(rota: Rota, tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / ".rota").mkdir(parents=True, mode=0o700)
    (project / "src/deep").mkdir(parents=True)
    project_rota = Rota(project / ".rota", project / "src/deep")
    del project_rota.env["ROTA_HOME"]
    try:
        project_rota.run("submit", "--", "true")
        assert project_rota.json("status")["home"] == str(project / ".rota")
        assert not rota.home.exists()
    finally:
        project_rota.run("down")
        # ROTA_HOME is set in the environment of its processes, so `close` finds them.
        project_rota.close()


def test_newer_database_is_refused_unchanged(rota: Rota) -> None:
    rota.submit("--", "true")
    rota.run("down")
    with sqlite3.connect(rota.home / "rota.db") as database:
        (known,) = database.execute("SELECT value FROM meta WHERE key = 'schema_version'").fetchone()
        database.execute("UPDATE meta SET value = '999' WHERE key = 'schema_version'")
    database.close()
    output = rota.run("up", code=1)
    assert output.out == ""
    text = f"was written by a newer version of Rota (schema 999, this one knows {known}); upgrade Rota"
    assert text in output.err
    assert text in rota.run("serve", code=1).err
    with sqlite3.connect(rota.home / "rota.db") as database:
        database.execute("UPDATE meta SET value = ? WHERE key = 'schema_version'", (known,))
    database.close()
    rota.start()
    assert [job["id"] for job in rota.json("list", "--all")["jobs"]] == ["job-1"]


def test_damaged_database_is_named(rota: Rota) -> None:
    rota.home.mkdir(mode=0o700)
    (rota.home / "rota.db").write_bytes(b"something else entirely, and long enough " * 50)
    output = rota.run("up", code=1)
    assert f"{rota.home}/rota.db is damaged or not a Rota database" in output.err
    assert "not an SQLite database" in rota.run("doctor", code=1).out


def test_only_the_owner_can_read_the_home(rota: Rota, children: ChildControl) -> None:
    """LESSONS Store: world-readable secret in a race at creation. The umask is 0."""
    jobs = [
        rota.submit(*children.gated("one"), umask=0),
        rota.submit("--skip-if", "echo skip", "--", "true", umask=0),
        rota.submit("--", "sh", "-c", 'echo x > "$ROTA_SESSION_FILE"', umask=0),
    ]
    rota.run("pool", "set", "global", "2", umask=0)
    rota.run("config", "set", "scheduler.grace", "1s", umask=0)
    rota.wait(*jobs[1:])
    rota.wait_for_start(jobs[0])
    modes = {path: stat.S_IMODE(path.lstat().st_mode) for path in (rota.home, *rota.home.rglob("*"))}
    child_file = rota.home / "jobs/3/session"
    assert child_file in modes, "the child creates it with its own umask, in a directory that only the owner can enter"
    wrong = {
        str(path.relative_to(rota.home)): oct(mode)
        for path, mode in modes.items()
        if path != child_file and mode != (0o700 if path.is_dir() else 0o600)
    }
    assert wrong == {}
    assert modes[rota.socket] == 0o600
    children.release("one")
    rota.wait(jobs[0])


class Row(NamedTuple):
    pattern: str
    survives: str
    deletable: str


_DOCUMENT = Path(__file__).parents[2] / "docs/reference/home-directory.md"


def _table(heading: str) -> list[Row]:
    section = _DOCUMENT.read_text().partition(f"## {heading}\n")[2].partition("\n## ")[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line.startswith("| `")
    ]
    # `identity` exists only if the store is on a server.
    return [Row(row[0].strip("`"), row[3], row[4]) for row in rows if row[0] != "`identity`"]


def _matches(pattern: str, path: str) -> bool:
    known = re.escape(pattern).replace("<id>", "[0-9]+").replace("<digest>", "[0-9a-f]{64}")
    return re.fullmatch(known, path) is not None


def _submit_job_with_all_files(rota: Rota, repository: Path) -> str:
    """Run a direct execution, then submit a job that creates every kind of job file."""
    rota.run("run", "--", "true")
    (repository / "mine").write_text("not committed\n")
    script = 'echo x > "$ROTA_SESSION_FILE"; echo y > yours'
    return rota.submit("--worktree", "--with-diff", "--skip-if", "exit 1", "--", "sh", "-c", script, cwd=repository)


def _paths_in_home(rota: Rota) -> set[str]:
    """Paths in the home, without the contents of worktrees."""
    paths = {str(path.relative_to(rota.home)) + ("/" if path.is_dir() else "") for path in rota.home.rglob("*")}
    return {path for path in paths if not re.match("worktrees/job-[0-9]+/.", path)}


def test_home_page_lists_exactly_the_files_of_a_home(rota: Rota, children: ChildControl, repository: Path) -> None:
    """Compare docs/reference/home-directory.md with a home in use."""
    rota.run("config", "set", "scheduler.grace", "1s")
    jobs = [_submit_job_with_all_files(rota, repository), rota.submit(*children.gated("one"))]
    rota.wait(jobs[0])
    rota.wait_for_start(jobs[1])
    eventually((rota.home / "jobs/1/outcome.json").exists, description="outcome.json")
    permanent, temporary = _table("Files"), _table("Temporary files")
    assert len(permanent) > 10
    assert len(temporary) > 2
    existing = _paths_in_home(rota) - {"jobs/1/", "jobs/2/", "reservations/1/"}
    unnamed = {path for path in existing if not any(_matches(row.pattern, path) for row in (*permanent, *temporary))}
    assert unnamed == set(), "add them to docs/reference/home-directory.md"
    unused = {row.pattern for row in permanent if not any(_matches(row.pattern, path) for path in existing)}
    assert unused == set(), "remove them from docs/reference/home-directory.md, or create them in this test"
    children.release("one")
    rota.wait(jobs[1])


def test_documented_deletable_files_can_be_deleted(rota: Rota) -> None:
    rota.run("config", "set", "scheduler.grace", "1s")
    job = rota.submit("--skip-if", "exit 1", "--", "sh", "-c", 'echo out; echo x > "$ROTA_SESSION_FILE"')
    rota.wait(job)
    before = rota.show(job)
    supervisor = rota.supervisor_pid
    rota.run("down")
    assert exits_within(supervisor, 20)
    rows = _table("Files")
    assert {row.deletable.split(",")[0] for row in rows} == {"yes", "when stopped", "no"}
    rows += _table("Temporary files")
    for path in sorted(rota.home.rglob("*")):
        name = str(path.relative_to(rota.home))
        if path.is_file() and any(_matches(row.pattern, name) and not row.deletable.startswith("no") for row in rows):
            path.unlink()
    left = {path.name for path in rota.home.rglob("*") if path.is_file()}
    assert left == {"rota.db"}
    rota.start()
    after = {**rota.json("show", job), "session_path": before["session_path"]}
    assert after == before
    rota.wait(rota.submit("--", "true"))


def test_documented_persistent_files_survive_restart(rota: Rota, repository: Path) -> None:
    rota.run("config", "set", "scheduler.grace", "1s")
    rota.wait(_submit_job_with_all_files(rota, repository))
    supervisor = rota.supervisor_pid
    rota.run("down")
    assert exits_within(supervisor, 20)
    left = _paths_in_home(rota)
    for row in _table("Files"):
        is_left = any(_matches(row.pattern, path) for path in left)
        assert is_left is row.survives.startswith("yes"), row


def test_home_of_another_user_is_refused(rota: Rota, tmp_path: Path) -> None:
    """A submit would send the whole environment to a foreign scheduler."""
    if os.getuid() != 0:
        return  # only root can create a directory of another user
    project = tmp_path / "project"
    (project / ".rota").mkdir(parents=True)
    os.chown(project / ".rota", 65534, 65534)
    del rota.env["ROTA_HOME"]
    output = rota.run("submit", "--", "true", cwd=project, code=1)
    assert "belongs to another user" in output.err


def test_emptied_database_is_refused_until_its_loss_is_accepted(rota: Rota) -> None:
    """Autostart shows the refusal; the logs of older jobs are unchanged."""
    rota.start()
    for word in ("one", "two"):
        rota.wait_for_end(rota.post_job(["echo", word]))
    rota.run("down")
    for file in rota.home.glob("rota.db*"):
        file.write_bytes(b"")
    output = rota.run("submit", "--", "echo", "three", code=1).err
    assert f"{rota.home}/rota.db has lost records: it has no job, and {rota.home}/jobs goes up to job-2" in output
    assert "`rota restore FILE --force`" in output
    assert "`rota up --accept-loss`" in output
    assert (rota.home / "rota.db").read_bytes() == b""
    assert "has lost records" in rota.run("doctor", code=1).out
    rota.run("up", "--accept-loss")
    assert rota.wait_for_end(rota.post_job(["echo", "three"]))["id"] == "job-3"
    assert (rota.home / "jobs/1/stdout.log").read_text() == "one\n"
    rota.run("down")
    rota.start()

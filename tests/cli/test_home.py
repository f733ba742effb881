from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from rota import home as home_module
from rota.errors import HomeError
from rota.home import Home, file_system, find_home, short_address

MOUNTS = """\
22 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw
30 22 0:25 / /proc rw,nosuid - proc proc rw
41 22 0:40 / /home rw,relatime shared:5 master:2 - nfs4 filer:/home rw,vers=4.2
42 41 0:41 / /home/ada/local rw - xfs /dev/sdb1 rw
43 22 0:42 / /mnt/with\\040space rw - fuse.sshfs ada@box: rw
44 22 0:43 / /data rw - ext4 /dev/sdc1 rw
45 22 0:44 / /data rw - cifs //server/data rw
this line is broken
"""


def test_the_option_wins_over_the_environment_and_the_marker(tmp_path: Path) -> None:
    (tmp_path / ".rota").mkdir()
    found = find_home(str(tmp_path / "asked"), environ={"ROTA_HOME": "/elsewhere"}, directory=str(tmp_path))
    assert found.root == tmp_path / "asked"


def test_the_environment_wins_over_the_marker(tmp_path: Path) -> None:
    (tmp_path / ".rota").mkdir()
    found = find_home(environ={"ROTA_HOME": str(tmp_path / "named")}, directory=str(tmp_path))
    assert found.root == tmp_path / "named"


def test_the_nearest_marker_above_counts(tmp_path: Path) -> None:
    deep = tmp_path / "a" / "b"
    deep.mkdir(parents=True)
    (tmp_path / ".rota").mkdir()
    assert find_home(environ={}, directory=str(deep)).root == tmp_path / ".rota"
    (tmp_path / "a" / ".rota").mkdir()
    assert find_home(environ={}, directory=str(deep)).root == tmp_path / "a" / ".rota"


def test_a_file_of_that_name_is_no_home(tmp_path: Path) -> None:
    (tmp_path / ".rota").touch()
    found = find_home(environ={"XDG_DATA_HOME": str(tmp_path / "xdg")}, directory=str(tmp_path))
    assert found.root == tmp_path / "xdg" / "rota"


def test_without_anything_it_is_below_the_users_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    found = find_home(environ={"XDG_DATA_HOME": "relative/is/invalid"}, directory=str(tmp_path))
    assert found.root == tmp_path / ".local/share/rota"


def test_a_marker_that_somebody_else_planted_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".rota").mkdir()
    monkeypatch.setattr(os, "geteuid", lambda: 987_654)
    with pytest.raises(HomeError, match="belongs to another user"):
        find_home(environ={}, directory=str(tmp_path))


def test_links_are_resolved_so_that_a_home_has_one_name(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert find_home(str(tmp_path / "link")) == find_home(str(tmp_path / "real"))


def test_a_home_is_a_value() -> None:
    home = Home("/x")
    assert home == Home(Path("/x"))
    assert hash(home) == hash(Home("/x"))
    assert repr(home) == "Home('/x')"
    with pytest.raises(AttributeError):
        home.directory = "/y"


def test_where_everything_is() -> None:
    home = Home("/x")
    names = ("config", "database", "jobs", "socket", "lock", "log")
    files = ("rota.toml", "rota.db", "jobs", "rota.sock", "scheduler.lock", "rota.log")
    assert [getattr(home, name) for name in names] == [Path("/x") / file for file in files]
    supervisor = [getattr(home, f"supervisor_{kind}").name for kind in ("socket", "lock", "journal", "log")]
    assert supervisor == ["supervisor.sock", "supervisor.lock", "supervisor.journal", "supervisor.log"]


def test_prepare_makes_it_for_its_owner_alone(tmp_path: Path) -> None:
    home = Home(tmp_path / "deep" / "home")
    home.prepare()
    home.prepare()
    assert home.root.stat().st_mode & 0o777 == 0o700


def test_prepare_says_what_is_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(HomeError, match="not a directory"):
        Home(tmp_path / "file").prepare()
    with pytest.raises(HomeError, match="ROTA_HOME"):
        Home(tmp_path / "file" / "below").prepare()


def test_prepare_refuses_what_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(HomeError, match="cannot be written"):
        Home(tmp_path).prepare()


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var/lib/rota", "ext4"),
        ("/home/ada/.rota", "nfs4"),
        ("/homely", "ext4"),
        ("/home", "nfs4"),
        ("/home/ada/local/rota", "xfs"),
        ("/mnt/with space/rota", "fuse.sshfs"),
        ("/data/rota", "cifs"),
    ],
)
def test_file_system_is_that_of_the_longest_mount(path: str, kind: str) -> None:
    assert file_system(Path(path), MOUNTS) == kind


def test_this_machines_mounts_can_be_read(tmp_path: Path) -> None:
    assert file_system(tmp_path)


def test_prepare_refuses_a_network_file_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(home_module, "file_system", lambda _: "nfs4")
    with pytest.raises(HomeError, match=r"nfs4, a network file system.*set ROTA_HOME"):
        Home(tmp_path / "home").prepare()
    assert not (tmp_path / "home").exists()


def test_a_short_path_is_its_own_address(tmp_path: Path) -> None:
    with short_address("/x", "s.sock") as address:
        assert address == "/x/s.sock"


def test_a_path_of_any_length_can_be_bound_and_connected(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 90) / ("e" * 90)
    deep.mkdir(parents=True)
    descriptors = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - a count, nothing more
    with socket.socket(socket.AF_UNIX) as listening, socket.socket(socket.AF_UNIX) as calling:
        with short_address(deep, "s.sock") as address:
            listening.bind(address)
        listening.listen()
        with short_address(deep, "s.sock") as address:
            calling.connect(address)
        assert (deep / "s.sock").is_socket()
    assert len(os.listdir("/proc/self/fd")) == descriptors  # noqa: PTH208

"""Location of the home, its paths, and checks of its directory."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from rota import home as home_module
from rota.errors import HomeError
from rota.home import Home, file_system_type, find_home, short_socket_path

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


def test_home_option_overrides_environment_and_marker(tmp_path: Path) -> None:
    (tmp_path / ".rota").mkdir()
    home = find_home(str(tmp_path / "option"), environ={"ROTA_HOME": "/elsewhere"}, directory=str(tmp_path))
    assert home.root == tmp_path / "option"


def test_home_environment_overrides_marker(tmp_path: Path) -> None:
    (tmp_path / ".rota").mkdir()
    home = find_home(environ={"ROTA_HOME": str(tmp_path / "named")}, directory=str(tmp_path))
    assert home.root == tmp_path / "named"


def test_nearest_parent_marker_is_used(tmp_path: Path) -> None:
    deep = tmp_path / "a" / "b"
    deep.mkdir(parents=True)
    (tmp_path / ".rota").mkdir()
    assert find_home(environ={}, directory=str(deep)).root == tmp_path / ".rota"
    (tmp_path / "a" / ".rota").mkdir()
    assert find_home(environ={}, directory=str(deep)).root == tmp_path / "a" / ".rota"


def test_marker_file_is_ignored(tmp_path: Path) -> None:
    (tmp_path / ".rota").touch()
    home = find_home(environ={"XDG_DATA_HOME": str(tmp_path / "xdg")}, directory=str(tmp_path))
    assert home.root == tmp_path / "xdg" / "rota"


def test_default_home_is_in_the_user_data_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    home = find_home(environ={"XDG_DATA_HOME": "relative/is/invalid"}, directory=str(tmp_path))
    assert home.root == tmp_path / ".local/share/rota"


def test_marker_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".rota").mkdir()
    monkeypatch.setattr(os, "geteuid", lambda: 987_654)
    with pytest.raises(HomeError, match="belongs to another user"):
        find_home(environ={}, directory=str(tmp_path))


def test_symlinks_in_the_home_path_are_resolved(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert find_home(str(tmp_path / "link")) == find_home(str(tmp_path / "real"))


def test_home_is_an_immutable_value() -> None:
    home = Home("/x")
    assert home == Home(Path("/x"))
    assert hash(home) == hash(Home("/x"))
    assert repr(home) == "Home('/x')"
    with pytest.raises(AttributeError):
        home.directory = "/y"


def test_paths_in_the_home() -> None:
    home = Home("/x")
    names = ("config", "database", "jobs", "socket", "lock", "log")
    files = ("rota.toml", "rota.db", "jobs", "rota.sock", "scheduler.lock", "rota.log")
    assert [getattr(home, name) for name in names] == [Path("/x") / file for file in files]
    supervisor = [getattr(home, f"supervisor_{kind}").name for kind in ("socket", "lock", "journal", "log")]
    assert supervisor == ["supervisor.sock", "supervisor.lock", "supervisor.journal", "supervisor.log"]


def test_prepare_creates_a_private_directory(tmp_path: Path) -> None:
    home = Home(tmp_path / "deep" / "home")
    home.prepare()
    home.prepare()
    assert home.root.stat().st_mode & 0o777 == 0o700


def test_prepare_reports_a_blocking_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(HomeError, match="not a directory"):
        Home(tmp_path / "file").prepare()
    with pytest.raises(HomeError, match="ROTA_HOME"):
        Home(tmp_path / "file" / "below").prepare()


def test_prepare_refuses_an_unwritable_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(HomeError, match="is not writable"):
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
def test_file_system_type_uses_the_longest_mount(path: str, kind: str) -> None:
    assert file_system_type(Path(path), MOUNTS) == kind


def test_file_system_type_reads_the_mounts_of_this_machine(tmp_path: Path) -> None:
    assert file_system_type(tmp_path)


def test_prepare_refuses_a_network_file_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(home_module, "file_system_type", lambda _: "nfs4")
    with pytest.raises(HomeError, match=r"nfs4, a network file system.*set ROTA_HOME"):
        Home(tmp_path / "home").prepare()
    assert not (tmp_path / "home").exists()


def test_short_socket_path_is_unchanged(tmp_path: Path) -> None:
    with short_socket_path("/x", "s.sock") as address:
        assert address == "/x/s.sock"


def test_long_socket_path_can_be_bound_and_connected(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 90) / ("e" * 90)
    deep.mkdir(parents=True)
    descriptors = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - only the count is needed
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as client:
        with short_socket_path(deep, "s.sock") as address:
            listener.bind(address)
        listener.listen()
        with short_socket_path(deep, "s.sock") as address:
            client.connect(address)
        assert (deep / "s.sock").is_socket()
    assert len(os.listdir("/proc/self/fd")) == descriptors  # noqa: PTH208

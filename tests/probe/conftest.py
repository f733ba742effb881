from __future__ import annotations

from pathlib import Path

import pytest

from probe.rig import Tree, has_ref_formats, make, make_named
from rota.probe.local import LocalProbe


@pytest.fixture
def probe() -> LocalProbe:
    return LocalProbe()


@pytest.fixture(params=["sha1", "sha256", "named", "reftable"])
def tree(tmp_path: Path, request: pytest.FixtureRequest) -> Tree:
    """A repository in each form that git writes, with one commit on main."""
    match request.param:
        case "named":
            tree = make_named(tmp_path / "repo")
        case "reftable":
            if not has_ref_formats():
                pytest.skip("this git has no reftable (2.45 or newer)")
            tree = make(tmp_path / "repo", "--ref-format=reftable")
        case hash_name:
            tree = make(tmp_path / "repo", f"--object-format={hash_name}")
    tree.commit("README.md")
    return tree


@pytest.fixture
def plain(tmp_path: Path) -> Tree:
    """A repository as most are, with one commit on main."""
    tree = make(tmp_path / "plain")
    tree.commit("README.md")
    return tree

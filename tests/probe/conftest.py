from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from probe.rig import Tree, has_ref_formats, make, make_named
from rota.probe.local import LocalProbe

Form = Callable[[str], Path]


@pytest.fixture
def probe() -> LocalProbe:
    return LocalProbe()


@pytest.fixture(scope="session")
def form(tmp_path_factory: pytest.TempPathFactory) -> Form:
    """A repository of this form with one commit on main, made once and copied by each test."""

    @cache
    def of(name: str) -> Path:
        path = tmp_path_factory.mktemp("form") / name
        match name:
            case "named":
                tree = make_named(path)
            case "reftable":
                tree = make(path, "--ref-format=reftable")
            case _:
                tree = make(path, f"--object-format={name}")
        tree.commit("README.md")
        return path

    return of


@pytest.fixture(params=["sha1", "sha256", "named", "reftable"])
def tree(form: Form, tmp_path: Path, request: pytest.FixtureRequest) -> Tree:
    """A repository in each form that git writes, with one commit on main."""
    if request.param == "reftable" and not has_ref_formats():
        pytest.skip("this git has no reftable (2.45 or newer)")
    return Tree(shutil.copytree(form(request.param), tmp_path / "repo"))


@pytest.fixture
def plain(form: Form, tmp_path: Path) -> Tree:
    """A repository as most are, with one commit on main."""
    return Tree(shutil.copytree(form("sha1"), tmp_path / "plain"))

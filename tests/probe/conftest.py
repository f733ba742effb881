from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from rota.probe.local import LocalProbe
from tests.probe.rig import GitTree, create_ref_storage_repository, create_repository, has_ref_formats

RepositoryFactory = Callable[[str], Path]


@pytest.fixture
def probe() -> LocalProbe:
    return LocalProbe()


@pytest.fixture(scope="session")
def repository_of_format(tmp_path_factory: pytest.TempPathFactory) -> RepositoryFactory:
    """Factory of a repository with one commit on main, created once per format and copied by each test."""

    @cache
    def create(name: str) -> Path:
        path = tmp_path_factory.mktemp("format") / name
        match name:
            case "ref-storage":
                tree = create_ref_storage_repository(path)
            case "reftable":
                tree = create_repository(path, "--ref-format=reftable")
            case _:
                tree = create_repository(path, f"--object-format={name}")
        tree.commit("README.md")
        return path

    return create


@pytest.fixture(params=["sha1", "sha256", "ref-storage", "reftable"])
def any_repository(repository_of_format: RepositoryFactory, tmp_path: Path, request: pytest.FixtureRequest) -> GitTree:
    """Repository with one commit on main, in each format that git writes."""
    if request.param == "reftable" and not has_ref_formats():
        pytest.skip("this git has no reftable (2.45 or newer)")
    return GitTree(shutil.copytree(repository_of_format(request.param), tmp_path / "repo"))


@pytest.fixture
def repository(repository_of_format: RepositoryFactory, tmp_path: Path) -> GitTree:
    """Repository in the default format with one commit on main."""
    return GitTree(shutil.copytree(repository_of_format("sha1"), tmp_path / "plain"))

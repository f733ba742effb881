"""Probe of git repositories: reads stable file formats directly and runs `git` for everything else."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from rota.kernel.facts import UNREADABLE, BranchFile, BranchHead, Fact, FactValue, ProbeFailure
from rota.probe.branch_files import BranchFileReader
from rota.probe.git_command import Failures, GitCommandError, GitProbeError, run_git, run_git_line
from rota.probe.git_repository import find_repository
from rota.probe.refs import HEADS, RefReader, read_loose_ref, symbolic_target

_MAX_REPOSITORIES = 100
_HEX = re.compile(r"[0-9a-f]{4,64}")
_IN_PROGRESS = ("MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "rebase-merge", "rebase-apply", "sequencer")
_PSEUDO_REFS = ("CHERRY_PICK_HEAD", "REVERT_HEAD")


class GitProbe:
    def __init__(self, failures: Failures) -> None:
        self._failures = failures
        self._repositories: dict[str, tuple[RefReader, BranchFileReader]] = {}

    def observe(self, facts: Iterable[BranchHead | BranchFile]) -> dict[Fact, FactValue]:
        by_repository: dict[str, list[BranchHead | BranchFile]] = {}
        for fact in facts:
            by_repository.setdefault(fact.repository, []).append(fact)
        if len(self._repositories) > _MAX_REPOSITORIES:
            self._repositories = {
                name: readers for name, readers in self._repositories.items() if name in by_repository
            }
        observed: dict[Fact, FactValue] = {}
        for repository, its_facts in by_repository.items():
            observed.update(dict.fromkeys(its_facts, UNREADABLE))
            try:
                self._observe_repository(repository, its_facts, observed)
            except (FileNotFoundError, NotADirectoryError) as error:  # the repository does not exist
                observed.update((fact, None if isinstance(fact, BranchHead) else False) for fact in its_facts)
                self._failures.report(f"repository {repository}", str(error))
            except (GitProbeError, OSError, ValueError) as error:
                self._failures.report(f"repository {repository}", str(error))
            else:
                self._failures.clear(f"repository {repository}")
        return observed

    def _observe_repository(
        self, repository: str, facts: list[BranchHead | BranchFile], observed: dict[Fact, FactValue]
    ) -> None:
        """Read every branch once, so that its head and its files are consistent."""
        if repository not in self._repositories:
            self._repositories[repository] = (
                RefReader(repository, self._failures),
                BranchFileReader(repository, self._failures),
            )
        refs, branch_files = self._repositories[repository]
        heads = refs.read_heads({fact.branch for fact in facts})
        commit_paths = {}
        for fact in facts:
            oid = heads[fact.branch]
            if isinstance(fact, BranchHead) or isinstance(oid, ProbeFailure):
                observed[fact] = oid
            elif oid is None:
                observed[fact] = False
            else:
                commit_paths[fact] = (oid, fact.path)
        if commit_paths:
            results = branch_files.check(set(commit_paths.values()))
            observed.update((fact, results[commit_path]) for fact, commit_path in commit_paths.items())

    def find_repository(self, directory: str) -> str | None:
        repository = find_repository(directory)
        return None if repository is None else repository.common_directory

    def find_worktree_root(self, directory: str) -> str | None:
        repository = find_repository(directory)
        if repository is None or repository.worktree is None:
            return None
        # The result depends on `core.bare` and `core.worktree`, so git computes it.
        top = run_git_line(repository.directory, ["rev-parse", "--show-toplevel"], cwd=repository.worktree)
        return None if top is None else os.path.realpath(top)

    def current_branch(self, directory: str) -> str | None:
        repository = find_repository(directory)
        if repository is None or repository.worktree is None:
            return None
        try:
            if RefReader(repository.common_directory, self._failures).is_git_only():
                target = run_git_line(repository.directory, ["symbolic-ref", "--quiet", "HEAD"])
            else:
                target = symbolic_target(read_loose_ref(f"{repository.directory}/HEAD"))
        except OSError:
            return None
        return target.removeprefix(HEADS) if target is not None and target.startswith(HEADS) else None

    def resolve_commit(self, repository: str, rev: str) -> str | None:
        """Return the only commit with this id or abbreviated id. Refs do not count: a branch can be named `beef`."""
        rev = rev.lower()
        if not _HEX.fullmatch(rev):
            return None
        try:
            object_ids = run_git(repository, ["rev-parse", f"--disambiguate={rev}"]).split()
            lines = b"".join(oid + b"^{commit}\n" for oid in object_ids)
            output = run_git(repository, ["cat-file", "--batch-check"], stdin=lines).decode().splitlines()
        except GitCommandError:
            return None
        except GitProbeError as error:
            self._failures.report(f"repository {repository}", str(error))
            return None
        commits = {line.split()[0] for line in output if " commit " in line}
        return commits.pop() if len(commits) == 1 else None

    def has_merge_in_progress(self, repository: str) -> bool:
        try:
            is_git_only = RefReader(repository, self._failures).is_git_only()
        except OSError:
            is_git_only = False
        return any(_is_in_progress(directory, is_git_only) for directory in _list_worktrees(repository))


def _list_worktrees(repository: str) -> list[str]:
    """Return the git directories of the main working tree and of the linked ones that exist."""
    try:
        linked = sorted(Path(repository, "worktrees").iterdir())
    except OSError:
        linked = []
    return [repository, *(str(directory) for directory in linked if _has_worktree(directory))]


def _has_worktree(directory: Path) -> bool:
    try:
        link = os.fsdecode((directory / "gitdir").read_bytes()).rstrip("\r\n")
        return (directory / "locked").exists() or (directory / link).exists()
    except OSError:
        return False


def _is_in_progress(directory: str, is_git_only: bool) -> bool:
    if any(os.path.lexists(f"{directory}/{name}") for name in _IN_PROGRESS):
        return True
    return is_git_only and any(
        run_git_line(directory, ["rev-parse", "--quiet", "--verify", name]) is not None for name in _PSEUDO_REFS
    )

"""What a submit asks of git before it is stored: the repository, the base, and the patch to begin with.

It takes as long as git does, so it runs in a thread of its own, before the engine hears of the submit. What cannot be
had is refused by name, and nothing is stored.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

from rota.command.submission import Submission, Surroundings
from rota.core.workspace import Workspace
from rota.errors import InvalidInput, within
from rota.executor.workspace.git import Git, GitError, TooLarge
from rota.executor.workspace.input import path_of, show_input, take_input
from rota.ids import JobId

LIMIT = 30.0
"""Seconds for all that one submit asks of git."""
MOST_INPUT = 64 << 20


def asks_for_one(wanted: Submission) -> bool:
    return bool(wanted.worktree or wanted.patch or wanted.with_diff or wanted.base is not None)


def _first_asked(wanted: Submission) -> str:
    return next(field for field in ("worktree", "patch", "with_diff") if getattr(wanted, field))


def prepare(
    wanted: Sequence[Submission], around: Surroundings, home: str, *, keeps_inputs: bool = True
) -> list[Workspace | None]:
    """The workspace of each; none where none is asked for. A rehearsal keeps no patch: that is a file in the home."""
    asked = _Asked(home, keeps_inputs=keeps_inputs)
    found: list[Workspace | None] = []
    for n, member in enumerate(wanted):
        with within(f".jobs[{n}]"):
            found.append(asked.workspace(member, member.cwd or around.cwd) if asks_for_one(member) else None)
    return found


def show_inputs(home: str, jobs: Sequence[JobId], workspaces: Sequence[Workspace | None]) -> None:
    """What each job begins with is to be seen from the start. It is put there again when the job starts, so what goes
    wrong here is no loss."""
    for job, workspace in zip(jobs, workspaces, strict=True):
        if workspace is not None and workspace.input is not None:
            directory = f"{home}/jobs/{job}"
            try:
                os.makedirs(directory, 0o700, exist_ok=True)  # noqa: PTH103
                show_input(path_of(home, workspace.input), directory)
            except OSError:
                return


class _Asked:
    """git, asked once for each directory: the jobs of a batch have most often the same."""

    def __init__(self, home: str, *, keeps_inputs: bool) -> None:
        self._home = home
        self._keeps_inputs = keeps_inputs
        self._deadline = time.monotonic() + LIMIT
        self._places: dict[str, tuple[str, str, str]] = {}
        self._bases: dict[tuple[str, str | None], str] = {}
        self._inputs: dict[str, str] = {}

    def workspace(self, wanted: Submission, cwd: str) -> Workspace:
        if wanted.base is not None and not wanted.worktree:
            said = "`base` is what a worktree is made from: ask for `worktree` too, or leave `base` out"
            raise InvalidInput(said).under(".base")
        with within(f".{_first_asked(wanted)}"):
            repository, top, below = self._place(cwd)
        with within(".worktree" if wanted.base is None else ".base"):
            base = self._base(cwd, wanted.base) if wanted.worktree else None
        with within(".with_diff"):
            taken = self._input(top) if wanted.with_diff and self._keeps_inputs else None
        return Workspace(repository=repository, below=below, base=base, patch=bool(wanted.patch), input=taken)

    def _place(self, cwd: str) -> tuple[str, str, str]:
        """The git common directory, the top of the working tree, and the way from there."""
        if cwd not in self._places:
            git = Git(cwd, self._deadline)
            try:
                found = git("rev-parse", "--path-format=absolute", "--git-common-dir")
                words = ("rev-parse", "--path-format=absolute", "--show-toplevel", "--show-prefix")
                top, below = git(*words).split("\n")[:2] if _is_in_a_tree(git) else ("", "")
            except (GitError, ValueError) as error:
                raise InvalidInput(_no_repository(cwd, str(error))) from None
            if not top:
                raise InvalidInput(
                    f"{cwd} is not inside a git working tree, only in a repository without one; name another `cwd`"
                )
            self._places[cwd] = found, top, below.rstrip("/")
        return self._places[cwd]

    def _base(self, cwd: str, named: str | None) -> str:
        if (cwd, named) not in self._bases:
            if named is not None and (not named or named.startswith("-") or "\x00" in named):
                raise InvalidInput(f"unknown `base`: {named!r}; name a branch, a tag or a commit")
            git = Git(cwd, self._deadline)
            try:
                found = git.maybe(
                    "rev-parse", "--verify", "--quiet", "--end-of-options", f"{named or 'HEAD'}^{{commit}}"
                )
            except GitError as error:
                raise InvalidInput(f"`base` cannot be looked up: {error}") from None
            if found is None:
                raise InvalidInput(_unknown_base(cwd, named))
            self._bases[cwd, named] = found
        return self._bases[cwd, named]

    def _input(self, top: str) -> str:
        if top not in self._inputs:
            try:
                self._inputs[top] = take_input(Git(top, self._deadline), self._home, most=MOST_INPUT)
            except TooLarge:
                raise InvalidInput(
                    f"what is not committed in {top} makes a patch of more than {MOST_INPUT >> 20} MiB; "
                    "commit it, have git ignore it, or leave `with_diff` out"
                ) from None
            except (GitError, OSError) as error:
                raise InvalidInput(f"`with_diff`: what is not committed in {top} cannot be taken: {error}") from None
        return self._inputs[top]


def _is_in_a_tree(git: Git) -> bool:
    return git("rev-parse", "--is-inside-work-tree") == "true"


def _no_repository(cwd: str, said: str) -> str:
    if "not a git repository" in said:
        return (
            f"not in a git repository: {cwd}; `worktree`, `patch` and `with_diff` need one around the working directory"
        )
    return f"the repository around {cwd} cannot be used: {said}"


def _unknown_base(cwd: str, named: str | None) -> str:
    if named is None:
        return f"the repository around {cwd} has no commit yet to make a worktree from; commit something first"
    return f"unknown `base`: {named}; it names no commit of the repository around {cwd}"

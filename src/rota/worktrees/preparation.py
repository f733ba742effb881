"""Workspaces of a submit, resolved with git before it is stored: the repository, the base and the input patch.

Git may be slow, so this runs in a thread of its own before the engine receives the submit. A reference that cannot be
resolved is refused by name, and nothing is stored.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

from rota.errors import InvalidInput, error_path
from rota.ids import JobId
from rota.jobs.submission import DefaultEnvironment, Submission
from rota.kernel.job import WorkspaceSpec
from rota.naming import has_line_break
from rota.worktrees.git import Git, GitError, GitOutputTooLarge
from rota.worktrees.patches import capture_input, link_input, patch_path

GIT_TIMEOUT = 30.0
"""Seconds for all git commands of one submit."""
MAX_INPUT_BYTES = 64 << 20


def needs_workspace(submission: Submission) -> bool:
    return bool(submission.worktree or submission.patch or submission.with_diff or submission.base is not None)


def _first_workspace_field(submission: Submission) -> str:
    return next(field for field in ("worktree", "patch", "with_diff") if getattr(submission, field))


def prepare_workspaces(
    submissions: Sequence[Submission], default_environment: DefaultEnvironment, home: str, *, stores_inputs: bool = True
) -> list[WorkspaceSpec | None]:
    """Return the workspace of each submission, or None if it requests none. A dry run passes `stores_inputs=False`, as
    an input patch is a file in the home."""
    resolver = _WorkspaceResolver(home, stores_inputs=stores_inputs)
    workspaces: list[WorkspaceSpec | None] = []
    for n, member in enumerate(submissions):
        with error_path(f".jobs[{n}]"):
            workspaces.append(
                resolver.resolve(member, member.cwd or default_environment.cwd) if needs_workspace(member) else None
            )
    return workspaces


def link_inputs(home: str, jobs: Sequence[JobId], workspaces: Sequence[WorkspaceSpec | None]) -> None:
    """Link the input patch of each job into its directory, to be visible from the start. The start of the job links it
    again, so an error here is harmless."""
    for job, workspace in zip(jobs, workspaces, strict=True):
        if workspace is not None and workspace.input_patch is not None:
            directory = f"{home}/jobs/{job}"
            try:
                os.makedirs(directory, 0o700, exist_ok=True)  # noqa: PTH103
                link_input(patch_path(home, workspace.input_patch), directory)
            except OSError:
                return


class _WorkspaceResolver:
    """Resolver that runs git once for each directory: the jobs of a batch mostly share one."""

    def __init__(self, home: str, *, stores_inputs: bool) -> None:
        self._home = home
        self._stores_inputs = stores_inputs
        self._deadline = time.monotonic() + GIT_TIMEOUT
        self._locations: dict[str, tuple[str, str, str]] = {}
        self._bases: dict[tuple[str, str | None], str] = {}
        self._inputs: dict[str, str] = {}

    def resolve(self, submission: Submission, cwd: str) -> WorkspaceSpec:
        if submission.base is not None and not submission.worktree:
            message = "`base` needs a worktree: add `worktree`, or leave `base` out"
            raise InvalidInput(message).at_path(".base")
        with error_path(f".{_first_workspace_field(submission)}"):
            repository, top, subdirectory = self._locate(cwd)
        with error_path(".worktree" if submission.base is None else ".base"):
            base = self._resolve_base(cwd, submission.base) if submission.worktree else None
        with error_path(".with_diff"):
            input_patch = self._store_input(top) if submission.with_diff and self._stores_inputs else None
        return WorkspaceSpec(
            repository=repository,
            subdirectory=subdirectory,
            base=base,
            patch=bool(submission.patch),
            input_patch=input_patch,
        )

    def _locate(self, cwd: str) -> tuple[str, str, str]:
        """Return the git common directory, the top of the working tree, and the path from there to `cwd`."""
        if cwd not in self._locations:
            git = Git(cwd, self._deadline)
            try:
                common_directory = git("rev-parse", "--path-format=absolute", "--git-common-dir")
                arguments = ("rev-parse", "--path-format=absolute", "--show-toplevel", "--show-prefix")
                lines = git(*arguments) if _is_in_work_tree(git) else "\n"
            except GitError as error:
                raise InvalidInput(_explain_no_repository(cwd, str(error))) from None
            top, _, subdirectory = lines.partition("\n")
            if has_line_break(common_directory) or has_line_break(top) or has_line_break(subdirectory):
                message = f"the path of the repository around {cwd!r}, or of the directory in it, has a line break"
                raise InvalidInput(f"{message}; rename the directory, or name another `cwd`")
            if not top:
                raise InvalidInput(
                    f"{cwd} is not inside a git working tree, only in a repository without one; name another `cwd`"
                )
            self._locations[cwd] = common_directory, top, subdirectory.rstrip("/")
        return self._locations[cwd]

    def _resolve_base(self, cwd: str, reference: str | None) -> str:
        if (cwd, reference) not in self._bases:
            if reference is not None and (not reference or reference.startswith("-") or "\x00" in reference):
                raise InvalidInput(f"unknown `base`: {reference!r}; name a branch, a tag or a commit")
            git = Git(cwd, self._deadline)
            try:
                commit = git.try_run(
                    "rev-parse", "--verify", "--quiet", "--end-of-options", f"{reference or 'HEAD'}^{{commit}}"
                )
            except GitError as error:
                raise InvalidInput(f"`base` cannot be resolved: {error}") from None
            if commit is None:
                raise InvalidInput(_explain_unknown_base(cwd, reference))
            self._bases[cwd, reference] = commit
        return self._bases[cwd, reference]

    def _store_input(self, top: str) -> str:
        if top not in self._inputs:
            try:
                self._inputs[top] = capture_input(Git(top, self._deadline), self._home, max_bytes=MAX_INPUT_BYTES)
            except GitOutputTooLarge:
                raise InvalidInput(
                    f"the uncommitted changes in {top} make a patch of more than {MAX_INPUT_BYTES >> 20} MiB; "
                    "commit them, let git ignore them, or leave `with_diff` out"
                ) from None
            except (GitError, OSError) as error:
                raise InvalidInput(f"`with_diff`: the uncommitted changes in {top} cannot be read: {error}") from None
        return self._inputs[top]


def _is_in_work_tree(git: Git) -> bool:
    return git("rev-parse", "--is-inside-work-tree") == "true"


def _explain_no_repository(cwd: str, message: str) -> str:
    if "not a git repository" in message:
        return (
            f"not in a git repository: {cwd}; `worktree`, `patch` and `with_diff` need one around the working directory"
        )
    return f"the repository around {cwd} cannot be used: {message}"


def _explain_unknown_base(cwd: str, reference: str | None) -> str:
    if reference is None:
        return f"the repository around {cwd} has no commit yet to make a worktree from; commit something first"
    return f"unknown `base`: {reference}; it names no commit of the repository around {cwd}"

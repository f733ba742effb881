"""The supervisor's view of a run's workspace. Children do the work (`rota.worktrees`)."""

from __future__ import annotations

import json
import os

from rota.job_files import WORKSPACE_FILE
from rota.supervisor import log_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MACHINE_FAILURE_EXIT_CODE = 75
"""Exit code of a step that failed because of the machine, not the job."""
EXTRA_TIMEOUT = 10.0
"""Seconds beyond its own limit, for a step that does not enforce it."""
_MAX_RECORD_BYTES = 1 << 20
_GIT_VARIABLES = (
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_COMMON_DIR",
    "GIT_DIR",
    "GIT_INDEX_FILE",
    "GIT_NAMESPACE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_PREFIX",
    "GIT_WORK_TREE",
)
"""Set when a job is submitted from inside a git hook: they name the repository's own tree, not the job's."""


class RunWorkspace:
    __slots__ = ("has_run", "may_have_finished", "order", "state")

    def __init__(self, order: dict[str, Any]) -> None:
        self.order = order
        self.state: dict[str, Any] | None = None
        """The state that `begin` wrote. Kept here, because the job could change the file."""
        self.has_run = False
        """Whether the command of the job was started; only then is there a patch of its changes."""
        self.may_have_finished = False
        """Whether the command ended some time ago: a lost supervisor may have started the finish step."""

    @property
    def limit(self) -> float:
        """Maximum seconds of a step."""
        return float(self.order["limit"]) + EXTRA_TIMEOUT

    @property
    def needs_finish(self) -> bool:
        """Return whether there is something for `end` to finish."""
        return self.state is not None and "worktree_root" in self.state

    @property
    def has_worktree(self) -> bool:
        """Return whether the job works in its own worktree."""
        return self.state is not None and self.state.get("worktree") is not None

    def load_state(self, directory: str, code: int) -> str:
        """Load the state after `begin` exited with this code, and return the working directory. Raises ValueError on
        failure."""
        if code != 0:
            raise ValueError(log_files.read_tail(directory, log_files.WORKSPACE).strip() or "it timed out")
        try:
            fd = os.open(f"{directory}/{WORKSPACE_FILE}", os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise ValueError(f"{WORKSPACE_FILE} cannot be read: {error.strerror}") from None
        try:
            state = json.loads(os.read(fd, _MAX_RECORD_BYTES))
        finally:
            os.close(fd)
        cwd: str = state["cwd"]
        self.state = state
        return cwd

    def arguments(self) -> list[str]:
        """Return the arguments of `begin`, or of `end` once `begin` is done."""
        if self.state is None:
            return ["begin", json.dumps(self.order)]
        progress = {"state": self.state, "has_run": self.has_run, "may_have_finished": self.may_have_finished}
        return ["end", json.dumps({**self.order, **progress})]

    def without_git_variables(self, variables: dict[str, str], cwd: str) -> dict[str, str]:
        if not self.has_worktree:
            return variables
        kept = {name: value for name, value in variables.items() if name not in _GIT_VARIABLES}
        return {**kept, "PWD": cwd}

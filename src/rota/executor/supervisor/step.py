"""Steps of one run: its processes in order. Most runs have only the main one."""

from __future__ import annotations

import enum


class RunStep(enum.Enum):
    SET_UP = "set up the workspace, if the run has one"
    CHECK = "run `skip_if`, if the run has one"
    MAIN = "run the command"
    FINISH = "create the patch, and remove the worktree if that is safe"

    @property
    def is_internal(self) -> bool:
        """Return whether the step belongs to the supervisor and not to the user: before or after everything the job
        does."""
        return self is RunStep.SET_UP or self is RunStep.FINISH

    @property
    def is_before_main(self) -> bool:
        return self is RunStep.SET_UP or self is RunStep.CHECK

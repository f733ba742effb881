"""The processes of one run, one after the other. Most runs have the main one alone."""

from __future__ import annotations

import enum


class Step(enum.Enum):
    SET_UP = "makes its workspace, where it has one"
    CHECK = "`skip_if`, where it has one"
    MAIN = "its command"
    FINISH = "takes its patch and removes its worktree, if that is safe"

    @property
    def is_ours(self) -> bool:
        """Not the user's: nothing of the job has begun, or all of it is over."""
        return self is Step.SET_UP or self is Step.FINISH

    @property
    def is_before_main(self) -> bool:
        return self is Step.SET_UP or self is Step.CHECK

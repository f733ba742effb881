"""What the supervisor has to know of a run's workspace; the work is done by children (`rota.executor.workspace`)."""

from __future__ import annotations

import json
import os

from rota.executor.supervisor import logs
from rota.report import WORKSPACE as RECORD

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MACHINE = 75
"""Exit code: the machine's trouble, not the job's."""
PATIENCE = 10.0
"""Seconds beyond its own limit, for a child that does not keep it."""
_MOST = 1 << 20
_ORIGIN = (
    "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_COMMON_DIR", "GIT_DIR", "GIT_INDEX_FILE", "GIT_NAMESPACE",
    "GIT_OBJECT_DIRECTORY", "GIT_PREFIX", "GIT_WORK_TREE",
)  # fmt: skip
"""Set where a job is submitted from inside a hook: they name the repository's own tree, not the job's."""


class Workspace:
    __slots__ = ("has_run", "is_late", "order", "place")

    def __init__(self, order: dict[str, Any]) -> None:
        self.order = order
        self.place: dict[str, Any] | None = None
        """What `begin` wrote down. Kept here, for the job could change the file."""
        self.has_run = False
        self.is_late = False
        """Its command ended some time ago: a supervisor that was lost may have begun with what follows."""

    @property
    def limit(self) -> float:
        return float(self.order["limit"]) + PATIENCE

    @property
    def is_to_finish(self) -> bool:
        """There is something that `end` has to look after."""
        return self.place is not None and "top" in self.place

    @property
    def is_moved(self) -> bool:
        """The job works in a tree of its own."""
        return self.place is not None and self.place.get("worktree") is not None

    def take_up(self, directory: str, code: int) -> str:
        """The working directory, now that `begin` has ended with this code. ValueError where there is none."""
        if code != 0:
            raise ValueError(logs.tail(directory, logs.WORKSPACE).strip() or "it did not end in time")
        try:
            fd = os.open(f"{directory}/{RECORD}", os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise ValueError(f"{RECORD} cannot be read: {error.strerror}") from None
        try:
            place = json.loads(os.read(fd, _MOST))
        finally:
            os.close(fd)
        cwd: str = place["cwd"]
        self.place = place
        return cwd

    def words(self) -> list[str]:
        """Begin, and once that is done, end."""
        if self.place is None:
            return ["begin", json.dumps(self.order)]
        so_far = {"place": self.place, "has_run": self.has_run, "is_late": self.is_late}
        return ["end", json.dumps({**self.order, **so_far})]

    def without_origin(self, variables: dict[str, str], cwd: str) -> dict[str, str]:
        if not self.is_moved:
            return variables
        kept = {name: value for name, value in variables.items() if name not in _ORIGIN}
        return {**kept, "PWD": cwd}

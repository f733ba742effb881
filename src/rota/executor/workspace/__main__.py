"""`begin` and `end` of one run's workspace, as children of the supervisor. What goes wrong is said on stderr."""

# ruff: noqa: PTH108, PTH116, PTH118
from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import sys
import time
from typing import Any

from rota.executor.workspace import record
from rota.executor.workspace.git import Git, GitError
from rota.executor.workspace.input import FILE as INPUT_PATCH
from rota.executor.workspace.input import put_input
from rota.executor.workspace.order import WorkspaceOrder, read_order
from rota.executor.workspace.tree import Scratch, snapshot, write_patch
from rota.executor.workspace.worktree import Worktree, make, remove_if_safe, undo
from rota.leftover import PATCH as COMMAND_PATCH

_NO_ROOM = os.strerror(errno.ENOSPC)
_MACHINE = 75
"""The machine's trouble, not the job's."""


def main() -> int:
    signal.signal(signal.SIGTERM, _leave)
    verb, order = sys.argv[1], json.loads(sys.argv[2])
    try:
        if verb == "begin":
            begin(read_order(order))
        else:
            end(read_order(order), order["place"], has_run=order["has_run"], is_late=order.get("is_late", False))
    except (GitError, OSError) as error:
        print(error, file=sys.stderr)
        return _MACHINE if _NO_ROOM in str(error) else 1
    return 0


def _leave(*_: object) -> None:
    """As an exception, so that what is made half is removed."""
    raise SystemExit(128 + signal.SIGTERM)


def begin(order: WorkspaceOrder) -> None:
    """Make it, and write down where it is: the supervisor starts the job there."""
    deadline = time.monotonic() + order.limit
    before = record.mark_used(order.directory)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(f"{order.directory}/{COMMAND_PATCH}")
    scratch = _scratch(order)
    scratch.remove()
    if order.input is not None:
        put_input(order.input, order.directory)
    if order.base is None:
        place = _in_place(order, scratch, deadline)
    else:
        git = Git(order.repository, deadline)
        tree = make(git, f"{order.home}/worktrees", order.job, order.base, before)
        try:
            place = _in_worktree(order, tree, scratch, deadline)
        except BaseException:
            undo(tree)
            raise
    record.write(order.directory, place)


def _in_place(order: WorkspaceOrder, scratch: Scratch, deadline: float) -> dict[str, Any]:
    if not order.wants_patch:
        return {"cwd": order.cwd, "worktree": None}
    top = Git(order.cwd, deadline)("rev-parse", "--show-toplevel")
    start = snapshot(Git(top, deadline), scratch, order.home)
    return {"cwd": order.cwd, "worktree": None, "top": top, "start": start}


def _in_worktree(order: WorkspaceOrder, tree: Worktree, scratch: Scratch, deadline: float) -> dict[str, Any]:
    start = ""
    if order.input is not None:
        inside = Git(tree.path, deadline)
        given = f"{order.directory}/{INPUT_PATCH}"
        if os.stat(given).st_size:
            inside("apply", "--whitespace=nowarn", given)
        start = snapshot(inside, scratch, order.home)
    return {
        "cwd": os.path.join(tree.path, order.below).rstrip("/"),
        "repository": tree.repository,
        "worktree": tree.path,
        "branch": tree.branch,
        "base": tree.base,
        "top": tree.path,
        "start": start,
    }


def end(order: WorkspaceOrder, place: dict[str, Any], *, has_run: bool, is_late: bool = False) -> None:
    """Take the patch, then remove the worktree if that is safe. Without its patch it stays. Where it is late, a patch
    that somebody took in time stands: the worktree may be half removed since."""
    deadline = time.monotonic() + order.limit
    scratch = _scratch(order)
    is_patched = is_late and bool((record.read(order.directory) or {}).get("is_patched"))
    try:
        if has_run and order.wants_patch and not is_patched:
            if is_late and not place.get("worktree"):
                raise GitError("the supervisor was lost, and what others changed there since cannot be told apart")
            _take_patch(order, place, scratch, deadline)
        place = {**place, "is_patched": True}
        record.write(order.directory, place)
    except (GitError, OSError) as error:
        if place.get("worktree"):
            record.write(order.directory, {**place, "kept": f"its patch could not be taken: {error}"})
        raise type(error)(f"the patch could not be taken: {error}") from error
    finally:
        scratch.remove()
    if place.get("worktree"):
        tree = Worktree(place["repository"], place["worktree"], place["branch"], place["base"], place["start"])
        kept = remove_if_safe(tree, deadline=deadline)
        record.write(order.directory, {**place, "kept": kept, "is_removed": kept is None})


def _take_patch(order: WorkspaceOrder, place: dict[str, Any], scratch: Scratch, deadline: float) -> None:
    git = Git(place["top"], deadline)
    now = snapshot(git, scratch, order.home)
    write_patch(git, scratch, f"{order.directory}/{COMMAND_PATCH}", place["start"] or place["base"], now)


def _scratch(order: WorkspaceOrder) -> Scratch:
    return Scratch(f"{order.directory}/workspace.tmp")


if __name__ == "__main__":
    sys.exit(main())

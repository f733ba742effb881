"""Commands `begin` and `end` of one run's workspace, run as children of the supervisor. Errors go to stderr."""

# ruff: noqa: PTH108, PTH116, PTH118, PTH120
from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import sys
import time
from typing import Any

from rota.job_files import PATCH_FILE as COMMAND_PATCH
from rota.job_files import unusable_reason
from rota.worktrees import record
from rota.worktrees.git import Git, GitError
from rota.worktrees.patches import INPUT_PATCH, ScratchDirectory, copy_input, snapshot, write_patch
from rota.worktrees.record import WorkspaceOrder, parse_order
from rota.worktrees.worktree import Worktree, discard_worktree, make_worktree, remove_if_safe

_DISK_FULL_MESSAGE = os.strerror(errno.ENOSPC)
_MACHINE_FAILURE = 75
"""Exit code of a failure of the machine, not of the job."""


def main() -> int:
    signal.signal(signal.SIGTERM, _raise_exit)
    verb, order = sys.argv[1], json.loads(sys.argv[2])
    try:
        if verb == "begin":
            begin(parse_order(order))
        else:
            end(
                parse_order(order),
                order["state"],
                has_run=order["has_run"],
                may_have_finished=order.get("may_have_finished", False),
            )
    except (GitError, OSError) as error:
        reason = None if verb == "end" else _unusable_reason(parse_order(order))
        print(reason or error, file=sys.stderr)
        return _MACHINE_FAILURE if reason or _DISK_FULL_MESSAGE in str(error) else 1
    return 0


def _unusable_reason(order: WorkspaceOrder) -> str | None:
    """Return why no job can get a directory or a worktree in the home, or None if one can."""
    parents = [os.path.dirname(order.directory)] + ([] if order.base is None else [worktrees_directory(order.home)])
    return next((reason for parent in parents if (reason := unusable_reason(parent)) is not None), None)


def _raise_exit(*_: object) -> None:
    """Raise an exception, so that a half-created workspace is removed."""
    raise SystemExit(128 + signal.SIGTERM)


def worktrees_directory(home: str) -> str:
    return f"{home}/worktrees"


def begin(order: WorkspaceOrder) -> None:
    """Create the workspace and record its path: the supervisor starts the job there."""
    deadline = time.monotonic() + order.limit
    previous = record.mark_used(order.directory)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(f"{order.directory}/{COMMAND_PATCH}")
    scratch = _scratch(order)
    scratch.remove()
    if order.input_patch is not None:
        copy_input(order.input_patch, order.directory)
    if order.base is None:
        state = _set_up_in_place(order, scratch, deadline)
    else:
        git = Git(order.repository, deadline)
        tree = make_worktree(git, worktrees_directory(order.home), order.job, order.base, previous)
        try:
            state = _set_up_worktree(order, tree, scratch, deadline)
        except BaseException:
            discard_worktree(tree)
            raise
    record.write(order.directory, state)


def _set_up_in_place(order: WorkspaceOrder, scratch: ScratchDirectory, deadline: float) -> dict[str, Any]:
    if not order.needs_patch:
        return {"cwd": order.cwd, "worktree": None}
    root = Git(order.cwd, deadline)("rev-parse", "--show-toplevel")
    start = snapshot(Git(root, deadline), scratch, order.home)
    return {"cwd": order.cwd, "worktree": None, "worktree_root": root, "start_tree": start}


def _set_up_worktree(
    order: WorkspaceOrder, tree: Worktree, scratch: ScratchDirectory, deadline: float
) -> dict[str, Any]:
    start = ""
    if order.input_patch is not None:
        worktree_git = Git(tree.path, deadline)
        patch = f"{order.directory}/{INPUT_PATCH}"
        if os.stat(patch).st_size:
            worktree_git("apply", "--whitespace=nowarn", patch)
        start = snapshot(worktree_git, scratch, order.home)
    return {
        "cwd": os.path.join(tree.path, order.subdirectory).rstrip("/"),
        "repository": tree.repository,
        "worktree": tree.path,
        "branch": tree.branch,
        "base": tree.base,
        "worktree_root": tree.path,
        "start_tree": start,
    }


def end(order: WorkspaceOrder, state: dict[str, Any], *, has_run: bool, may_have_finished: bool = False) -> None:
    """Create the patch, then remove the worktree if that is safe; it stays if there is no patch.

    If `may_have_finished`, a patch that was created in time stands: the worktree may be partly removed."""
    deadline = time.monotonic() + order.limit
    scratch = _scratch(order)
    is_patched = may_have_finished and bool((record.read(order.directory) or {}).get("is_patched"))
    try:
        if has_run and order.needs_patch and not is_patched:
            if may_have_finished and not state.get("worktree"):
                raise GitError("the supervisor was lost, and later changes by others cannot be distinguished")
            _write_command_patch(order, state, scratch, deadline)
        state = {**state, "is_patched": True}
        record.write(order.directory, state)
    except (GitError, OSError) as error:
        if state.get("worktree"):
            record.write(order.directory, {**state, "kept_reason": f"its patch could not be created: {error}"})
        raise type(error)(f"the patch could not be created: {error}") from error
    finally:
        scratch.remove()
    if state.get("worktree"):
        tree = Worktree(state["repository"], state["worktree"], state["branch"], state["base"], state["start_tree"])
        kept = remove_if_safe(tree, deadline=deadline)
        record.write(order.directory, {**state, "kept_reason": kept, "is_removed": kept is None})


def _write_command_patch(
    order: WorkspaceOrder, state: dict[str, Any], scratch: ScratchDirectory, deadline: float
) -> None:
    git = Git(state["worktree_root"], deadline)
    now = snapshot(git, scratch, order.home)
    write_patch(git, scratch, f"{order.directory}/{COMMAND_PATCH}", state["start_tree"] or state["base"], now)


def _scratch(order: WorkspaceOrder) -> ScratchDirectory:
    return ScratchDirectory(f"{order.directory}/workspace.tmp")


if __name__ == "__main__":
    sys.exit(main())

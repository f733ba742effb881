"""Workspaces of jobs.

A workspace is a job's own git worktree, or its working directory, with the patches of its start (input) and end
(command). A record in the job's directory, `workspace.json`, says where the worktree is and why it is kept.

    submit     ── preparation ──► the repository, the base commit, and input.patch, before the submit is stored
    supervisor ── python -m rota.worktrees begin ──► input.patch, worktree, snapshot of the tree
               ── the job's own processes
               ── python -m rota.worktrees end ────► command.patch, and the worktree removed if that is safe
    later      ── record.remove_kept_worktree ─────► a kept worktree removed, once that is safe

git can be slow, blocks on dead mounts, and runs programs that a repository's configuration names. So it runs in
children of the supervisor, never in the engine; threads of the scheduler that need it (submit, rewind, gc) use a
deadline. `begin` and `end` import only the standard library and `job_files`, as the supervisor does.
"""

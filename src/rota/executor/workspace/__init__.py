"""A job's workspace: its own git worktree, and the patches it begins with and leaves behind.

    supervisor ── python -m rota.executor.workspace begin ──► input.patch, worktree, what the tree is at the start
               ── the job's own processes
               ── python -m rota.executor.workspace end ────► command.patch, and the worktree removed if that is safe

git takes its time, hangs on dead mounts and runs what a repository's configuration names. So it runs in children of
the supervisor, never in the engine; and where a thread of the scheduler needs it (a submit, a rewind, gc), with a
deadline. The standard library alone, as for the supervisor.
"""

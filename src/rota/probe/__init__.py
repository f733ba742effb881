"""Probe of the facts that gates need: branch heads, files in branches, files on disk.

    port           what the engine and submit may ask
    local          the probe of this machine: files, and repositories by `git`
    git            facts of one or more repositories: `repository`, `refs`, `branch_files`
    git_command    execution of `git`, for what Rota does not read itself

A probe only reads. It never changes a repository, waits for a network or asks for a password.
"""

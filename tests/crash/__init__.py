"""The crash matrix: real schedulers, supervisors and children, killed at named points and at random moments.

    load      clients that send requests over the socket, each with its key: `mixed` uses every feature, `short` only
              many short jobs
    history   the file to which children and killers write their actions: it tells what really ran without the store
    point     the table of points at which a process can be killed; `killer` kills it, from inside that process
    rig       the home, the manager that restarts a killed scheduler, and the faults
    judge     the final check: the store, the clients and the history must agree

`python -m tests.crash` runs many rounds and prints the table; `make test` hits each point once.
"""

"""The supervisor: the small process that owns running children and outlives the scheduler.

    scheduler ── unix socket, JSON lines ──► server ─► keeper ─► spawn    threads of their own start children
        ▲                                                │ ├───► limits   timeout, idle_timeout
        │                                                │ └───► ending   TERM, KILL, checked gone
        └── started · failed_to_start · exited ◄─────────┤          └───► tree ─► process (/proc, pidfd)
                                                         └─► journal      first written, then told
    at start:  journal ─► history ─► orphan ─► keeper        what a lost predecessor left behind

It is rarely changed, because a new version of it takes effect only when the old one has nothing left to do.
It uses the standard library's cheap parts only (about 13 MiB), and never imports the rest of Rota.

What it promises:

- A start is in the journal before the child exists; an end is in the journal before the child is reaped and
  before anyone is told. The journal is not synced: it guards against the death of processes, not of machines.
- An end is told again on every connection until it is acknowledged.
- An end is told only when nothing of the run's tree is left.
- No process is signalled that is not known, by pid and start time, to belong to the run.
- Timeouts hold while no scheduler is there.
"""

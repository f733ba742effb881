"""Supervisor: the small process that owns running children and outlives the scheduler.

    scheduler ── unix socket, JSON lines ──► server ─► child_manager ─► spawn    threads that start children
        ▲                                                │ ├──► time_limits      timeout, idle_timeout
        │                                                │ └──► tree_terminator  TERM, KILL, verify
        └── started · failed_to_start · exited ◄─────────┤          └──► tree ─► process (/proc, pidfd), cgroup
                                                         └─► journal             written before it is reported
    at start:  journal ─► journal_replay ─► takeover ─► child_manager            runs of a lost predecessor

This package changes rarely, because a new version takes effect only after the old supervisor has nothing left to do. It
uses only inexpensive parts of the standard library (about 13 MiB) and never imports the rest of Rota.

Guarantees:

- A start is in the journal before the child exists. An exit is in the journal before the child is reaped and before
  it is reported. The journal is not synced: it protects against the death of processes, not of the machine.
- An exit is reported again on every connection until it is acknowledged.
- An exit is reported only when no process of the run's tree is left.
- A process is signaled only if its pid and start time identify it as part of the run.
- Timeouts hold while no scheduler is connected.
"""

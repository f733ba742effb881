"""Supervisor: the small process that owns running children and outlives the scheduler.

    scheduler ── unix socket, JSON lines ──► server ─► child_manager ─► spawn    threads that start children
        ▲                     (protocol)                 │ ├──► run      its phases; TimeLimits: timeout, idle_timeout
        │                                                │ ├──► tree     TreeTerminator: TERM, KILL, verify
        │                                                │ │     └──► ProcessTree ─► process (/proc, pidfd), cgroup
        │                                                │ └──► prefetch            the next run without a round trip
        └── started · failed_to_start · exited ◄─────────┴────► journal             written before it is reported
    at start:  journal ─► JournalReplay ─► takeover ─► child_manager                runs of a lost predecessor

This package changes rarely, because a new version takes effect only after the old supervisor has nothing left to do. It
uses only inexpensive parts of the standard library (about 13 MiB). Of the rest of Rota it imports only `job_files` and
the version.

Guarantees:

- A start is in the journal before the child exists. An exit is in the journal before the child is reaped and before
  it is reported. The journal is not synced: it protects against the death of processes, not of the machine.
- An exit is reported again on every connection until it is acknowledged.
- An exit is reported only when no process of the run's tree is left.
- A process is signaled only if its pid and start time identify it as part of the run.
- Timeouts hold while no scheduler is connected.
"""

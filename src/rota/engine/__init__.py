"""The only writer: dispatch, completion and recovery of jobs, driven by events and never by polling.

`Engine.turn` (engine.py) is one transaction. Its steps, in order:

    executor_inbox   record the messages of the executor       finish, recovery, executor_health
    requests         run the requests of clients               control, direct, groups, idempotency, rewind
    dispatch         evaluate the dirty jobs                   facts, fact_cache
    claim            plan and claim the jobs that start        breaker, prefetch
    outbox           store the messages of webhooks
    COMMIT           then send everything in `Effects`         transaction, metrics

`loop` drives the engine in its thread, `calls` submits requests from the event loop, `prober` looks up the facts that
gates need in another thread, and `settings` makes the settings from the configuration.
"""

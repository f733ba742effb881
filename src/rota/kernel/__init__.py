"""Scheduling rules: pure functions and frozen structs, without I/O and without a clock of their own.

    status      statuses of a job and the transitions between them
    gates       order of the gates that a job passes before it is ready
    facts       facts outside the store that gates need
    edges locks artifacts holds        single gates, with `verdict` for their results
    queue pools lanes                  order of the queue, capacity, grouping of jobs
    backpressure pacing prefetch       limits of the queue, starts over time, starts in advance
    tick        evaluation of jobs, and the plan of the starts of a tick
    run retry breaker rewind           what follows from the end of a run
    job groups reservations events     records

The caller passes everything that can change: the records, the facts and the time. Dispatch, `rota why` and dry runs
therefore call the same functions and agree. Of the rest of Rota, the kernel imports only `errors`, `ids`, `naming` and
`duration`.
"""

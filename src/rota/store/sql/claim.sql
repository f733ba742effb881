-- name: running: what draws from pools now, and the slots that wait to do so, which have no worker yet
SELECT job.lane, lane.draws, run.worker
FROM run JOIN job ON job.id = run.job JOIN lane ON lane.id = job.lane
WHERE run.status IS NULL
UNION ALL SELECT id, draws, worker FROM slot WHERE finished_at IS NULL

-- name: lanes: in the order of their first jobs
SELECT id, draws, type, flow, target, asks, ready, precedence, position, created_at, job FROM lane WHERE ready > 0
ORDER BY precedence, position, created_at, job LIMIT :limit

-- name: heads
SELECT precedence, position, created_at, id FROM job
WHERE lane = :lane AND ready = 1 AND stirred = 0
ORDER BY precedence, position, created_at, id LIMIT :limit

-- name: first_stirred
SELECT precedence, position, created_at, id FROM job WHERE stirred = 1
ORDER BY precedence, position, created_at, id LIMIT 1

-- name: claim
UPDATE job SET status = 'DISPATCHED', ready = 0, started_at = :now, wait_kind = NULL
WHERE id = :job AND status = 'QUEUED' AND ready = 1

-- name: add_run
INSERT INTO run (id, job, worker, started_at) VALUES (:run, :job, :worker, :now)

-- name: hold_locks
UPDATE lock SET state = 'held' WHERE job = :job

-- name: orders: what the executor needs to start a job
SELECT job.id, spec.command, spec.cwd, spec.surroundings, spec.params, spec.timeout, spec.idle_timeout, spec.skip_if,
       CASE WHEN EXISTS (SELECT 1 FROM lock WHERE lock.job = job.id) THEN 1 ELSE 0 END,
       CASE WHEN EXISTS (SELECT 1 FROM product WHERE product.chain = job.chain) THEN job.chain END,
       spec.workspace, job.rewound_run, spec.trace, spec.type, job.queued_at
FROM job LEFT JOIN spec ON spec.id = job.spec WHERE job.id @in(ids)

-- name: variables
SELECT variables FROM surroundings WHERE id = :id

-- name: confirm
UPDATE job SET status = 'RUNNING', pid = :pid, pid_started = :pid_started, dispatch_failures = 0
WHERE id = :job AND status IN ('DISPATCHED', 'RUNNING')

-- part: open_run
SELECT run.id, run.job, job.chain, job.status, job.dispatch_failures, job.stop_requested, spec.timeout, spec.idle_timeout,
       CASE WHEN EXISTS (SELECT 1 FROM lock WHERE lock.job = job.id) THEN 1 ELSE 0 END,
       job.retries, spec.retry,
       spec.type, spec.target, (SELECT count(*) FROM breaker WHERE breaker.probe = run.job),
       CASE WHEN EXISTS (SELECT 1 FROM product WHERE product.chain = job.chain) THEN 1 ELSE 0 END, job.job_group,
       run.started_at, job.ready_at, run.worker
FROM run JOIN job ON job.id = run.job LEFT JOIN spec ON spec.id = job.spec

-- name: open_runs
@part(open_run) WHERE run.status IS NULL

-- name: open_run
@part(open_run) WHERE run.id = :run AND run.status IS NULL

-- name: open_run_of
@part(open_run) WHERE run.job = :job AND run.status IS NULL

-- name: finish_run
UPDATE run SET status = :status, finished_at = :finished_at, exit_code = :exit_code, error = :error
WHERE id = :run AND status IS NULL

-- name: finish_job
UPDATE job SET status = :status, finished_at = :now, exit_code = :exit_code, reason = :reason, dispatch_failures = 0,
               permanently_failed = :permanently_failed
WHERE id = :job AND status IN ('DISPATCHED', 'RUNNING')

-- name: forget_run: a dispatch that did not come about is not a run
DELETE FROM run WHERE id = :run AND status IS NULL

-- name: requeue
UPDATE job SET status = :status, stirred = 1, started_at = NULL, pid = NULL, pid_started = NULL, stop_requested = NULL,
               dispatch_failures = :dispatch_failures, last_failure = coalesce(:last_failure, last_failure),
               not_before = coalesce(:not_before, not_before)
WHERE id = :job AND status = 'DISPATCHED'

-- name: end_waiting
UPDATE job SET status = :status, finished_at = :now, exit_code = :exit_code, reason = :reason, ready = 0, stirred = 0,
               wait_kind = NULL, permanently_failed = :permanently_failed
WHERE id = :job AND finished_at IS NULL AND started_at IS NULL
RETURNING lane

-- name: end_dispatched: it was claimed, never started, and shall not be tried again
UPDATE job SET status = :status, finished_at = :now, exit_code = :exit_code, reason = :reason,
               started_at = NULL, dispatch_failures = :dispatch_failures, last_failure = :last_failure,
               permanently_failed = :permanently_failed
WHERE id = :job AND status = 'DISPATCHED'

-- name: standing_of
SELECT ready, status FROM job WHERE id = :job

-- name: request_stop: who cancels a job that a shutdown ends means that it shall not be retried
UPDATE job SET stop_requested = :reason
WHERE id = :job AND (stop_requested IS NULL OR stop_requested = :weaker) AND status IN ('DISPATCHED', 'RUNNING')

-- name: last_of_chain
SELECT last.id, last.status FROM job AS named JOIN job AS last ON last.chain = named.chain
WHERE named.id = :job ORDER BY last.id DESC LIMIT 1

-- name: pauses: by people, and by breakers that are not closed
SELECT scope, paused_by, paused_at, NULL AS state, NULL AS probe FROM pause
UNION ALL SELECT key, NULL, until, state, probe FROM breaker

-- name: add_event
INSERT INTO event (seq, at, kind, cause, actor, job, run, data) VALUES (:seq, :at, :kind, :cause, :actor, :job, :run, :data)

-- name: get_meta
SELECT value FROM meta WHERE key = :key

-- name: set_meta
INSERT INTO meta (key, value) VALUES (:key, :value) ON CONFLICT (key) DO UPDATE SET value = excluded.value

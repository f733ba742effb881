-- name: pool_usage: current demand on pools; a reservation that still waits has no worker yet
SELECT job.lane, lane.demand, run.worker
FROM run JOIN job ON job.id = run.job JOIN lane ON lane.id = job.lane
WHERE run.finished_at IS NULL
UNION ALL SELECT id, demand, worker FROM reservation WHERE finished_at IS NULL

-- name: lanes: in the order of their first jobs
SELECT id, demand, type, flow, target, needs_facts, ready_count, precedence, position, created_at, job
FROM lane WHERE ready_count > 0
ORDER BY precedence, position, created_at, job LIMIT :limit

-- name: heads
SELECT precedence, position, created_at, id FROM job
WHERE lane = :lane AND ready = 1 AND dirty = 0
ORDER BY precedence, position, created_at, id LIMIT :limit

-- name: first_dirty
SELECT precedence, position, created_at, id FROM job WHERE dirty = 1
ORDER BY precedence, position, created_at, id LIMIT 1

-- name: claim
UPDATE job SET status = 'DISPATCHED', ready = 0, started_at = :now, wait_kind = NULL
WHERE id = :job AND status = 'QUEUED' AND ready = 1

-- name: statuses
SELECT id, status FROM job WHERE id @in(ids)

-- name: add_run
INSERT INTO run (id, job, worker, started_at) VALUES (:run, :job, :worker, :now)

-- name: hold_locks
UPDATE lock SET state = 'held' WHERE job = :job

-- name: dispatches: columns that the executor needs to start a job
SELECT job.id, spec.command, spec.cwd, spec.environment, spec.params, spec.timeout, spec.idle_timeout, spec.skip_if,
       CASE WHEN EXISTS (SELECT 1 FROM lock WHERE lock.job = job.id) THEN 1 ELSE 0 END,
       CASE WHEN EXISTS (SELECT 1 FROM product WHERE product.chain = job.chain) THEN job.chain END,
       spec.workspace, job.rewound_run, spec.trace, spec.type, job.queued_at
FROM job LEFT JOIN spec ON spec.id = job.spec WHERE job.id @in(ids)

-- name: environment_variables
SELECT variables FROM environment WHERE id = :id

-- name: confirm_start
UPDATE job SET status = 'RUNNING', pid = :pid, pid_started = :pid_started, dispatch_failures = 0
WHERE id = :job AND status IN ('DISPATCHED', 'RUNNING')

-- part: open_run
SELECT run.id, run.job, job.chain, job.status, job.dispatch_failures, job.stop_requested,
       spec.timeout, spec.idle_timeout,
       CASE WHEN EXISTS (SELECT 1 FROM lock WHERE lock.job = job.id) THEN 1 ELSE 0 END,
       job.retries, spec.retry,
       spec.type, spec.target, (SELECT count(*) FROM breaker WHERE breaker.probe = run.job),
       CASE WHEN EXISTS (SELECT 1 FROM product WHERE product.chain = job.chain) THEN 1 ELSE 0 END, job.job_group,
       run.started_at, job.ready_at, run.worker
FROM run JOIN job ON job.id = run.job LEFT JOIN spec ON spec.id = job.spec

-- name: open_runs
@part(open_run) WHERE run.finished_at IS NULL

-- name: open_run
@part(open_run) WHERE run.id = :run AND run.finished_at IS NULL

-- name: open_run_of
@part(open_run) WHERE run.job = :job AND run.finished_at IS NULL

-- name: finish_run
UPDATE run SET status = :status, finished_at = :finished_at, exit_code = :exit_code, error = :error
WHERE id = :run AND finished_at IS NULL

-- name: finish_job
UPDATE job SET status = :status, finished_at = :now, exit_code = :exit_code, reason = :reason, dispatch_failures = 0,
               permanently_failed = :permanently_failed
WHERE id = :job AND finished_at IS NULL AND started_at IS NOT NULL

-- name: delete_run: a dispatch that started nothing is not a run
DELETE FROM run WHERE id = :run AND finished_at IS NULL

-- name: requeue
UPDATE job SET status = :status, dirty = 1, started_at = NULL, pid = NULL, pid_started = NULL, stop_requested = NULL,
               dispatch_failures = :dispatch_failures, last_failure = coalesce(:last_failure, last_failure),
               not_before = coalesce(:not_before, not_before), delay = coalesce(:delay, delay)
WHERE id = :job AND status = 'DISPATCHED'

-- name: end_waiting
UPDATE job SET status = :status, finished_at = :now, exit_code = :exit_code, reason = :reason, ready = 0, dirty = 0,
               wait_kind = NULL, permanently_failed = :permanently_failed
WHERE id = :job AND finished_at IS NULL AND started_at IS NULL
RETURNING lane

-- name: end_unreadable
UPDATE job SET status = :status, finished_at = coalesce(finished_at, :now), exit_code = :exit_code, reason = :reason,
               ready = 0, dirty = 0, wait_kind = NULL, permanently_failed = 0, pid = NULL, pid_started = NULL
WHERE id = :job
RETURNING lane

-- name: end_dispatched: for a job that was claimed, did not start and is not retried
UPDATE job SET status = :status, finished_at = :now, exit_code = :exit_code, reason = :reason,
               started_at = NULL, dispatch_failures = :dispatch_failures, last_failure = :last_failure,
               permanently_failed = :permanently_failed
WHERE id = :job AND status = 'DISPATCHED'

-- name: readiness_of
SELECT ready, status FROM job WHERE id = :job

-- name: request_stop: a cancel replaces the request of a shutdown, so that the job is not retried
UPDATE job SET stop_requested = :reason
WHERE id = :job AND (stop_requested IS NULL OR stop_requested = :weaker)
  AND finished_at IS NULL AND started_at IS NOT NULL

-- name: last_of_chain
SELECT last.id, last.status FROM job AS named JOIN job AS last ON last.chain = named.chain
WHERE named.id = :job ORDER BY last.id DESC LIMIT 1

-- name: pauses: pauses set by users, and breakers that are not closed
SELECT scope, paused_by, paused_at, NULL AS state, NULL AS probe FROM pause
UNION ALL SELECT key, NULL, until, state, probe FROM breaker

-- name: add_event
INSERT INTO event (seq, at, kind, cause, actor, job, run, data)
VALUES (:seq, :at, :kind, :cause, :actor, :job, :run, :data)

-- name: get_meta
SELECT value FROM meta WHERE key = :key

-- name: set_meta
INSERT INTO meta (key, value) VALUES (:key, :value) ON CONFLICT (key) DO UPDATE SET value = excluded.value

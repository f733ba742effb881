-- name: count_start_constraints: everything besides room that decides which job starts next
SELECT (SELECT count(*) FROM reservation WHERE finished_at IS NULL) + (SELECT count(*) FROM pause)
       + (SELECT count(*) FROM breaker) + (SELECT count(*) FROM job WHERE dirty = 1)

-- name: running_lanes
SELECT run.id, run.job, job.lane FROM run JOIN job ON job.id = run.job WHERE run.finished_at IS NULL

-- name: standalone_jobs: the jobs among these whose success frees room and changes nothing else
SELECT job.id FROM job JOIN spec ON spec.id = job.spec
WHERE job.id @in(ids) AND (job.status = 'QUEUED' OR job.status = 'DISPATCHED' OR job.status = 'RUNNING')
  AND job.job_group IS NULL AND job.schedule IS NULL AND job.stop_requested IS NULL
  AND job.rewound_run IS NULL AND spec.skip_if IS NULL AND spec.workspace IS NULL
  AND NOT EXISTS (SELECT 1 FROM lock WHERE lock.job = job.id)
  AND NOT EXISTS (SELECT 1 FROM product WHERE product.chain = job.chain)
  AND NOT EXISTS (SELECT 1 FROM edge WHERE edge.chain = job.chain)

-- name: add_prefetch
INSERT INTO prefetch (run, job, offered_at) VALUES (:run, :job, :offered_at)

-- name: prefetched_runs
SELECT run FROM prefetch ORDER BY run

-- name: prefetched_jobs: the columns that the runs of standalone jobs need
SELECT job.id, job.chain, job.dispatch_failures, job.retries, spec.retry, spec.target, job.ready_at
FROM job JOIN spec ON spec.id = job.spec WHERE job.id @in(ids)

-- name: take_prefetch
DELETE FROM prefetch WHERE run = :run RETURNING job, offered_at

-- name: claim_prefetched: clears `dirty`, which a scheduler start sets on every waiting job
UPDATE job SET status = 'DISPATCHED', ready = 0, dirty = 0, started_at = :now, wait_kind = NULL
WHERE id = :job AND status = 'QUEUED' AND ready = 1 RETURNING lane

-- name: withdraw_prefetch_of_job: after an edit, the executor must not start the job as it was
DELETE FROM prefetch WHERE job = :job

-- name: clear_prefetch
DELETE FROM prefetch

-- name: disturbances: what makes it uncertain who is next
SELECT (SELECT count(*) FROM slot WHERE finished_at IS NULL) + (SELECT count(*) FROM pause)
       + (SELECT count(*) FROM breaker) + (SELECT count(*) FROM job WHERE stirred = 1)

-- name: open_places
SELECT run.id, run.job, job.lane FROM run JOIN job ON job.id = run.job WHERE run.status IS NULL

-- name: plain: of these, the jobs whose success makes room and changes nothing else
SELECT job.id FROM job JOIN spec ON spec.id = job.spec
WHERE job.id @in(ids) AND job.job_group IS NULL AND job.schedule IS NULL AND job.stop_requested IS NULL
  AND job.rewound_run IS NULL AND spec.skip_if IS NULL AND spec.workspace IS NULL
  AND NOT EXISTS (SELECT 1 FROM lock WHERE lock.job = job.id)
  AND NOT EXISTS (SELECT 1 FROM product WHERE product.chain = job.chain)
  AND NOT EXISTS (SELECT 1 FROM edge WHERE edge.chain = job.chain)

-- name: add_ahead
INSERT INTO ahead (run, job, given_at) VALUES (:run, :job, :given_at)

-- name: ahead
SELECT run FROM ahead ORDER BY run

-- name: foreseen: as the runs of plain jobs will be
SELECT job.id, job.chain, job.dispatch_failures, job.retries, spec.retry, spec.target, job.ready_at
FROM job JOIN spec ON spec.id = job.spec WHERE job.id @in(ids)

-- name: take_ahead
DELETE FROM ahead WHERE run = :run RETURNING job, given_at

-- name: claim_ahead: at a start every one that waits is marked
UPDATE job SET status = 'DISPATCHED', ready = 0, stirred = 0, started_at = :now, wait_kind = NULL
WHERE id = :job AND status = 'QUEUED' AND ready = 1 RETURNING lane

-- name: forget_given: what it is asked is another thing now
DELETE FROM ahead WHERE job = :job

-- name: drop_ahead
DELETE FROM ahead

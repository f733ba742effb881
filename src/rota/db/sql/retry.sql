-- name: add_retry: copies the job except for its id, its times and its outcome
INSERT INTO job (id, spec, chain, retry_of, attempt, retries, status, precedence, position, created_at, queued_at,
                 not_before, delay, unmet_edges, job_group, sequence, schedule, unique_key, lane, needs_facts, dirty)
SELECT :id, spec, chain, id, attempt + 1, :retries, 'QUEUED', precedence, position, :now, :now,
       :not_before, :delay, :unmet_edges, job_group, sequence, schedule, unique_key, lane, needs_facts, 1
FROM job WHERE id = :job
RETURNING chain, attempt, precedence, position

-- name: mark_retried
UPDATE job SET retried_as = :successor WHERE id = :job

-- name: mark_permanently_failed
UPDATE job SET permanently_failed = 1 WHERE id = :job AND status = 'FAILED'

-- name: unretried_failures: failures that are not permanent and have no later job in their chain
SELECT job.id, job.chain, job.retries, job.exit_code, job.reason, job.finished_at, job.stop_requested, spec.retry
FROM job LEFT JOIN spec ON spec.id = job.spec
WHERE job.status = 'FAILED' AND job.permanently_failed = 0 AND job.retried_as IS NULL
  AND NOT EXISTS (SELECT 1 FROM job AS later WHERE later.chain = job.chain AND later.id > job.id)

-- name: backoff_of
SELECT not_before, retries, dispatch_failures FROM job WHERE id = :job

-- name: reset_backoff: clears the delay and the counts of a waiting job
UPDATE job SET not_before = NULL, retries = 0, dispatch_failures = 0, dirty = 1
WHERE id = :job AND finished_at IS NULL AND started_at IS NULL

-- name: increment_unmet_of_successors: successors that still wait depend again on a chain that continues
UPDATE job SET unmet_edges = job.unmet_edges + met.edges, dirty = 1
FROM (SELECT edge.job, count(*) AS edges FROM edge
      WHERE edge.chain = :chain AND edge.state = 'met' GROUP BY edge.job) AS met
WHERE job.id = met.job AND job.finished_at IS NULL AND job.started_at IS NULL

-- name: reopen_edges
UPDATE edge SET state = 'open' WHERE chain = :chain AND state <> 'open'
  AND EXISTS (SELECT 1 FROM job WHERE job.id = edge.job AND job.finished_at IS NULL AND job.started_at IS NULL)

-- name: blocked_successors
SELECT DISTINCT edge.job FROM edge JOIN job ON job.id = edge.job
WHERE edge.chain = :chain AND edge.state = 'unmeetable'
  AND job.status = 'BLOCKED_BY_DEPENDENCY' AND job.retried_as IS NULL
ORDER BY edge.job LIMIT :limit

-- name: job_of_run
SELECT job FROM run WHERE id = :run

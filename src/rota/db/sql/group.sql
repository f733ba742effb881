-- name: add_group
INSERT INTO job_group (id, name, mode, on_failure, actor, created_at, closed_at)
VALUES (:id, :name, :mode, :on_failure, :actor, :now, :closed_at)

-- name: groups
SELECT id, name, mode, on_failure, actor, created_at, closed_at, cancelled_at, finished_at, removed FROM job_group
WHERE id @in(ids)

-- name: groups_named: newest first
SELECT id, finished_at FROM job_group WHERE name = :name ORDER BY id DESC

-- name: group_ids: newest first
SELECT id FROM job_group WHERE id < :before_id ORDER BY id DESC LIMIT :limit

-- name: open_group_ids
SELECT id FROM job_group WHERE id < :before_id AND finished_at IS NULL ORDER BY id DESC LIMIT :limit

-- name: group_counts: last jobs of the chains by status, and whether any of them has started
SELECT job_group, status, count(*), max(CASE WHEN started_at IS NOT NULL OR attempt > 1 THEN 1 ELSE 0 END)
FROM job WHERE job_group @in(ids) AND job_group IS NOT NULL AND retried_as IS NULL
GROUP BY job_group, status

-- name: members: the last job of each chain, in sequence
SELECT id, chain, sequence, status, dropped FROM job WHERE job_group = :group AND retried_as IS NULL ORDER BY sequence

-- name: last_member
SELECT chain, sequence FROM job WHERE job_group = :group ORDER BY sequence DESC LIMIT 1

-- name: failed_members
SELECT id, chain, sequence, status FROM job
WHERE job_group = :group AND retried_as IS NULL AND (status = 'FAILED' OR status = 'BLOCKED_BY_DEPENDENCY')
ORDER BY sequence

-- name: member: the last job of a chain
SELECT id, chain, sequence, status FROM job WHERE chain = :chain ORDER BY id DESC LIMIT 1

-- name: waiting_members: with or without the jobs that wait for a retry
SELECT id, chain, sequence, status, ready, lane FROM job
WHERE job_group = :group AND finished_at IS NULL AND started_at IS NULL AND (retries = 0 OR :with_retries = 1)
ORDER BY sequence

-- name: started_members
SELECT id FROM job WHERE job_group = :group AND finished_at IS NULL AND started_at IS NOT NULL ORDER BY sequence

-- name: failure_tolerant_members: members whose submitted dependency on this chain allows its failure
SELECT DISTINCT edge.job FROM edge JOIN job ON job.id = edge.job
WHERE edge.chain = :chain AND edge.implied = 0 AND edge.policy <> 'success' AND job.job_group = :group

-- name: failed_before_claim: the jobs among these whose last failure precedes the last claim of the given job
SELECT job FROM event WHERE job @in(ids) AND kind IN ('job.failed', 'job.blocked_by_dependency')
GROUP BY job HAVING max(seq) < (SELECT max(seq) FROM event WHERE job = :job AND kind = 'job.dispatched')

-- name: end_members
UPDATE job SET status = :status, finished_at = :now, exit_code = :exit_code, reason = :reason, ready = 0, dirty = 0,
               wait_kind = NULL, dropped = :dropped
WHERE id @in(ids) AND finished_at IS NULL AND started_at IS NULL

-- name: release_locks_of
UPDATE lock SET state = 'idle' WHERE job @in(ids) AND state <> 'idle' RETURNING key, mode

-- name: producing_chains: the chains among these that have products
SELECT DISTINCT chain FROM product WHERE chain @in(chains)

-- name: successors_of: with 1 where this end meets the edge; without a join, which a planner may run as a full walk
SELECT job, CASE
    WHEN policy = 'finished' THEN 1
    WHEN policy = 'success' AND (SELECT job.job_group FROM job WHERE job.id = edge.job) = :skipped_in THEN 1
    ELSE 0 END
FROM edge WHERE chain @in(chains) AND state = 'open'

-- name: wake_jobs
UPDATE job SET dirty = 1 WHERE id @in(ids) AND dirty = 0 AND finished_at IS NULL AND started_at IS NULL

-- name: decrement_unmet
UPDATE job SET unmet_edges = unmet_edges - :met WHERE id = :job

-- name: close_edges_of
UPDATE edge SET state = CASE
    WHEN policy = 'finished' THEN 'met'
    WHEN policy = 'success' AND (SELECT job.job_group FROM job WHERE job.id = edge.job) = :skipped_in THEN 'met'
    ELSE 'unmeetable' END
WHERE chain @in(chains) AND state = 'open'

-- name: finish_group: once, when it is closed and every member has ended
UPDATE job_group SET finished_at = :now
WHERE id = :group AND finished_at IS NULL AND closed_at IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM job WHERE job.job_group = job_group.id AND job.finished_at IS NULL)

-- name: unfinished_groups: closed, without an active member, and not finished
SELECT id FROM job_group WHERE finished_at IS NULL AND closed_at IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM job WHERE job.job_group = job_group.id AND job.finished_at IS NULL)

-- name: reopen_group
UPDATE job_group SET finished_at = NULL, cancelled_at = NULL
WHERE id = :group AND (finished_at IS NOT NULL OR cancelled_at IS NOT NULL)

-- name: close_group
UPDATE job_group SET closed_at = :now WHERE id = :group AND closed_at IS NULL

-- name: cancel_group
UPDATE job_group SET cancelled_at = :now, closed_at = coalesce(closed_at, :now)
WHERE id = :group AND cancelled_at IS NULL

-- name: dropped_members: members that the policy of the group has ended
SELECT id FROM job WHERE job_group = :group AND retried_as IS NULL AND dropped = 1 ORDER BY sequence LIMIT :limit

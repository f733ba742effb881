-- name: old_chains: highest id first; the first job of a chain ends no later than the last
SELECT id FROM job WHERE id < :before_id AND chain = id AND finished_at < :until ORDER BY id DESC LIMIT :limit

-- name: chain_members
SELECT chain, id, finished_at FROM job WHERE chain @in(chains)

-- name: chain_referrers: chains that depend on one of these, or need an artifact that it was the last to produce
SELECT edge.chain, job.chain FROM edge JOIN job ON job.id = edge.job
WHERE edge.chain @in(chains) AND job.chain <> edge.chain
UNION ALL
SELECT product.chain, need.chain FROM product JOIN need ON need.artifact = product.artifact
WHERE product.chain @in(chains) AND need.chain <> product.chain
  AND (product.sequence IS NULL
       OR NOT EXISTS (SELECT 1 FROM product AS later WHERE later.artifact = product.artifact
                      AND later.chain > product.chain AND later.chain <> need.chain))

-- name: referenced_chains: the chains among these that anything other than an edge refers to
SELECT job.chain FROM breaker JOIN job ON job.id = breaker.probe
WHERE breaker.probe IS NOT NULL AND job.chain @in(chains)
UNION ALL
SELECT product.chain FROM product JOIN need ON need.artifact = product.artifact
JOIN job ON job.chain = need.chain AND job.finished_at IS NULL
WHERE product.chain @in(chains) AND need.chain <> product.chain
UNION ALL
SELECT job.chain FROM job JOIN job_group ON job_group.id = job.job_group
WHERE job.id @in(chains) AND job_group.finished_at IS NULL

-- name: count_removed_members: the last jobs of members' chains among these, by group and status
SELECT job_group, status, count(*) FROM job
WHERE id @in(ids) AND job_group IS NOT NULL AND retried_as IS NULL GROUP BY job_group, status

-- name: removed_members
SELECT id, removed FROM job_group WHERE id @in(ids)

-- name: set_removed_members
UPDATE job_group SET removed = :removed WHERE id = :group

-- name: old_groups: with the chains of their remaining members
SELECT job_group.id, job.chain FROM job_group LEFT JOIN job ON job.job_group = job_group.id
WHERE job_group.finished_at < :until

-- name: remove_groups
DELETE FROM job_group WHERE id @in(ids) AND finished_at IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM job WHERE job.job_group = job_group.id)

-- name: jobs_touched_since: the jobs among these with an event after this one
SELECT job FROM event WHERE job @in(ids) AND seq > :seq

-- name: count_runs_of
SELECT count(*) FROM run WHERE job @in(ids)

-- name: count_events_of
SELECT count(*) FROM event WHERE job @in(ids)

-- name: remove_events
DELETE FROM event WHERE job @in(ids) RETURNING seq

-- name: remove_runs
DELETE FROM run WHERE job @in(ids) RETURNING id

-- name: remove_edges
DELETE FROM edge WHERE job @in(ids)

-- name: remove_locks
DELETE FROM lock WHERE job @in(ids)

-- name: remove_prefetch
DELETE FROM prefetch WHERE job @in(ids)

-- name: remove_needs
DELETE FROM need WHERE chain @in(ids)

-- name: remove_products
DELETE FROM product WHERE chain @in(ids)

-- name: remove_pins
DELETE FROM pin WHERE chain @in(ids)

-- name: clear_declared_by: an artifact outlasts the job that put it
UPDATE artifact SET declared_by = NULL WHERE declared_by @in(ids)

-- name: unused_artifacts: artifacts that no job needs, produces or has put
SELECT id FROM artifact WHERE declared_at IS NULL
  AND NOT EXISTS (SELECT 1 FROM need WHERE need.artifact = artifact.id)
  AND NOT EXISTS (SELECT 1 FROM product WHERE product.artifact = artifact.id)

-- name: remove_artifacts: keeps the last row, so that no id is reused
DELETE FROM artifact WHERE id @in(ids) AND declared_at IS NULL AND id < (SELECT max(id) FROM artifact)
  AND NOT EXISTS (SELECT 1 FROM need WHERE need.artifact = artifact.id)
  AND NOT EXISTS (SELECT 1 FROM product WHERE product.artifact = artifact.id)

-- name: remove_jobs
DELETE FROM job WHERE id @in(ids)

-- name: remove_specs: the id of a spec is the id of the first job that has it
DELETE FROM spec WHERE id @in(ids)

-- name: last_event
SELECT max(seq) FROM event

-- name: jobless_events: in order; `job` is in the ORDER BY so that the index is used
SELECT seq, at FROM event WHERE job IS NULL AND seq > :seq ORDER BY job, seq LIMIT :limit

-- name: remove_jobless_events
DELETE FROM event WHERE seq @in(seqs)

-- name: response_keys
SELECT key, at FROM idempotency WHERE key > :key ORDER BY key LIMIT :limit

-- name: responses_with_status
SELECT key, response FROM idempotency WHERE key > :key AND status = :status ORDER BY key LIMIT :limit

-- name: responses_for_keys
SELECT key, response FROM idempotency WHERE key @in(keys) AND status = :status

-- name: remove_responses
DELETE FROM idempotency WHERE key @in(keys)

-- name: remove_old_responses
DELETE FROM idempotency WHERE key @in(keys) AND at < :until

-- name: lane_and_environment_uses: lanes and environments of the jobs after this one
SELECT job.id, job.lane, spec.environment FROM job LEFT JOIN spec ON spec.id = job.spec
WHERE job.id > :job ORDER BY job.id LIMIT :limit

-- name: lane_ids
SELECT id FROM lane

-- name: environment_ids
SELECT id FROM environment

-- name: remove_lanes: keeps the last row, so that no id is reused
DELETE FROM lane WHERE id @in(ids) AND ready_count = 0 AND id < (SELECT max(id) FROM lane)

-- name: remove_environments: keeps the last row, so that no id is reused: the executor knows environments by id
DELETE FROM environment WHERE id @in(ids) AND id < (SELECT max(id) FROM environment)
  AND NOT EXISTS (SELECT 1 FROM reservation WHERE reservation.environment = environment.id)
  AND NOT EXISTS (SELECT 1 FROM schedule WHERE schedule.environment = environment.id)

-- name: workspaces
SELECT workspace FROM spec WHERE workspace IS NOT NULL

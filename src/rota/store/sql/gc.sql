-- name: old_chains: the highest number first; the first job of a chain ended no later than the last
SELECT id FROM job WHERE id < :below AND chain = id AND finished_at < :until ORDER BY id DESC LIMIT :limit

-- name: chain_members
SELECT chain, id, finished_at FROM job WHERE chain @in(chains)

-- name: chain_referrers: chains with a job that comes after one of these, or needs what it was the last to make
SELECT edge.chain, job.chain FROM edge JOIN job ON job.id = edge.job
WHERE edge.chain @in(chains) AND job.chain <> edge.chain
UNION ALL
SELECT product.chain, need.chain FROM product JOIN need ON need.artifact = product.artifact
WHERE product.chain @in(chains) AND need.chain <> product.chain
  AND (product.sequence IS NULL
       OR NOT EXISTS (SELECT 1 FROM product AS later WHERE later.artifact = product.artifact
                      AND later.chain > product.chain AND later.chain <> need.chain))

-- name: named_chains: of these, those that something other than an edge refers to
SELECT job.chain FROM breaker JOIN job ON job.id = breaker.probe
WHERE breaker.probe IS NOT NULL AND job.chain @in(chains)
UNION ALL
SELECT product.chain FROM product JOIN need ON need.artifact = product.artifact
JOIN job ON job.chain = need.chain AND job.finished_at IS NULL
WHERE product.chain @in(chains) AND need.chain <> product.chain
UNION ALL
SELECT job.chain FROM job JOIN job_group ON job_group.id = job.job_group
WHERE job.id @in(chains) AND job_group.finished_at IS NULL

-- name: members_going: of these jobs, the last ones of members' chains, by group and status
SELECT job_group, status, count(*) FROM job
WHERE id @in(ids) AND job_group IS NOT NULL AND retried_as IS NULL GROUP BY job_group, status

-- name: removed_members
SELECT id, removed FROM job_group WHERE id @in(ids)

-- name: set_removed_members
UPDATE job_group SET removed = :removed WHERE id = :group

-- name: old_groups: with the chains of the members that are still there
SELECT job_group.id, job.chain FROM job_group LEFT JOIN job ON job.job_group = job_group.id
WHERE job_group.finished_at < :until

-- name: remove_groups
DELETE FROM job_group WHERE id @in(ids) AND finished_at IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM job WHERE job.job_group = job_group.id)

-- name: touched_since: of these jobs, those that something happened to after this event
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

-- name: remove_given
DELETE FROM ahead WHERE job @in(ids)

-- name: remove_needs
DELETE FROM need WHERE chain @in(ids)

-- name: remove_products
DELETE FROM product WHERE chain @in(ids)

-- name: remove_pins
DELETE FROM pin WHERE chain @in(ids)

-- name: forget_putters: what was put stays, though who put it goes
UPDATE artifact SET put_by = NULL WHERE put_by @in(ids)

-- name: idle_artifacts: nobody needs, makes or has put them
SELECT id FROM artifact WHERE put_at IS NULL
  AND NOT EXISTS (SELECT 1 FROM need WHERE need.artifact = artifact.id)
  AND NOT EXISTS (SELECT 1 FROM product WHERE product.artifact = artifact.id)

-- name: remove_artifacts: the last stays, so that no number is used again
DELETE FROM artifact WHERE id @in(ids) AND put_at IS NULL AND id < (SELECT max(id) FROM artifact)
  AND NOT EXISTS (SELECT 1 FROM need WHERE need.artifact = artifact.id)
  AND NOT EXISTS (SELECT 1 FROM product WHERE product.artifact = artifact.id)

-- name: remove_jobs
DELETE FROM job WHERE id @in(ids)

-- name: remove_specs: each has the number of the first job that it is the spec of
DELETE FROM spec WHERE id @in(ids)

-- name: last_event
SELECT max(seq) FROM event

-- name: jobless_events: in order; `job` is there for the index
SELECT seq, at FROM event WHERE job IS NULL AND seq > :seq ORDER BY job, seq LIMIT :limit

-- name: remove_jobless_events
DELETE FROM event WHERE seq @in(seqs)

-- name: answers_from
SELECT key, at FROM idempotency WHERE key > :key ORDER BY key LIMIT :limit

-- name: answers_of_status
SELECT key, answer FROM idempotency WHERE key > :key AND status = :told ORDER BY key LIMIT :limit

-- name: answers_among
SELECT key, answer FROM idempotency WHERE key @in(keys) AND status = :told

-- name: remove_answers
DELETE FROM idempotency WHERE key @in(keys)

-- name: remove_old_answers
DELETE FROM idempotency WHERE key @in(keys) AND at < :until

-- name: uses_from: what jobs from this one on use of what is stored once for many
SELECT job.id, job.lane, spec.surroundings FROM job LEFT JOIN spec ON spec.id = job.spec
WHERE job.id > :job ORDER BY job.id LIMIT :limit

-- name: lane_ids
SELECT id FROM lane

-- name: surroundings_ids
SELECT id FROM surroundings

-- name: remove_lanes: the last stays, so that no number is used again
DELETE FROM lane WHERE id @in(ids) AND ready = 0 AND id < (SELECT max(id) FROM lane)

-- name: remove_surroundings: the last stays: the executor knows them by number, and a number never means another
DELETE FROM surroundings WHERE id @in(ids) AND id < (SELECT max(id) FROM surroundings)
  AND NOT EXISTS (SELECT 1 FROM slot WHERE slot.surroundings = surroundings.id)
  AND NOT EXISTS (SELECT 1 FROM schedule WHERE schedule.surroundings = surroundings.id)

-- name: workspaces
SELECT workspace FROM spec WHERE workspace IS NOT NULL

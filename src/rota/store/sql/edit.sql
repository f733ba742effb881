-- name: spec_of: whose spec it is that a waiting job has
SELECT spec FROM job WHERE id = :job AND started_at IS NULL AND finished_at IS NULL

-- name: own_spec: a job that shared its chain's spec gets one of its own, only while it waits; one that ran keeps what it ran (INV-001)
UPDATE job SET spec = id
WHERE id = :id AND spec <> id AND started_at IS NULL AND finished_at IS NULL
  AND (NOT EXISTS (SELECT 1 FROM run WHERE run.job = :id)
       OR (SELECT spec.command = :command AND spec.params = :params FROM spec WHERE spec.id = job.spec))

-- name: edit_spec: only while the job waits; what ran keeps its command and params (INV-001)
UPDATE spec SET command = :command, name = :name, params = :params, timeout = :timeout, idle_timeout = :idle_timeout,
                retry = :retry, recipe = :recipe
WHERE id = :id
  AND EXISTS (SELECT 1 FROM job WHERE job.id = :id AND spec = :id AND started_at IS NULL AND finished_at IS NULL)
  AND (command = :command AND params = :params OR NOT EXISTS (SELECT 1 FROM run WHERE run.job = :id))

-- name: set_delay
UPDATE job SET not_before = :not_before, stirred = 1 WHERE id = :job AND finished_at IS NULL AND started_at IS NULL

-- name: spec_of: the spec of a waiting job
SELECT spec FROM job WHERE id = :job AND started_at IS NULL AND finished_at IS NULL

-- name: detach_spec: gives a waiting job a spec of its own; a job that has run keeps its command and params (INV-001)
UPDATE job SET spec = id
WHERE id = :id AND spec <> id AND started_at IS NULL AND finished_at IS NULL
  AND (NOT EXISTS (SELECT 1 FROM run WHERE run.job = :id)
       OR (SELECT spec.command = :command AND spec.params = :params FROM spec WHERE spec.id = job.spec))

-- name: edit_spec: only while the job waits; a job that has run keeps its command and params (INV-001)
UPDATE spec SET command = :command, name = :name, params = :params, timeout = :timeout, idle_timeout = :idle_timeout,
                retry = :retry, template_snapshot = :template_snapshot, sources = :sources
WHERE id = :id
  AND EXISTS (SELECT 1 FROM job WHERE job.id = :id AND spec = :id AND started_at IS NULL AND finished_at IS NULL)
  AND (command = :command AND params = :params OR NOT EXISTS (SELECT 1 FROM run WHERE run.job = :id))

-- name: set_delay
UPDATE job SET not_before = :not_before, delay = :delay, dirty = 1
WHERE id = :job AND finished_at IS NULL AND started_at IS NULL

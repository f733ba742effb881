-- name: own_spec: a job that shared its chain's spec gets one of its own, only while it waits and never ran (INV-001)
UPDATE job SET spec = id
WHERE id = :id AND spec <> id AND started_at IS NULL AND finished_at IS NULL
  AND NOT EXISTS (SELECT 1 FROM run WHERE run.job = :id)

-- name: edit_spec: only while the job waits and never ran (INV-001)
UPDATE spec SET command = :command, name = :name, params = :params, timeout = :timeout, idle_timeout = :idle_timeout
WHERE id = :id
  AND EXISTS (SELECT 1 FROM job WHERE job.id = :id AND spec = :id AND started_at IS NULL AND finished_at IS NULL)
  AND NOT EXISTS (SELECT 1 FROM run WHERE run.job = :id)

-- name: ended_members: members of a group that ended after the cursor
SELECT job.id, spec.name, job.status, job.reason, job.exit_code, job.finished_at, job.retried_as
FROM job JOIN spec ON spec.id = job.spec
WHERE job.job_group = :group AND job.finished_at >= :at AND (job.finished_at, job.id) > (:at, :job)
ORDER BY job.finished_at, job.id LIMIT :limit

-- name: running_members: in the order of the group
SELECT job.id, spec.name, job.started_at FROM job JOIN spec ON spec.id = job.spec
WHERE job.job_group = :group AND job.finished_at IS NULL AND job.started_at IS NOT NULL
ORDER BY job.sequence LIMIT :limit

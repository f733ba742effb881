-- name: jobs
SELECT job.id, job.chain, job.retry_of, job.attempt, job.status, job.precedence, job.position, job.created_at,
       job.queued_at, job.started_at, job.finished_at, job.not_before, job.exit_code, job.reason, job.wait_kind,
       job.waited_on, job.permanently_failed, job.dispatch_failures, job.last_failure, job.stop_requested, job.pid,
       job.retries, lane.draws, job.rewound_run, job.unique_key, job.job_group, job.sequence,
       spec.command, spec.cwd, spec.surroundings, spec.name, spec.type, spec.params, spec.flow, spec.phase, spec.target,
       spec.pools, spec.timeout, spec.idle_timeout, spec.skip_if, spec.retry,
       spec.repository, spec.workspace, spec.template, job.schedule, spec.webhook, spec.recipe, spec.trace
FROM job JOIN spec ON spec.id = job.spec JOIN lane ON lane.id = job.lane
WHERE job.id @in(ids)

-- name: active_ids: in queue order
SELECT id FROM job WHERE finished_at IS NULL AND status @in(statuses) AND (precedence, position, created_at, id) > (:precedence, :position, :created_at, :job)
ORDER BY precedence, position, created_at, id LIMIT :limit

-- name: ended_ids: the newest first
SELECT id FROM job WHERE status @in(statuses) AND id < :below AND finished_at IS NOT NULL
ORDER BY id DESC LIMIT :limit

-- name: newest_ids
SELECT id FROM job ORDER BY id DESC LIMIT :limit

-- name: newest_active_ids: by the index of those, and not by walking over all that have ended
SELECT id FROM job WHERE finished_at IS NULL AND status @in(statuses) ORDER BY id + 0 DESC LIMIT :limit

-- part: asked_for
(CAST(:name AS TEXT) IS NULL OR spec.name = CAST(:name AS TEXT))
AND (CAST(:type AS TEXT) IS NULL OR spec.type = CAST(:type AS TEXT))
AND (CAST(:flow AS TEXT) IS NULL OR spec.flow = CAST(:flow AS TEXT))
AND (CAST(:phase AS TEXT) IS NULL OR spec.phase = CAST(:phase AS TEXT))
AND (CAST(:target AS TEXT) IS NULL OR spec.target = CAST(:target AS TEXT))

-- name: active_ids_of: the same, of one name, type, flow, phase or target
SELECT job.id FROM job JOIN spec ON spec.id = job.spec
WHERE finished_at IS NULL AND status @in(statuses) AND (precedence, position, created_at, job.id) > (:precedence, :position, :created_at, :job) AND @part(asked_for)
ORDER BY precedence, position, created_at, job.id LIMIT :limit

-- name: ended_ids_of
SELECT job.id FROM job JOIN spec ON spec.id = job.spec
WHERE status @in(statuses) AND job.id < :below AND finished_at IS NOT NULL AND @part(asked_for)
ORDER BY job.id DESC LIMIT :limit

-- name: active_ids_in: the same of one group, by its members
SELECT job.id FROM job JOIN spec ON spec.id = job.spec
WHERE job_group = :group AND finished_at IS NULL AND status @in(statuses) AND (precedence, position, created_at, job.id) > (:precedence, :position, :created_at, :job) AND @part(asked_for)
ORDER BY precedence, position, created_at, job.id LIMIT :limit

-- name: ended_ids_in
SELECT job.id FROM job JOIN spec ON spec.id = job.spec
WHERE job_group = :group AND status @in(statuses) AND job.id < :below AND finished_at IS NOT NULL AND @part(asked_for)
ORDER BY job.id DESC LIMIT :limit

-- name: rank_of
SELECT precedence, position, created_at, id FROM job WHERE id = :job

-- name: edges_of
SELECT job, predecessor, chain, policy, implied FROM edge WHERE job @in(ids) ORDER BY job, sequence

-- name: latest_runs
SELECT id, job, worker, status, started_at, finished_at, exit_code, error, artifacts FROM run
WHERE id IN (SELECT max(id) FROM run WHERE job @in(ids) GROUP BY job)

-- name: runs_of: the newest first
SELECT id, job, worker, status, started_at, finished_at, exit_code, error, artifacts FROM run
WHERE job = :job ORDER BY id DESC

-- part: run
SELECT run.id, run.job, run.worker, run.status, run.started_at, run.finished_at, run.exit_code, run.error, run.artifacts,
       job.rewound_run,
       CASE WHEN EXISTS (SELECT 1 FROM run AS later WHERE later.job = run.job AND later.id > run.id) THEN 1 ELSE 0 END
FROM run JOIN job ON job.id = run.job

-- name: list_runs: of all jobs, the newest first
@part(run)
WHERE run.id < :below AND (CAST(:worker AS TEXT) IS NULL OR run.worker = CAST(:worker AS TEXT))
ORDER BY run.id DESC LIMIT :limit

-- name: list_ended_runs: of one status, by its index and not by walking over all others
@part(run)
WHERE run.status = :status AND run.id < :below
  AND (CAST(:worker AS TEXT) IS NULL OR run.worker = CAST(:worker AS TEXT))
ORDER BY run.id DESC LIMIT :limit

-- name: list_runs_of: of one job
@part(run)
WHERE run.job = :job AND run.id < :below AND coalesce(run.status, 'RUNNING') @in(statuses)
  AND (CAST(:worker AS TEXT) IS NULL OR run.worker = CAST(:worker AS TEXT))
ORDER BY run.job, run.id DESC LIMIT :limit

-- name: list_open_runs: the few that are not over, by their own index and not by walking over all that are
@part(run)
WHERE run.status IS NULL AND run.id + 0 < :below
  AND (CAST(:worker AS TEXT) IS NULL OR run.worker = CAST(:worker AS TEXT))
ORDER BY run.id + 0 DESC LIMIT :limit

-- name: count_ended
SELECT status, count(*) FROM job WHERE finished_at IS NOT NULL GROUP BY status

-- name: count_waiting
SELECT wait_kind, status, count(*) FROM job WHERE wait_kind IS NOT NULL GROUP BY wait_kind, status

-- name: count_ready_now
SELECT coalesce(sum(ready), 0) FROM lane WHERE ready > 0

-- name: count_held: queued, and not in a lane: delayed, or not looked at yet; how many, and of these the delayed
SELECT count(*), count(not_before) FROM job WHERE status = 'QUEUED' AND ready = 0

-- name: count_started
SELECT job.status, count(*) FROM run JOIN job ON job.id = run.job WHERE run.status IS NULL GROUP BY job.status

-- name: events_since
SELECT seq, at, kind, cause, actor, job, run, data FROM event WHERE seq > :seq ORDER BY seq LIMIT :limit

-- name: touches_since
SELECT seq, kind, job FROM event WHERE seq > :seq AND job IS NOT NULL ORDER BY seq LIMIT :limit

-- name: events_of_job
SELECT seq, at, kind, cause, actor, job, run, data FROM event WHERE job = :job ORDER BY seq

-- name: last_dispatch
SELECT started_at FROM run ORDER BY id DESC LIMIT 1

-- name: depths: ready jobs of each lane that has any, by flow
SELECT flow, ready FROM lane WHERE ready > 0

-- name: lane_depths
SELECT draws, ready FROM lane WHERE ready > 0

-- name: running_jobs
SELECT run.job, lane.draws FROM run JOIN job ON job.id = run.job JOIN lane ON lane.id = job.lane
WHERE run.status IS NULL ORDER BY run.job

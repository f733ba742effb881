-- part: spec
spec.command, spec.cwd, spec.environment, spec.name, spec.type, spec.params, spec.flow, spec.phase, spec.target,
spec.pools, spec.timeout, spec.idle_timeout, spec.skip_if, spec.retry,
spec.repository, spec.workspace, spec.template, job.schedule, spec.webhook, spec.template_snapshot,
spec.trace, spec.sources

-- name: jobs
SELECT job.id, job.chain, job.retry_of, job.attempt, job.status, job.precedence, job.position, job.created_at,
       job.queued_at, job.started_at, job.finished_at, job.not_before, job.exit_code, job.reason, job.wait_kind,
       job.waited_on, job.permanently_failed, job.dispatch_failures, job.last_failure, job.stop_requested, job.pid,
       job.retries, lane.demand, job.rewound_run, job.unique_key, job.job_group, job.sequence,
       @part(spec)
FROM job LEFT JOIN spec ON spec.id = job.spec LEFT JOIN lane ON lane.id = job.lane
WHERE job.id @in(ids)

-- name: specs: with the text columns of the job itself
SELECT job.id, job.wait_kind, job.waited_on, @part(spec) FROM job LEFT JOIN spec ON spec.id = job.spec
WHERE job.id @in(ids)

-- part: unreadable
(status <> 'QUEUED' AND status <> 'DISPATCHED' AND status <> 'RUNNING' AND status <> 'COMPLETED'
 AND status <> 'WAITING_ON_DEPS' AND status <> 'WAITING_ON_LOCKS' AND status <> 'FAILED'
 AND status <> 'SKIPPED' AND status <> 'CANCELLED' AND status <> 'BLOCKED_BY_DEPENDENCY')

-- name: unknown_statuses: uses the index of unreadable jobs
SELECT DISTINCT status FROM job WHERE @part(unreadable)

-- name: unreadable_jobs
SELECT id FROM job WHERE @part(unreadable) ORDER BY id LIMIT :limit

-- name: count_unreadable: of the jobs that have not ended
SELECT count(*) FROM job WHERE @part(unreadable) AND finished_at IS NULL

-- name: waiting_unreadable: jobs that have not started, with the columns that the queue counts
SELECT id, chain, lane, ready FROM job WHERE @part(unreadable) AND finished_at IS NULL AND started_at IS NULL

-- part: not_started
NOT EXISTS (SELECT 1 FROM run WHERE run.job = job.id AND run.finished_at IS NULL)

-- name: waiting_ids: in queue order
SELECT id FROM job
WHERE finished_at IS NULL AND @part(not_started) AND status @in(statuses)
  AND (precedence, position, created_at, id) > (:precedence, :position, :created_at, :job)
ORDER BY precedence, position, created_at, id LIMIT :limit

-- name: ended_ids: newest first
SELECT id FROM job WHERE status @in(statuses) AND id < :job AND finished_at IS NOT NULL
ORDER BY id DESC LIMIT :limit

-- name: newest_ids
SELECT id FROM job ORDER BY id DESC LIMIT :limit

-- name: newest_active_ids: `id + 0` keeps the planner from walking over all ended jobs
SELECT id FROM job WHERE finished_at IS NULL AND status @in(statuses) ORDER BY id + 0 DESC LIMIT :limit

-- part: matches_filter
(CAST(:name AS TEXT) IS NULL OR spec.name = CAST(:name AS TEXT))
AND (CAST(:type AS TEXT) IS NULL OR spec.type = CAST(:type AS TEXT))
AND (CAST(:flow AS TEXT) IS NULL OR spec.flow = CAST(:flow AS TEXT))
AND (CAST(:phase AS TEXT) IS NULL OR spec.phase = CAST(:phase AS TEXT))
AND (CAST(:target AS TEXT) IS NULL OR spec.target = CAST(:target AS TEXT))

-- part: started_after_cursor
job.finished_at IS NULL AND job.status @in(statuses)
  AND (job.precedence, job.position, job.created_at, job.id) > (:precedence, :position, :created_at, :job)

-- name: started_ids: claimed or running jobs, found by their open runs instead of a scan of the queue
SELECT job.id FROM run CROSS JOIN job WHERE run.finished_at IS NULL AND job.id = run.job AND @part(started_after_cursor)
ORDER BY job.precedence, job.position, job.created_at, job.id LIMIT :limit

-- name: started_ids_of
SELECT job.id FROM run CROSS JOIN job JOIN spec ON spec.id = job.spec
WHERE run.finished_at IS NULL AND job.id = run.job AND @part(started_after_cursor) AND @part(matches_filter)
ORDER BY job.precedence, job.position, job.created_at, job.id LIMIT :limit

-- name: started_ids_in
SELECT job.id FROM run CROSS JOIN job JOIN spec ON spec.id = job.spec
WHERE run.finished_at IS NULL AND job.id = run.job AND job_group = :group
  AND @part(started_after_cursor) AND @part(matches_filter)
ORDER BY job.precedence, job.position, job.created_at, job.id LIMIT :limit

-- name: waiting_ids_of: filtered by name, type, flow, phase or target
SELECT job.id FROM job JOIN spec ON spec.id = job.spec
WHERE finished_at IS NULL AND @part(not_started) AND status @in(statuses)
  AND (precedence, position, created_at, job.id) > (:precedence, :position, :created_at, :job)
  AND @part(matches_filter)
ORDER BY precedence, position, created_at, job.id LIMIT :limit

-- name: ended_ids_of
SELECT job.id FROM job JOIN spec ON spec.id = job.spec
WHERE status @in(statuses) AND job.id < :job AND finished_at IS NOT NULL AND @part(matches_filter)
ORDER BY job.id DESC LIMIT :limit

-- name: waiting_ids_in: filtered by group
SELECT job.id FROM job JOIN spec ON spec.id = job.spec
WHERE job_group = :group AND finished_at IS NULL AND @part(not_started) AND status @in(statuses)
  AND (precedence, position, created_at, job.id) > (:precedence, :position, :created_at, :job)
  AND @part(matches_filter)
ORDER BY precedence, position, created_at, job.id LIMIT :limit

-- name: ended_ids_in
SELECT job.id FROM job JOIN spec ON spec.id = job.spec
WHERE job_group = :group AND status @in(statuses) AND job.id < :job AND finished_at IS NOT NULL
  AND @part(matches_filter)
ORDER BY job.id DESC LIMIT :limit

-- name: count_listed_of: filtered by name, type, flow, phase or target; each half uses its own index
SELECT (SELECT count(*) FROM job JOIN spec ON spec.id = job.spec
        WHERE finished_at IS NULL AND status @in(statuses) AND @part(matches_filter))
     + (SELECT count(*) FROM job JOIN spec ON spec.id = job.spec
        WHERE finished_at IS NOT NULL AND status @in(statuses) AND @part(matches_filter))

-- name: count_listed_in: filtered by group
SELECT count(*) FROM job JOIN spec ON spec.id = job.spec
WHERE job_group = :group AND status @in(statuses) AND @part(matches_filter)

-- name: list_cursor_of
SELECT CASE WHEN finished_at IS NOT NULL THEN 2
            WHEN EXISTS (SELECT 1 FROM run WHERE run.job = job.id AND run.finished_at IS NULL) THEN 0 ELSE 1 END,
       precedence, position, created_at, id
FROM job WHERE id = :job

-- name: edges_of
SELECT job, predecessor, chain, policy, implied FROM edge WHERE job @in(ids) ORDER BY job, sequence

-- name: latest_runs
SELECT id, job, worker, status, started_at, finished_at, exit_code, error, artifacts FROM run
WHERE id IN (SELECT max(id) FROM run WHERE job @in(ids) GROUP BY job)

-- name: runs_of: newest first
SELECT id, job, worker, status, started_at, finished_at, exit_code, error, artifacts FROM run
WHERE job = :job ORDER BY id DESC

-- part: run
SELECT run.id, run.job, run.worker, run.status, run.started_at, run.finished_at, run.exit_code, run.error,
       run.artifacts, job.rewound_run,
       CASE WHEN EXISTS (SELECT 1 FROM run AS later WHERE later.job = run.job AND later.id > run.id) THEN 1 ELSE 0 END
FROM run JOIN job ON job.id = run.job

-- name: list_runs: of all jobs, newest first
@part(run)
WHERE run.id < :before_id AND (CAST(:worker AS TEXT) IS NULL OR run.worker = CAST(:worker AS TEXT))
ORDER BY run.id DESC LIMIT :limit

-- name: list_ended_runs: of one status, by its index
@part(run)
WHERE run.status = :status AND run.finished_at IS NOT NULL AND run.id < :before_id
  AND (CAST(:worker AS TEXT) IS NULL OR run.worker = CAST(:worker AS TEXT))
ORDER BY run.id DESC LIMIT :limit

-- name: list_runs_of: of one job
@part(run)
WHERE run.job = :job AND run.id < :before_id
  AND CASE WHEN run.finished_at IS NULL THEN 'RUNNING'
           WHEN run.status IN ('COMPLETED', 'FAILED', 'SKIPPED', 'CANCELLED') THEN run.status
           ELSE 'UNREADABLE' END @in(statuses)
  AND (CAST(:worker AS TEXT) IS NULL OR run.worker = CAST(:worker AS TEXT))
ORDER BY run.job, run.id DESC LIMIT :limit

-- name: list_open_runs: `id + 0` keeps the planner from walking over all ended runs
@part(run)
WHERE run.finished_at IS NULL AND run.id + 0 < :before_id
  AND (CAST(:worker AS TEXT) IS NULL OR run.worker = CAST(:worker AS TEXT))
ORDER BY run.id + 0 DESC LIMIT :limit

-- name: count_ended
SELECT status, count(*) FROM job WHERE finished_at IS NOT NULL GROUP BY status

-- name: count_waiting
SELECT wait_kind, status, count(*) FROM job WHERE wait_kind IS NOT NULL GROUP BY wait_kind, status

-- name: count_ready_now
SELECT coalesce(sum(ready_count), 0) FROM lane WHERE ready_count > 0

-- name: count_held: queued jobs that are not ready, and the delayed ones among them
SELECT count(*), count(not_before) FROM job WHERE status = 'QUEUED' AND ready = 0

-- name: count_started
SELECT job.status, count(*) FROM run JOIN job ON job.id = run.job WHERE run.finished_at IS NULL GROUP BY job.status

-- name: events_since
SELECT seq, at, kind, cause, actor, job, run, data FROM event WHERE seq > :seq ORDER BY seq LIMIT :limit

-- name: job_events_since
SELECT seq, kind, job FROM event WHERE seq > :seq AND job IS NOT NULL ORDER BY seq LIMIT :limit

-- name: events_of_job
SELECT seq, at, kind, cause, actor, job, run, data FROM event WHERE job = :job ORDER BY seq

-- name: last_dispatch
SELECT started_at FROM run ORDER BY id DESC LIMIT 1

-- name: flow_depths: number of ready jobs of each lane, with its flow
SELECT flow, ready_count FROM lane WHERE ready_count > 0

-- name: lane_depths
SELECT demand, ready_count FROM lane WHERE ready_count > 0

-- name: running_jobs
SELECT run.job, lane.demand FROM run JOIN job ON job.id = run.job JOIN lane ON lane.id = job.lane
WHERE run.finished_at IS NULL ORDER BY run.job

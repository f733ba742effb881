-- name: wake_due: delayed jobs that are due
UPDATE job SET dirty = 1
WHERE status = 'QUEUED' AND ready = 0 AND not_before <= :now AND dirty = 0

-- name: next_due
SELECT not_before FROM job WHERE status = 'QUEUED' AND ready = 0 AND not_before IS NOT NULL ORDER BY not_before LIMIT 1

-- name: wake_all_waiting: at startup, so that no wake-up is lost
UPDATE job SET dirty = 1 WHERE dirty = 0 AND ready = 0 AND finished_at IS NULL AND started_at IS NULL

-- part: candidate
SELECT job.precedence, job.position, job.created_at, job.id, job.status, job.wait_kind, job.waited_on, job.ready,
       job.not_before, job.lane, lane.demand, job.unmet_edges, job.chain, lane.type, lane.target, job.needs_facts,
       lane.flow
FROM job LEFT JOIN lane ON lane.id = job.lane

-- name: dirty_jobs
@part(candidate)
WHERE job.dirty = 1
ORDER BY job.precedence, job.position, job.created_at, job.id LIMIT :limit

-- name: candidates
@part(candidate)
WHERE job.id @in(ids)

-- part: last_of_chain
LEFT JOIN job AS last
  ON last.id = (SELECT member.id FROM job AS member WHERE member.chain = edge.chain ORDER BY member.id DESC LIMIT 1)

-- part: unreadable_edge
(edge.state <> 'open' AND edge.state <> 'met' AND edge.state <> 'unmeetable')

-- name: blocking_edges: the first unmeetable edge of each job, else its first open one; and each edge of unknown state
SELECT edge.job, edge.predecessor, edge.chain, edge.policy, edge.state, last.id, last.status
FROM edge
JOIN (SELECT job,
             coalesce(min(CASE WHEN state = 'unmeetable' THEN sequence END),
                      min(CASE WHEN state = 'open' THEN sequence END)) AS sequence
      FROM edge WHERE state <> 'met' AND job @in(ids) GROUP BY job) AS blocking
  ON edge.job = blocking.job AND edge.sequence = blocking.sequence
@part(last_of_chain)
UNION ALL
SELECT edge.job, edge.predecessor, edge.chain, edge.policy, edge.state, last.id, last.status
FROM edge @part(last_of_chain)
WHERE @part(unreadable_edge) AND edge.job @in(ids)

-- name: locks_of
SELECT job, key, mode, state FROM lock WHERE job @in(ids) ORDER BY job, key

-- name: unreadable_locks: locks of unknown state, by the index of these locks
SELECT job, key FROM lock WHERE state <> 'idle' AND state <> 'contending' AND state <> 'held'

-- name: repair_lock: held if its owner has started, unless the key is held against it; a waiting owner queues again
UPDATE lock SET state = CASE
    WHEN (EXISTS (SELECT 1 FROM run WHERE run.job = lock.job AND run.finished_at IS NULL)
          OR EXISTS (SELECT 1 FROM reservation WHERE reservation.id = -lock.job AND reservation.worker IS NOT NULL
                                                 AND reservation.finished_at IS NULL))
        AND NOT EXISTS (SELECT 1 FROM lock AS holder WHERE holder.key = lock.key AND holder.state = 'held'
                                                       AND (holder.mode = 'exclusive' OR lock.mode = 'exclusive'))
        THEN 'held' ELSE 'idle' END
WHERE lock.job = :job AND lock.key = :key

-- name: front_held: the mode in which a key is held; exclusive sorts before shared
SELECT min(mode) FROM lock WHERE key = :key AND state = 'held'

-- name: front_first
SELECT precedence, position, created_at, job FROM lock WHERE key = :key AND state = 'contending'
ORDER BY precedence, position, created_at, job LIMIT 1

-- name: front_first_exclusive
SELECT precedence, position, created_at, job FROM lock
WHERE key = :key AND state = 'contending' AND mode = 'exclusive'
ORDER BY precedence, position, created_at, job LIMIT 1

-- name: fronts_of: the lock fronts of every key that these jobs request
SELECT requested.key,
       (SELECT min(holder.mode) FROM lock AS holder WHERE holder.key = requested.key AND holder.state = 'held'),
       first.precedence, first.position, first.created_at, first.job,
       exclusive.precedence, exclusive.position, exclusive.created_at, exclusive.job
FROM (SELECT DISTINCT key FROM lock WHERE job @in(ids)) AS requested
LEFT JOIN lock AS first ON first.key = requested.key AND first.job = (
    SELECT job FROM lock WHERE lock.key = requested.key AND state = 'contending'
    ORDER BY precedence, position, created_at, job LIMIT 1)
LEFT JOIN lock AS exclusive ON exclusive.key = requested.key AND exclusive.job = (
    SELECT job FROM lock WHERE lock.key = requested.key AND state = 'contending' AND mode = 'exclusive'
    ORDER BY precedence, position, created_at, job LIMIT 1)

-- name: place_job
UPDATE job SET status = :to_status, wait_kind = :wait_kind, waited_on = :waited_on, ready = :ready, dirty = 0,
               reason = :reason, finished_at = :finished_at, ready_at = coalesce(:ready_at, ready_at)
WHERE id = :job AND status = :from_status

-- name: clear_delay: the delay is over, and another gate holds the job
UPDATE job SET not_before = NULL WHERE id @in(ids)

-- name: clear_dirty
UPDATE job SET dirty = 0 WHERE id @in(ids)

-- name: update_ready_count: also updates the rank of the first ready job
UPDATE lane SET ready_count = ready_count + :delta, (precedence, position, created_at, job) = (
    SELECT first.precedence, first.position, first.created_at, first.id FROM job AS first
    WHERE first.lane = :lane AND first.ready = 1
    ORDER BY first.precedence, first.position, first.created_at, first.id LIMIT 1)
WHERE id = :lane

-- name: join_lock_queues
UPDATE lock SET state = 'contending' WHERE job = :job AND state = 'idle'
RETURNING key, mode, precedence, position, created_at, job

-- name: next_exclusive_waiter
SELECT precedence, position, created_at, job FROM lock
WHERE key = :key AND state = 'contending' AND mode = 'exclusive'
  AND (precedence, position, created_at, job) > (:precedence, :position, :created_at, :job)
ORDER BY precedence, position, created_at, job LIMIT 1

-- name: wake_job
UPDATE job SET dirty = 1 WHERE id = :job AND dirty = 0 AND finished_at IS NULL AND started_at IS NULL

-- name: remove_from_queue: for a job of unknown status
UPDATE job SET dirty = 0, ready = 0 WHERE id = :job

-- name: lane_demands: of the lanes with ready jobs
SELECT id, demand FROM lane WHERE ready_count > 0

-- name: wake_lane
UPDATE job SET dirty = 1 WHERE lane = :lane AND ready = 1 AND dirty = 0

-- name: wake_open_successors: so that they report why they wait
UPDATE job SET dirty = 1
WHERE dirty = 0 AND finished_at IS NULL AND started_at IS NULL
  AND id IN (SELECT job FROM edge WHERE chain = :chain AND state = 'open')

-- name: wake_contenders: contenders for a key after one rank and up to another
UPDATE job SET dirty = 1 WHERE dirty = 0 AND ready = :ready AND id IN (
    SELECT job FROM lock WHERE key = :key AND state = 'contending'
      AND (precedence, position, created_at, job) > (:after_precedence, :after_position, :after_created_at, :after_job)
      AND (precedence, position, created_at, job)
          <= (:until_precedence, :until_position, :until_created_at, :until_job))

-- name: release_locks
UPDATE lock SET state = 'idle' WHERE job = :job AND state <> 'idle' RETURNING key, mode

-- name: wake_successors: an unmeetable edge decides at once; a met edge is handled by decrement_unmet_of_successors
UPDATE job SET dirty = 1
WHERE dirty = 0 AND finished_at IS NULL AND started_at IS NULL
  AND id IN (SELECT job FROM edge WHERE chain = :chain AND state = 'open' AND NOT (policy @in(policies)))

-- name: decrement_unmet_of_successors: wakes a successor whose last unmet edges these are
UPDATE job SET unmet_edges = job.unmet_edges - met.edges,
               dirty = CASE WHEN job.finished_at IS NULL AND job.started_at IS NULL AND job.unmet_edges = met.edges
                              THEN 1 ELSE job.dirty END
FROM (SELECT edge.job, count(*) AS edges FROM edge
      WHERE edge.chain = :chain AND edge.state = 'open' AND edge.policy @in(policies) GROUP BY edge.job) AS met
WHERE job.id = met.job

-- name: close_edges
UPDATE edge SET state = CASE WHEN policy @in(policies) THEN 'met' ELSE 'unmeetable' END
WHERE chain = :chain AND state = 'open'

-- name: unreadable_edges: the jobs with an edge of unknown state, by the index of these edges
SELECT DISTINCT edge.job FROM edge WHERE @part(unreadable_edge)

-- name: chain_dependents: whether open edges point at this chain, its products, its group, and unreadable edges anywhere
SELECT CASE WHEN EXISTS (SELECT 1 FROM edge WHERE chain = :chain AND state = 'open') THEN 1 ELSE 0 END,
       CASE WHEN EXISTS (SELECT 1 FROM product WHERE chain = :chain) THEN 1 ELSE 0 END,
       (SELECT job_group FROM job WHERE id = :chain),
       CASE WHEN EXISTS (SELECT 1 FROM edge WHERE @part(unreadable_edge)) THEN 1 ELSE 0 END

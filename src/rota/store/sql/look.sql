-- name: stir_due: delayed jobs whose time has come
UPDATE job SET stirred = 1
WHERE status = 'QUEUED' AND ready = 0 AND not_before <= :now AND stirred = 0

-- name: stir_postponed: the wall clock was set back, and their time is still to come after all
UPDATE job SET stirred = 1
WHERE stirred = 0 AND finished_at IS NULL AND started_at IS NULL AND not_before > :now

-- name: next_due
SELECT not_before FROM job WHERE status = 'QUEUED' AND ready = 0 AND not_before IS NOT NULL ORDER BY not_before LIMIT 1

-- name: stir_all_waiting: at start every waiting job is looked at again, so that no wake-up is lost for good
UPDATE job SET stirred = 1 WHERE stirred = 0 AND ready = 0 AND finished_at IS NULL AND started_at IS NULL

-- part: standing
SELECT job.precedence, job.position, job.created_at, job.id, job.status, job.wait_kind, job.waited_on, job.ready,
       job.not_before, job.lane, lane.draws, job.unmet, job.chain, lane.type, lane.target, job.asks, lane.flow
FROM job JOIN lane ON lane.id = job.lane

-- name: stirred
@part(standing)
WHERE job.stirred = 1
ORDER BY job.precedence, job.position, job.created_at, job.id LIMIT :limit

-- name: standing
@part(standing)
WHERE job.id @in(ids)

-- name: speaking_edges: of the edges not met, one that cannot be met any more, else the first open one
SELECT edge.job, edge.predecessor, edge.chain, edge.policy, edge.state,
       (SELECT last.status FROM job AS last WHERE last.chain = edge.chain ORDER BY last.id DESC LIMIT 1)
FROM edge
JOIN (SELECT job,
             coalesce(min(CASE WHEN state = 'unmeetable' THEN sequence END), min(sequence)) AS sequence
      FROM edge WHERE state <> 'met' AND job @in(ids) GROUP BY job) AS speaking
  ON edge.job = speaking.job AND edge.sequence = speaking.sequence

-- name: locks_of
SELECT job, key, mode, state FROM lock WHERE job @in(ids) ORDER BY job, key

-- name: front_held: how a key is held; exclusive sorts before shared
SELECT min(mode) FROM lock WHERE key = :key AND state = 'held'

-- name: front_first
SELECT precedence, position, created_at, job FROM lock WHERE key = :key AND state = 'contending'
ORDER BY precedence, position, created_at, job LIMIT 1

-- name: front_first_exclusive
SELECT precedence, position, created_at, job FROM lock
WHERE key = :key AND state = 'contending' AND mode = 'exclusive'
ORDER BY precedence, position, created_at, job LIMIT 1

-- name: fronts_of: the same three of every key that these jobs want
SELECT wanted.key, (SELECT min(holder.mode) FROM lock AS holder WHERE holder.key = wanted.key AND holder.state = 'held'),
       first.precedence, first.position, first.created_at, first.job,
       exclusive.precedence, exclusive.position, exclusive.created_at, exclusive.job
FROM (SELECT DISTINCT key FROM lock WHERE job @in(ids)) AS wanted
LEFT JOIN lock AS first ON first.key = wanted.key AND first.job = (
    SELECT job FROM lock WHERE lock.key = wanted.key AND state = 'contending'
    ORDER BY precedence, position, created_at, job LIMIT 1)
LEFT JOIN lock AS exclusive ON exclusive.key = wanted.key AND exclusive.job = (
    SELECT job FROM lock WHERE lock.key = wanted.key AND state = 'contending' AND mode = 'exclusive'
    ORDER BY precedence, position, created_at, job LIMIT 1)

-- name: place
UPDATE job SET status = :to, wait_kind = :wait_kind, waited_on = :waited_on, ready = :ready, stirred = 0,
               reason = :reason, finished_at = :finished_at, ready_at = coalesce(:ready_at, ready_at)
WHERE id = :job AND status = :was

-- name: forget_delay: it is over, and something else holds the job now
UPDATE job SET not_before = NULL WHERE id @in(ids)

-- name: unstir
UPDATE job SET stirred = 0 WHERE id @in(ids)

-- name: count_ready: so many jobs more or less stand in this lane, and another may be the first
UPDATE lane SET ready = ready + :change, (precedence, position, created_at, job) = (
    SELECT first.precedence, first.position, first.created_at, first.id FROM job AS first
    WHERE first.lane = :lane AND first.ready = 1
    ORDER BY first.precedence, first.position, first.created_at, first.id LIMIT 1)
WHERE id = :lane

-- name: contend
UPDATE lock SET state = 'contending' WHERE job = :job AND state = 'idle' RETURNING key, mode, precedence, position, created_at, job

-- name: exclusive_behind
SELECT precedence, position, created_at, job FROM lock
WHERE key = :key AND state = 'contending' AND mode = 'exclusive'
  AND (precedence, position, created_at, job) > (:precedence, :position, :created_at, :job)
ORDER BY precedence, position, created_at, job LIMIT 1

-- name: stir_job
UPDATE job SET stirred = 1 WHERE id = :job AND stirred = 0 AND finished_at IS NULL AND started_at IS NULL

-- name: stir_contenders: of a key's queue, those behind one rank and not behind another
UPDATE job SET stirred = 1 WHERE stirred = 0 AND ready = :ready AND id IN (
    SELECT job FROM lock WHERE key = :key AND state = 'contending'
      AND (precedence, position, created_at, job) > (:after_precedence, :after_position, :after_created_at, :after_job)
      AND (precedence, position, created_at, job) <= (:upto_precedence, :upto_position, :upto_created_at, :upto_job))

-- name: leave_locks
UPDATE lock SET state = 'idle' WHERE job = :job AND state <> 'idle' RETURNING key, mode

-- name: stir_successors: an edge that cannot be met any more decides at once; a met one only when it was the last
UPDATE job SET stirred = 1
WHERE stirred = 0 AND finished_at IS NULL AND started_at IS NULL
  AND id IN (SELECT job FROM edge WHERE chain = :chain AND state = 'open' AND NOT (policy @in(policies)))

-- name: count_down_successors: by the chain's own edges, however many others a successor has
UPDATE job SET unmet = job.unmet - met.edges,
               stirred = CASE WHEN job.finished_at IS NULL AND job.started_at IS NULL AND job.unmet = met.edges
                              THEN 1 ELSE job.stirred END
FROM (SELECT edge.job, count(*) AS edges FROM edge
      WHERE edge.chain = :chain AND edge.state = 'open' AND edge.policy @in(policies) GROUP BY edge.job) AS met
WHERE job.id = met.job

-- name: close_edges
UPDATE edge SET state = CASE WHEN policy @in(policies) THEN 'met' ELSE 'unmeetable' END
WHERE chain = :chain AND state = 'open'

-- name: awaited: whether somebody waits for this chain's end, whether it was to make something, and its group
SELECT CASE WHEN EXISTS (SELECT 1 FROM edge WHERE chain = :chain AND state = 'open') THEN 1 ELSE 0 END,
       CASE WHEN EXISTS (SELECT 1 FROM product WHERE chain = :chain) THEN 1 ELSE 0 END,
       (SELECT job_group FROM job WHERE id = :chain)

-- name: queued_ranks: the columns that a move needs
SELECT precedence, position, created_at, id, status, chain, ready, lane FROM job WHERE id @in(ids)

-- name: next_waiting: the next waiting job of the same priority after a rank, without the job that moves
SELECT precedence, position, created_at, id FROM job
WHERE finished_at IS NULL AND started_at IS NULL AND precedence = :precedence AND id <> :except_job
  AND (position, created_at, id) > (:position, :created_at, :job)
ORDER BY precedence, position, created_at, id LIMIT 1 OFFSET :offset

-- name: previous_waiting
SELECT precedence, position, created_at, id FROM job
WHERE finished_at IS NULL AND started_at IS NULL AND precedence = :precedence AND id <> :except_job
  AND (position, created_at, id) < (:position, :created_at, :job)
ORDER BY precedence DESC, position DESC, created_at DESC, id DESC LIMIT 1

-- name: count_before: waiting jobs of the same priority
SELECT count(*) FROM job
WHERE finished_at IS NULL AND started_at IS NULL AND precedence = :precedence
  AND (position, created_at, id) < (:position, :created_at, :job)

-- name: waiting_ranks: in queue order
SELECT precedence, position, created_at, id FROM job
WHERE finished_at IS NULL AND started_at IS NULL
  AND (precedence, position, created_at, id) > (:precedence, :position, :created_at, :job)
ORDER BY precedence, position, created_at, id LIMIT :limit

-- name: count_waiting_at: waiting jobs of a priority at one position
SELECT count(*) FROM job
WHERE finished_at IS NULL AND started_at IS NULL AND precedence = :precedence AND position = :position

-- name: set_rank
UPDATE job SET precedence = :precedence, position = :position
WHERE id = :job AND finished_at IS NULL AND started_at IS NULL

-- name: set_lock_rank
UPDATE lock SET precedence = :precedence, position = :position WHERE job = :job

-- name: respace: keeps the order, one gap apart, the last job one gap before the next submitted one
UPDATE job SET position = respaced.position
FROM (SELECT id, :upper - :gap * row_number() OVER (ORDER BY precedence DESC, position DESC, created_at DESC, id DESC)
             AS position
      FROM job WHERE finished_at IS NULL AND precedence = :precedence) AS respaced
WHERE job.id = respaced.id

-- name: respace_locks
UPDATE lock SET position = job.position FROM job
WHERE job.id = lock.job AND job.finished_at IS NULL AND job.precedence = :precedence

-- name: respace_lanes: the first job of a lane stays the first
UPDATE lane SET position = (SELECT job.position FROM job WHERE job.id = lane.job)
WHERE ready_count > 0 AND precedence = :precedence

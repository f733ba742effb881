-- name: queued: what a move has to know of a job
SELECT precedence, position, created_at, id, status, chain, ready, lane FROM job WHERE id @in(ids)

-- name: line_behind: of those of a priority that wait, the next behind a rank, but for the job that moves
SELECT precedence, position, created_at, id FROM job
WHERE finished_at IS NULL AND started_at IS NULL AND precedence = :precedence AND id <> :but
  AND (position, created_at, id) > (:position, :created_at, :job)
ORDER BY precedence, position, created_at, id LIMIT 1 OFFSET :skipped

-- name: line_before
SELECT precedence, position, created_at, id FROM job
WHERE finished_at IS NULL AND started_at IS NULL AND precedence = :precedence AND id <> :but
  AND (position, created_at, id) < (:position, :created_at, :job)
ORDER BY precedence DESC, position DESC, created_at DESC, id DESC LIMIT 1

-- name: count_before: of those of a priority that wait
SELECT count(*) FROM job
WHERE finished_at IS NULL AND started_at IS NULL AND precedence = :precedence
  AND (position, created_at, id) < (:position, :created_at, :job)

-- name: waiting_line: in queue order
SELECT precedence, position, created_at, id FROM job
WHERE finished_at IS NULL AND started_at IS NULL
  AND (precedence, position, created_at, id) > (:precedence, :position, :created_at, :job)
ORDER BY precedence, position, created_at, id LIMIT :limit

-- name: waiting_at: those of a priority that wait, at one position
SELECT count(*) FROM job
WHERE finished_at IS NULL AND started_at IS NULL AND precedence = :precedence AND position = :position

-- name: set_rank
UPDATE job SET precedence = :precedence, position = :position
WHERE id = :job AND finished_at IS NULL AND started_at IS NULL

-- name: set_lock_rank
UPDATE lock SET precedence = :precedence, position = :position WHERE job = :job

-- name: respace: a gap apart, in their order, the last a gap before what is submitted next
UPDATE job SET position = wanted.position
FROM (SELECT id, :upper - :gap * row_number() OVER (ORDER BY precedence DESC, position DESC, created_at DESC, id DESC)
             AS position
      FROM job WHERE finished_at IS NULL AND precedence = :precedence) AS wanted
WHERE job.id = wanted.id

-- name: respace_locks
UPDATE lock SET position = job.position FROM job
WHERE job.id = lock.job AND job.finished_at IS NULL AND job.precedence = :precedence

-- name: respace_lanes: whoever was the first of one still is
UPDATE lane SET position = (SELECT job.position FROM job WHERE job.id = lane.job)
WHERE ready > 0 AND precedence = :precedence

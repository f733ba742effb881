-- name: lane_scopes: every lane, with the columns that decide its scopes
SELECT id, demand, type, flow, target, ready_count FROM lane ORDER BY id

-- name: pause_of
SELECT paused_by, paused_at FROM pause WHERE scope = :scope

-- name: add_pause
INSERT INTO pause (scope, paused_by, paused_at) VALUES (:scope, :paused_by, :paused_at)

-- name: remove_pause
DELETE FROM pause WHERE scope = :scope

-- name: wake_contending: jobs of these lanes that are in the queues of their locks
UPDATE job SET dirty = 1
WHERE dirty = 0 AND lane @in(lanes) AND id IN (SELECT job FROM lock WHERE state = 'contending')

-- name: wake_parked: the first parked jobs of these lanes, which wait for nothing stored
UPDATE job SET dirty = 1 WHERE id IN (
    SELECT id FROM job WHERE status = 'QUEUED' AND ready = 0 AND not_before IS NULL AND dirty = 0 AND lane @in(lanes)
    ORDER BY precedence, position, created_at, id LIMIT :limit)

-- name: count_parked
SELECT count(*) FROM job
WHERE status = 'QUEUED' AND ready = 0 AND not_before IS NULL AND dirty = 0 AND lane @in(lanes)

-- name: queued_in_lane: some queued jobs that no dependency, delay or lock blocks, the ready ones in queue order
SELECT precedence, position, created_at, id FROM (
    SELECT precedence, position, created_at, id FROM job WHERE ready = 1 AND lane = :lane
    ORDER BY precedence, position, created_at, id LIMIT :limit) AS ready
UNION ALL
SELECT precedence, position, created_at, id FROM (
    SELECT precedence, position, created_at, id FROM job
    WHERE status = 'QUEUED' AND ready = 0 AND not_before IS NULL AND lane = :lane LIMIT :limit) AS parked

-- name: first_queued: the first job that no dependency, delay or lock blocks
SELECT id FROM job
WHERE finished_at IS NULL AND started_at IS NULL AND status = 'QUEUED' AND (ready = 1 OR not_before IS NULL)
ORDER BY precedence, position, created_at, id LIMIT 1

-- name: first_due
SELECT id FROM job WHERE status = 'QUEUED' AND ready = 0 AND not_before IS NOT NULL ORDER BY not_before LIMIT 1

-- name: first_waiting
SELECT id FROM job WHERE finished_at IS NULL AND started_at IS NULL
ORDER BY precedence, position, created_at, id LIMIT 1

-- name: clearable: waiting jobs of these lanes, in queue order
SELECT precedence, position, created_at, id, chain FROM job
WHERE finished_at IS NULL AND started_at IS NULL AND id <= :max_id AND lane @in(lanes)
  AND (precedence, position, created_at, id) > (:precedence, :position, :created_at, :job)
ORDER BY precedence, position, created_at, id LIMIT :limit

-- name: count_clearable: number of waiting jobs of these lanes, and the latest of them
SELECT count(*), max(id) FROM job WHERE finished_at IS NULL AND started_at IS NULL AND lane @in(lanes)

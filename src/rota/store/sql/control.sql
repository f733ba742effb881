-- name: places: every lane, by what its jobs stand under
SELECT id, draws, type, flow, target, ready FROM lane ORDER BY id

-- name: pause_of
SELECT paused_by, paused_at FROM pause WHERE scope = :scope

-- name: add_pause
INSERT INTO pause (scope, paused_by, paused_at) VALUES (:scope, :by, :at)

-- name: remove_pause
DELETE FROM pause WHERE scope = :scope

-- name: stir_contending: of these lanes, the jobs that stand in the queues of their locks
UPDATE job SET stirred = 1
WHERE stirred = 0 AND lane @in(lanes) AND id IN (SELECT job FROM lock WHERE state = 'contending')

-- name: stir_parked: of these lanes, the first jobs that wait for nothing stored: something held them
UPDATE job SET stirred = 1 WHERE id IN (
    SELECT id FROM job WHERE status = 'QUEUED' AND ready = 0 AND not_before IS NULL AND stirred = 0 AND lane @in(lanes)
    ORDER BY precedence, position, created_at, id LIMIT :limit)

-- name: count_parked
SELECT count(*) FROM job WHERE status = 'QUEUED' AND ready = 0 AND not_before IS NULL AND stirred = 0

-- name: first_queued: the first that no dependency, delay or lock is in the way of
SELECT id FROM job
WHERE finished_at IS NULL AND started_at IS NULL AND status = 'QUEUED' AND (ready = 1 OR not_before IS NULL)
ORDER BY precedence, position, created_at, id LIMIT 1

-- name: first_due
SELECT id FROM job WHERE status = 'QUEUED' AND ready = 0 AND not_before IS NOT NULL ORDER BY not_before LIMIT 1

-- name: first_waiting
SELECT id FROM job WHERE finished_at IS NULL AND started_at IS NULL
ORDER BY precedence, position, created_at, id LIMIT 1

-- name: clearable: jobs of these lanes that wait, in queue order
SELECT precedence, position, created_at, id, chain FROM job
WHERE finished_at IS NULL AND started_at IS NULL AND id <= :upto AND lane @in(lanes)
  AND (precedence, position, created_at, id) > (:precedence, :position, :created_at, :job)
ORDER BY precedence, position, created_at, id LIMIT :limit

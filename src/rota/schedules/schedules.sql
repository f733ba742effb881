-- part: columns
id, name, cron, zone, catch_up, overlap, body, environment, is_enabled, since, next_at, created_at, changed_at

-- name: schedule
SELECT @part(columns) FROM schedule WHERE id = :schedule

-- name: schedule_named
SELECT @part(columns) FROM schedule WHERE name = :name

-- name: schedules: by id
SELECT @part(columns) FROM schedule WHERE id > :schedule ORDER BY id LIMIT :limit

-- name: due_schedules: longest overdue first
SELECT @part(columns) FROM schedule WHERE next_at <= :now AND next_at IS NOT NULL ORDER BY next_at LIMIT :limit

-- name: first_due_schedule
SELECT id, name, next_at FROM schedule WHERE next_at IS NOT NULL ORDER BY next_at LIMIT 1

-- name: count_schedules
SELECT count(*), coalesce(sum(is_enabled), 0) FROM schedule

-- name: add_schedule
INSERT INTO schedule (id, name, cron, zone, catch_up, overlap, body, environment, is_enabled, since, next_at,
                      created_at, changed_at)
VALUES (:id, :name, :cron, :zone, :catch_up, :overlap, :body, :environment, :is_enabled, :since, :next_at,
        :created_at, :changed_at)

-- name: change_schedule
UPDATE schedule SET name = :name, cron = :cron, zone = :zone, catch_up = :catch_up, overlap = :overlap, body = :body,
                    environment = :environment, is_enabled = :is_enabled, since = :since, next_at = :next_at,
                    changed_at = :changed_at
WHERE id = :id

-- name: set_next_fire
UPDATE schedule SET next_at = :next_at WHERE id = :id

-- name: remove_schedule
DELETE FROM schedule WHERE id = :schedule

-- name: active_of_schedule: oldest first
SELECT id, CASE WHEN started_at IS NULL THEN 1 ELSE 0 END FROM job
WHERE schedule = :schedule AND schedule IS NOT NULL AND finished_at IS NULL ORDER BY id LIMIT :limit

-- name: start_schedule_epoch
UPDATE schedule SET epoch = epoch + 1 WHERE id = :id

-- name: newest_fire: in the current epoch of the schedule
SELECT max(at) FROM fire
WHERE schedule = :schedule AND epoch = (SELECT epoch FROM schedule WHERE id = :schedule)

-- name: has_fire: in the current epoch of the schedule
SELECT 1 FROM fire
WHERE schedule = :schedule AND epoch = (SELECT epoch FROM schedule WHERE id = :schedule) AND at = :at

-- name: add_fire: never changes a recorded outcome
INSERT INTO fire (schedule, epoch, at, state, job, recorded_at, reason, count, is_manual)
VALUES (:schedule, (SELECT epoch FROM schedule WHERE id = :schedule), :at, :state, :job, :recorded_at, :reason, :count,
        :is_manual)
ON CONFLICT (schedule, epoch, at) DO NOTHING

-- name: fires_of: newest first
SELECT schedule, at, state, job, recorded_at, reason, count, is_manual FROM fire
WHERE schedule = :schedule ORDER BY epoch DESC, at DESC LIMIT :limit

-- name: count_fires: by outcome, within a period
SELECT state, sum(count) FROM fire WHERE recorded_at >= :since AND recorded_at <= :until GROUP BY state

-- name: old_fires: keeps the last fire of an existing schedule
SELECT schedule, epoch, at FROM fire WHERE recorded_at < :until
  AND (EXISTS (SELECT 1 FROM fire AS later
               WHERE later.schedule = fire.schedule AND (later.epoch, later.at) > (fire.epoch, fire.at))
       OR NOT EXISTS (SELECT 1 FROM schedule WHERE schedule.id = fire.schedule))
LIMIT :limit

-- name: remove_fire
DELETE FROM fire WHERE schedule = :schedule AND epoch = :epoch AND at = :at

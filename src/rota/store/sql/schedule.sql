-- part: columns
id, name, cron, zone, catch_up, overlap, body, surroundings, is_enabled, since, next_at, created_at, changed_at

-- name: schedule
SELECT @part(columns) FROM schedule WHERE id = :schedule

-- name: schedule_named
SELECT @part(columns) FROM schedule WHERE name = :name

-- name: schedules: by number
SELECT @part(columns) FROM schedule WHERE id > :schedule ORDER BY id LIMIT :limit

-- name: due_schedules: the longest due first
SELECT @part(columns) FROM schedule WHERE next_at <= :now AND next_at IS NOT NULL ORDER BY next_at LIMIT :limit

-- name: first_due_schedule
SELECT id, name, next_at FROM schedule WHERE next_at IS NOT NULL ORDER BY next_at LIMIT 1

-- name: count_schedules
SELECT count(*), coalesce(sum(is_enabled), 0) FROM schedule

-- name: add_schedule
INSERT INTO schedule (id, name, cron, zone, catch_up, overlap, body, surroundings, is_enabled, since, next_at,
                      created_at, changed_at)
VALUES (:id, :name, :cron, :zone, :catch_up, :overlap, :body, :surroundings, :is_enabled, :since, :next_at,
        :created_at, :changed_at)

-- name: change_schedule
UPDATE schedule SET name = :name, cron = :cron, zone = :zone, catch_up = :catch_up, overlap = :overlap, body = :body,
                    surroundings = :surroundings, is_enabled = :is_enabled, since = :since, next_at = :next_at,
                    changed_at = :changed_at
WHERE id = :id

-- name: set_next_fire
UPDATE schedule SET next_at = :next_at WHERE id = :id

-- name: remove_schedule
DELETE FROM schedule WHERE id = :schedule

-- name: active_of_schedule: the oldest first
SELECT id, CASE WHEN started_at IS NULL THEN 1 ELSE 0 END FROM job
WHERE schedule = :schedule AND schedule IS NOT NULL AND finished_at IS NULL ORDER BY id LIMIT :limit

-- name: has_fire
SELECT 1 FROM fire WHERE schedule = :schedule AND at = :at

-- name: add_fire: what has become of a time stays so
INSERT INTO fire (schedule, at, state, job, booked_at, reason, count, is_trigger)
VALUES (:schedule, :at, :state, :job, :booked_at, :reason, :count, :is_trigger)
ON CONFLICT (schedule, at) DO NOTHING

-- name: fires_of: the newest first
SELECT schedule, at, state, job, booked_at, reason, count, is_trigger FROM fire
WHERE schedule = :schedule AND at < :below ORDER BY at DESC LIMIT :limit

-- name: count_fires: since when, by what became of them
SELECT state, sum(count) FROM fire WHERE booked_at >= :since GROUP BY state

-- name: old_fires: of a schedule that is there the last stays
SELECT schedule, at FROM fire WHERE booked_at < :until
  AND (at < (SELECT max(later.at) FROM fire AS later WHERE later.schedule = fire.schedule)
       OR NOT EXISTS (SELECT 1 FROM schedule WHERE schedule.id = fire.schedule))
LIMIT :limit

-- name: remove_fire
DELETE FROM fire WHERE schedule = :schedule AND at = :at

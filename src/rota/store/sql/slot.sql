-- name: add_slot
INSERT INTO slot (id, state, name, command, cwd, surroundings, trace, type, flow, target, draws, timeout, idle_timeout,
                  attended, actor, created_at)
VALUES (:id, 'waiting', :name, :command, :cwd, :surroundings, :trace, :type, :flow, :target, :draws, :timeout, :idle_timeout,
        :attended, :actor, :now)

-- part: slot
SELECT id, state, name, command, cwd, surroundings, type, flow, target, draws, timeout, idle_timeout, actor,
       created_at, started_at, finished_at, worker, run, pid, stop_requested, status, exit_code, reason, attended,
       trace
FROM slot

-- name: slots
@part(slot) WHERE id @in(ids)

-- name: open_slots: in order of arrival
@part(slot) WHERE finished_at IS NULL ORDER BY id

-- name: open_slots_behind: the same, a page of them
@part(slot) WHERE finished_at IS NULL AND id > :slot ORDER BY id LIMIT :limit

-- name: slot_of_run
@part(slot) WHERE run = :run AND finished_at IS NULL

-- name: waiting_slots: in order of arrival
SELECT id, draws, type, flow, target FROM slot WHERE finished_at IS NULL AND state = 'waiting' ORDER BY id

-- name: start_slot
UPDATE slot SET state = :state, worker = :worker, run = :run, started_at = :now WHERE id = :id AND state = 'waiting'

-- name: confirm_slot
UPDATE slot SET state = 'running', pid = :pid, pid_started = :pid_started
WHERE id = :id AND (state = 'starting' OR state = 'running')

-- name: return_slot: nothing was started for it
UPDATE slot SET state = 'waiting', worker = NULL, run = NULL, started_at = NULL, pid = NULL, pid_started = NULL
WHERE id = :id AND state = 'starting'

-- name: stop_slot
UPDATE slot SET stop_requested = :reason
WHERE id = :id AND (stop_requested IS NULL OR stop_requested = :weaker) AND finished_at IS NULL

-- name: end_slot
UPDATE slot SET state = 'ended', finished_at = :now, status = :status, exit_code = :exit_code, reason = :reason
WHERE id = :id AND finished_at IS NULL

-- name: slot_users
SELECT id, draws FROM slot WHERE finished_at IS NULL AND worker IS NOT NULL ORDER BY id

-- name: old_slots
SELECT id FROM slot WHERE finished_at <= :until ORDER BY finished_at LIMIT :limit

-- name: fresh_slots
SELECT id FROM slot WHERE id @in(ids) AND (finished_at IS NULL OR finished_at >= :until)

-- name: remove_slots
DELETE FROM slot WHERE id @in(ids) AND finished_at IS NOT NULL

-- name: add_reservation
INSERT INTO reservation (id, state, name, command, cwd, environment, trace, type, flow, target, demand, timeout,
                         idle_timeout, has_client, actor, created_at)
VALUES (:id, 'waiting', :name, :command, :cwd, :environment, :trace, :type, :flow, :target, :demand, :timeout,
        :idle_timeout, :has_client, :actor, :now)

-- part: reservation
SELECT id, state, name, command, cwd, environment, type, flow, target, demand, timeout, idle_timeout, actor,
       created_at, started_at, finished_at, worker, run, pid, stop_requested, status, exit_code, reason, has_client,
       trace
FROM reservation

-- name: reservations
@part(reservation) WHERE id @in(ids)

-- name: open_reservations: in order of arrival
@part(reservation) WHERE finished_at IS NULL ORDER BY id

-- name: open_reservations_after: one page, in order of arrival
@part(reservation) WHERE finished_at IS NULL AND id > :after ORDER BY id LIMIT :limit

-- name: reservation_of_run
@part(reservation) WHERE run = :run AND finished_at IS NULL

-- name: waiting_reservations: in order of arrival
SELECT id, demand, type, flow, target FROM reservation WHERE finished_at IS NULL AND state = 'waiting' ORDER BY id

-- name: start_reservation
UPDATE reservation SET state = :state, worker = :worker, run = :run, started_at = :now
WHERE id = :id AND state = 'waiting'

-- name: confirm_reservation
UPDATE reservation SET state = 'running', pid = :pid, pid_started = :pid_started
WHERE id = :id AND (state = 'starting' OR state = 'running')

-- name: requeue_reservation: for a reservation that started nothing
UPDATE reservation SET state = 'waiting', worker = NULL, run = NULL, started_at = NULL, pid = NULL, pid_started = NULL
WHERE id = :id AND state = 'starting'

-- name: stop_reservation
UPDATE reservation SET stop_requested = :reason
WHERE id = :id AND (stop_requested IS NULL OR stop_requested = :weaker) AND finished_at IS NULL

-- name: end_reservation
UPDATE reservation SET state = 'ended', finished_at = :now, status = :status, exit_code = :exit_code, reason = :reason
WHERE id = :id AND finished_at IS NULL

-- name: running_reservations
SELECT id, demand FROM reservation WHERE finished_at IS NULL AND worker IS NOT NULL ORDER BY id

-- name: old_reservations
SELECT id FROM reservation WHERE finished_at <= :until ORDER BY finished_at LIMIT :limit

-- name: recent_reservations
SELECT id FROM reservation WHERE id @in(ids) AND (finished_at IS NULL OR finished_at >= :until)

-- name: remove_reservations
DELETE FROM reservation WHERE id @in(ids) AND finished_at IS NOT NULL

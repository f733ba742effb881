-- name: add_webhook
INSERT INTO webhook (id, url, events, secret, created_at) VALUES (:id, :url, :events, :secret, :now)

-- name: webhooks: by id
SELECT id, url, events, secret, old_secret, old_secret_until, created_at, disabled_at, disabled_reason, failures,
       held_until FROM webhook WHERE id > :after ORDER BY id LIMIT :limit

-- name: disable_webhook
UPDATE webhook SET disabled_at = :now, disabled_reason = :reason, held_until = NULL
WHERE id = :id AND disabled_at IS NULL

-- name: enable_webhook
UPDATE webhook SET disabled_at = NULL, disabled_reason = NULL, failures = 0, held_until = NULL WHERE id = :id

-- name: rotate_webhook
UPDATE webhook SET old_secret = CASE WHEN CAST(:until AS BIGINT) IS NULL THEN NULL ELSE secret END,
       old_secret_until = :until, old_secret_duration = :duration, secret = :secret WHERE id = :id

-- name: hold_webhook
UPDATE webhook SET failures = :failures, held_until = :until, hold_duration = :duration WHERE id = :id

-- name: remove_webhook
DELETE FROM webhook WHERE id = :id

-- name: find_job_webhook
SELECT id FROM spec WHERE webhook IS NOT NULL LIMIT 1

-- name: job_webhooks
SELECT job.id, spec.webhook FROM job JOIN spec ON spec.id = job.spec
WHERE job.id @in(ids) AND spec.webhook IS NOT NULL

-- name: add_delivery
INSERT INTO delivery (id, message, webhook, receiver, url, kind, job, run, job_group, payload, state, created_at,
                      next_at)
VALUES (:id, :message, :webhook, :receiver, :url, :kind, :job, :run, :group, :payload, 'PENDING', :now, :now)

-- name: pending_receivers: receivers with pending deliveries
WITH RECURSIVE walked (receiver) AS (
    SELECT min(receiver) FROM delivery WHERE next_at IS NOT NULL
    UNION ALL
    SELECT (SELECT min(delivery.receiver) FROM delivery
            WHERE delivery.next_at IS NOT NULL AND delivery.receiver > walked.receiver)
    FROM walked WHERE walked.receiver IS NOT NULL
)
SELECT receiver FROM walked WHERE receiver IS NOT NULL

-- name: pending_attempt_counts: distinct attempt counts of the pending deliveries of a receiver, highest first
WITH RECURSIVE walked (attempts_since_resend) AS (
    SELECT max(attempts_since_resend) FROM delivery WHERE receiver = :receiver AND next_at IS NOT NULL
    UNION ALL
    SELECT (SELECT max(attempts_since_resend) FROM delivery
            WHERE receiver = :receiver AND next_at IS NOT NULL AND attempts_since_resend < walked.attempts_since_resend)
    FROM walked WHERE walked.attempts_since_resend IS NOT NULL
)
SELECT attempts_since_resend FROM walked WHERE attempts_since_resend IS NOT NULL

-- name: pending_deliveries: in the order in which they are due
SELECT id, next_at FROM delivery WHERE receiver = :receiver AND attempts_since_resend = :attempts
  AND next_at IS NOT NULL
ORDER BY receiver, attempts_since_resend, next_at, id LIMIT :limit

-- name: count_pending_by_receiver
SELECT receiver, count(*) FROM delivery WHERE next_at IS NOT NULL GROUP BY receiver

-- name: count_pending
SELECT count(*) FROM delivery WHERE receiver = :receiver AND next_at IS NOT NULL

-- part: delivery
SELECT id, message, webhook, receiver, url, kind, job, run, job_group, state, attempts, attempts_since_resend,
       created_at, next_at, finished_at, reason FROM delivery

-- part: in_state
id < :before_id AND (CAST(:state AS TEXT) IS NULL OR state = CAST(:state AS TEXT))

-- name: deliveries
@part(delivery) WHERE id @in(ids)

-- name: latest_deliveries: newest first
@part(delivery) WHERE @part(in_state) ORDER BY id DESC LIMIT :limit

-- name: deliveries_of_job
@part(delivery) WHERE job = :job AND @part(in_state)
  AND (CAST(:webhook AS BIGINT) IS NULL OR webhook = CAST(:webhook AS BIGINT))
ORDER BY job DESC, id DESC LIMIT :limit

-- name: deliveries_of_webhook
@part(delivery) WHERE webhook = :webhook AND @part(in_state) ORDER BY webhook DESC, id DESC LIMIT :limit

-- name: payload_of
SELECT payload FROM delivery WHERE id = :id

-- name: attempts_of
SELECT delivery, number, at, duration, status, error FROM delivery_attempt
WHERE delivery @in(ids) ORDER BY delivery, number

-- name: add_attempt
INSERT INTO delivery_attempt (delivery, number, at, duration, status, error)
VALUES (:id, :number, :at, :duration, :status, :error)

-- name: count_attempt
UPDATE delivery SET attempts = :attempts, attempts_since_resend = attempts_since_resend + 1 WHERE id = :id

-- name: end_delivery
UPDATE delivery SET state = :state, next_at = NULL, finished_at = :now, reason = :reason
WHERE id = :id AND next_at IS NOT NULL

-- name: reschedule_delivery
UPDATE delivery SET next_at = :next_at, delay = :delay, reason = :reason WHERE id = :id AND next_at IS NOT NULL

-- name: resend_delivery
UPDATE delivery SET state = 'PENDING', next_at = :now, delay = 0, finished_at = NULL, reason = NULL,
                    attempts_since_resend = 0
WHERE id = :id AND next_at IS NULL

-- name: abandon_deliveries
UPDATE delivery SET state = 'FAILED', next_at = NULL, finished_at = :now, reason = :reason
WHERE receiver = :receiver AND next_at IS NOT NULL

-- name: stale_deliveries: of the pending deliveries
SELECT id FROM delivery WHERE next_at IS NOT NULL AND next_at < :until

-- name: abandon_stale_deliveries
UPDATE delivery SET state = 'FAILED', next_at = NULL, finished_at = :now, reason = :reason
WHERE id @in(ids) AND next_at < :until

-- name: old_deliveries
SELECT id FROM delivery WHERE finished_at < :until ORDER BY finished_at LIMIT :limit

-- name: ended_deliveries: the deliveries among these that have not been resent meanwhile
SELECT id FROM delivery WHERE id @in(ids) AND next_at IS NULL

-- name: remove_attempts
DELETE FROM delivery_attempt WHERE delivery @in(ids)

-- name: remove_deliveries
DELETE FROM delivery WHERE id @in(ids)

-- name: end_delays: for active jobs that have passed the delay gate
UPDATE job SET not_before = :now
WHERE finished_at IS NULL AND not_before > :now
  AND (started_at IS NOT NULL OR (dirty = 0 AND (ready = 1 OR wait_kind = 'locks')))

-- name: shorten_delays
UPDATE job SET not_before = :now + delay WHERE finished_at IS NULL AND not_before > :now + delay

-- name: shorten_cool_downs
UPDATE breaker SET until = :now + until - opened_at, opened_at = :now WHERE opened_at > :now

-- name: clamp_failure_times: a failure counts for no longer than the window of its breaker
UPDATE breaker_failure SET at = :now WHERE at > :now

-- name: shorten_delivery_delays
UPDATE delivery SET next_at = :now + delay WHERE next_at IS NOT NULL AND next_at > :now + delay

-- name: shorten_webhook_holds
UPDATE webhook SET held_until = :now + hold_duration WHERE held_until > :now + hold_duration

-- name: shorten_old_secrets
UPDATE webhook SET old_secret_until = :now + old_secret_duration WHERE old_secret_until > :now + old_secret_duration

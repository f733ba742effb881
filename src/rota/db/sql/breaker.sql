-- name: add_failure: appends to the ring, or replaces its oldest entry; returns the recent others and the breaker
INSERT INTO breaker_failure (key, ring_index, at)
SELECT failed_key.key,
       (SELECT CASE WHEN count(*) < :max_kept THEN coalesce(max(kept.ring_index) + 1, 0)
                    ELSE (SELECT oldest.ring_index FROM breaker_failure AS oldest WHERE oldest.key = failed_key.key
                          ORDER BY oldest.at, oldest.ring_index LIMIT 1) END
        FROM breaker_failure AS kept WHERE kept.key = failed_key.key),
       :at
FROM (SELECT :first_key AS key UNION ALL SELECT :second_key) AS failed_key
WHERE failed_key.key IS NOT NULL
ON CONFLICT (key, ring_index) DO UPDATE SET at = excluded.at
RETURNING key,
          (SELECT count(*) FROM breaker_failure AS other
           WHERE other.key = breaker_failure.key AND other.ring_index <> breaker_failure.ring_index
             AND other.at > :since),
          (SELECT state FROM breaker WHERE breaker.key = breaker_failure.key),
          (SELECT until FROM breaker WHERE breaker.key = breaker_failure.key),
          (SELECT probe FROM breaker WHERE breaker.key = breaker_failure.key)

-- name: breakers
SELECT key, state, until, probe, opened_at FROM breaker ORDER BY key

-- name: recent_failures
SELECT key, at FROM breaker_failure WHERE at > :since ORDER BY key, ring_index

-- name: open_breaker
INSERT INTO breaker (key, state, opened_at, until) VALUES (:key, 'open', :opened_at, :until)
ON CONFLICT (key) DO UPDATE SET state = 'open', opened_at = excluded.opened_at, until = excluded.until, probe = NULL

-- name: half_open_breaker
UPDATE breaker SET state = 'half_open', probe = :probe WHERE key = :key

-- name: close_breaker
DELETE FROM breaker WHERE key = :key

-- name: delete_failures
DELETE FROM breaker_failure WHERE key = :key

-- name: delete_old_failures
DELETE FROM breaker_failure WHERE at <= :until

-- name: idle_lanes: lanes under these keys with parked jobs and no ready job, which would start before them
SELECT id, demand, type, flow, target FROM lane
WHERE ready_count = 0 AND ('type/' || type @in(keys) OR 'target/' || target @in(keys))
  AND EXISTS (SELECT 1 FROM job WHERE job.status = 'QUEUED' AND job.ready = 0 AND job.not_before IS NULL
                                  AND job.dirty = 0 AND job.lane = lane.id)

-- name: reset_start_failures: also clears the delay of a waiting job, because its last delay came from a failed start
UPDATE job SET dispatch_failures = 0,
               not_before = CASE WHEN started_at IS NULL THEN NULL ELSE not_before END,
               dirty = CASE WHEN finished_at IS NULL AND started_at IS NULL THEN 1 ELSE dirty END
WHERE id = :job AND dispatch_failures > 0

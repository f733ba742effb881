-- name: add_failure: behind the last, or once there are enough in place of the oldest; how many others are recent, what stands
INSERT INTO breaker_failure (key, slot, at)
SELECT wanted.key,
       (SELECT CASE WHEN count(*) < :most THEN coalesce(max(kept.slot) + 1, 0)
                    ELSE (SELECT oldest.slot FROM breaker_failure AS oldest WHERE oldest.key = wanted.key
                          ORDER BY oldest.at, oldest.slot LIMIT 1) END
        FROM breaker_failure AS kept WHERE kept.key = wanted.key),
       :at
FROM (SELECT :first AS key UNION ALL SELECT :second) AS wanted
WHERE wanted.key IS NOT NULL
ON CONFLICT (key, slot) DO UPDATE SET at = excluded.at
RETURNING key,
          (SELECT count(*) FROM breaker_failure AS other
           WHERE other.key = breaker_failure.key AND other.slot <> breaker_failure.slot AND other.at > :since),
          (SELECT state FROM breaker WHERE breaker.key = breaker_failure.key),
          (SELECT until FROM breaker WHERE breaker.key = breaker_failure.key),
          (SELECT probe FROM breaker WHERE breaker.key = breaker_failure.key)

-- name: breakers
SELECT key, state, until, probe, opened_at FROM breaker ORDER BY key

-- name: recent_failures
SELECT key, at FROM breaker_failure WHERE at > :since ORDER BY key, slot

-- name: open_breaker
INSERT INTO breaker (key, state, opened_at, until) VALUES (:key, 'open', :opened_at, :until)
ON CONFLICT (key) DO UPDATE SET state = 'open', opened_at = excluded.opened_at, until = excluded.until, probe = NULL

-- name: half_open_breaker
UPDATE breaker SET state = 'half_open', probe = :probe WHERE key = :key

-- name: close_breaker
DELETE FROM breaker WHERE key = :key

-- name: forget_failures
DELETE FROM breaker_failure WHERE key = :key

-- name: forget_old_failures
DELETE FROM breaker_failure WHERE at <= :until

-- name: idle_lanes: of those under these keys, where jobs are parked and none is ready: one that is goes before them
SELECT id, draws, type, flow, target FROM lane
WHERE ready = 0 AND ('type/' || type @in(keys) OR 'target/' || target @in(keys))
  AND EXISTS (SELECT 1 FROM job WHERE job.status = 'QUEUED' AND job.ready = 0 AND job.not_before IS NULL
                                  AND job.stirred = 0 AND job.lane = lane.id)

-- name: reset_starts: of a waiting job also the wait that follows a failed start, which is the last it was given
UPDATE job SET dispatch_failures = 0,
               not_before = CASE WHEN finished_at IS NULL AND started_at IS NULL THEN NULL ELSE not_before END,
               stirred = CASE WHEN finished_at IS NULL AND started_at IS NULL THEN 1 ELSE stirred END
WHERE id = :job AND dispatch_failures > 0

-- name: lock_keys: keys that are held or contended; each step jumps to the next key, however long its queue
WITH RECURSIVE walked (key) AS (
    SELECT min(next_key.key) FROM (
        SELECT min(lock.key) AS key FROM lock WHERE lock.state = 'held' AND lock.key > :after
        UNION ALL
        SELECT min(lock.key) FROM lock WHERE lock.state = 'contending' AND lock.key > :after) AS next_key
    UNION ALL
    SELECT (SELECT min(next_key.key) FROM (
                SELECT min(lock.key) AS key FROM lock WHERE lock.state = 'held' AND lock.key > walked.key
                UNION ALL
                SELECT min(lock.key) FROM lock WHERE lock.state = 'contending' AND lock.key > walked.key) AS next_key)
    FROM walked WHERE walked.key IS NOT NULL)
SELECT key FROM walked WHERE key IS NOT NULL LIMIT :limit

-- name: lock_owners
SELECT key, job, mode FROM lock WHERE key @in(keys) AND state = 'held'

-- name: lock_queue
SELECT job, mode FROM lock WHERE key = :key AND state = 'contending'
ORDER BY key, precedence, position, created_at, job LIMIT :limit

-- name: count_lock_queue
SELECT count(*) FROM lock WHERE key = :key AND state = 'contending'

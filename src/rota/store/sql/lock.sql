-- name: lock_keys: those that somebody holds or stands in line for; from one to the next, however many stand there
WITH RECURSIVE walked (key) AS (
    SELECT min(found.key) FROM (
        SELECT min(lock.key) AS key FROM lock WHERE lock.state = 'held' AND lock.key > :after
        UNION ALL
        SELECT min(lock.key) FROM lock WHERE lock.state = 'contending' AND lock.key > :after) AS found
    UNION ALL
    SELECT (SELECT min(found.key) FROM (
                SELECT min(lock.key) AS key FROM lock WHERE lock.state = 'held' AND lock.key > walked.key
                UNION ALL
                SELECT min(lock.key) FROM lock WHERE lock.state = 'contending' AND lock.key > walked.key) AS found)
    FROM walked WHERE walked.key IS NOT NULL)
SELECT key FROM walked WHERE key IS NOT NULL LIMIT :limit

-- name: lock_owners
SELECT key, job, mode FROM lock WHERE key @in(keys) AND state = 'held'

-- name: lock_line
SELECT job, mode FROM lock WHERE key = :key AND state = 'contending'
ORDER BY key, precedence, position, created_at, job LIMIT :limit

-- name: count_lock_line
SELECT count(*) FROM lock WHERE key = :key AND state = 'contending'

-- part: entry
SELECT event.seq, event.at, event.kind, event.cause, event.actor, event.job, event.run, event.data,
       job.chain, job.job_group, lane.type, lane.flow
FROM event LEFT JOIN job ON job.id = event.job LEFT JOIN lane ON lane.id = job.lane

-- name: entries
@part(entry)
WHERE event.seq > :seq AND event.seq <= :max_seq ORDER BY event.seq LIMIT :limit

-- name: entries_of_kinds
@part(entry)
WHERE event.seq > :seq AND event.seq <= :max_seq AND event.kind @in(kinds) ORDER BY event.seq LIMIT :limit

-- name: entries_of_group: events of the members, and of the group itself, whose data begins with the group
@part(entry)
WHERE event.seq > :seq AND event.seq <= :max_seq
  AND (job.job_group = :group OR (event.job IS NULL AND event.data LIKE :group_prefix))
ORDER BY event.seq LIMIT :limit

-- name: entries_of_job
@part(entry)
WHERE event.job = :job AND event.seq > :seq ORDER BY event.seq LIMIT :limit

-- name: jobs_of_chains
SELECT id, chain FROM job WHERE chain @in(chains)

-- name: downstream_chains: chains that depend directly on one of these
SELECT DISTINCT job.chain FROM edge JOIN job ON job.id = edge.job WHERE edge.chain @in(chains)

-- name: consumer_chains: chains that need a product of one of these
SELECT DISTINCT need.chain FROM product JOIN need ON need.artifact = product.artifact
WHERE product.chain @in(chains) AND need.chain <> product.chain

-- name: chain_tails: the last job of each chain
SELECT chain, id, status, ready, lane, unique_key, job_group, dropped, not_before,
       CASE WHEN retries > 0 OR dispatch_failures > 0 THEN 1 ELSE 0 END
FROM job
WHERE id IN (SELECT max(member.id) FROM job AS member WHERE member.chain @in(chains) GROUP BY member.chain)

-- name: artifact_uses
SELECT need.chain, artifact.name, artifact.scope, 0 FROM need JOIN artifact ON artifact.id = need.artifact
WHERE need.chain @in(chains)
UNION ALL
SELECT product.chain, artifact.name, artifact.scope, 1 FROM product JOIN artifact ON artifact.id = product.artifact
WHERE product.chain @in(chains)

-- name: producers_by_name
SELECT artifact.name, product.chain FROM artifact JOIN product ON product.artifact = artifact.id
WHERE artifact.name @in(names)

-- name: repositories_of
SELECT DISTINCT repository FROM spec WHERE id @in(chains) AND repository IS NOT NULL

-- name: upstream_chains: direct predecessors of this chain, by the edges of its last job and by its needs
SELECT edge.chain FROM edge WHERE edge.job = :job
UNION ALL
SELECT product.chain FROM need JOIN product ON product.artifact = need.artifact
WHERE need.chain = :chain AND product.chain <> need.chain

-- name: rewind: restores the submitted state except for runs, chain and rank; a backoff is not restored as a delay
-- Bounds the delay, because due times of finished jobs do not follow a clock that is set back (db/queue.py).
UPDATE job SET status = :status, queued_at = :now, started_at = NULL, finished_at = NULL,
               not_before = CASE WHEN retries > 0 OR dispatch_failures > 0 THEN NULL
                                 WHEN started_at IS NOT NULL AND not_before > :now THEN :now
                                 WHEN not_before > :now + delay THEN :now + delay
                                 ELSE not_before END,
               exit_code = NULL, reason = NULL, wait_kind = NULL, waited_on = '', ready = 0, dirty = 1,
               retries = 0, dropped = 0, permanently_failed = 0, dispatch_failures = 0, last_failure = NULL,
               stop_requested = NULL, pid = NULL, pid_started = NULL,
               rewound_run = (SELECT max(run.id) FROM run WHERE run.job = job.id)
WHERE id = :job AND status = :from_status

-- name: rewound_runs
SELECT id, rewound_run FROM job WHERE id @in(jobs) AND rewound_run IS NOT NULL

-- name: edges_with_chain_status: each edge with the current status of its chain
SELECT edge.job, edge.sequence, edge.policy, edge.state,
       (SELECT last.status FROM job AS last WHERE last.chain = edge.chain ORDER BY last.id DESC LIMIT 1),
       (SELECT CASE WHEN last.dropped = 1 AND last.job_group <> coalesce(job.job_group, 0) THEN 1 ELSE 0 END
        FROM job AS last WHERE last.chain = edge.chain ORDER BY last.id DESC LIMIT 1)
FROM edge JOIN job ON job.id = edge.job WHERE edge.job @in(jobs)

-- name: set_edge
UPDATE edge SET state = :state WHERE job = :job AND sequence = :sequence

-- name: recount_unmet
UPDATE job SET unmet_edges = (SELECT count(*) FROM edge WHERE edge.job = job.id AND edge.state <> 'met')
WHERE id @in(jobs)

-- name: rewind_products
UPDATE product SET is_rewound = 1 WHERE chain @in(chains)

-- name: withdraw_artifacts_of_chains
UPDATE artifact SET payload = NULL, declared_at = NULL, declared_by = NULL
WHERE declared_by IN (SELECT id FROM job WHERE chain @in(chains)) RETURNING id

-- name: rewound_products: products that only rewound chains produce, with a producer that has not started since
SELECT DISTINCT artifact.name FROM product JOIN artifact ON artifact.id = product.artifact
JOIN job ON job.chain = product.chain AND job.finished_at IS NULL AND job.started_at IS NULL
WHERE product.is_rewound = 1
  AND NOT EXISTS (SELECT 1 FROM product AS other WHERE other.artifact = product.artifact AND other.is_rewound = 0)

-- name: ended_with_workspace: the jobs among these that have ended and requested a workspace
SELECT job.id FROM job JOIN spec ON spec.id = job.spec
WHERE job.id @in(ids) AND job.finished_at IS NOT NULL AND spec.workspace IS NOT NULL

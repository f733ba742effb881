-- name: active_vertices: in queue order
SELECT id, chain, status FROM job WHERE finished_at IS NULL
ORDER BY precedence, position, created_at, id LIMIT :limit

-- name: blocked_vertices: the newest first, without those that were tried again
SELECT id, chain, status FROM job
WHERE status = 'BLOCKED_BY_DEPENDENCY' AND finished_at IS NOT NULL AND retried_as IS NULL
ORDER BY id DESC LIMIT :limit

-- name: ended_vertices: the newest first
SELECT id, chain, status FROM job WHERE finished_at IS NOT NULL ORDER BY id DESC LIMIT :limit

-- name: edges_out: what each job comes after, and the last job of that chain
SELECT edge.job, edge.predecessor, edge.policy, last.id, last.chain, last.status
FROM edge
LEFT JOIN job AS last ON last.id = (SELECT max(member.id) FROM job AS member WHERE member.chain = edge.chain)
WHERE edge.job @in(ids) ORDER BY edge.job, edge.sequence

-- name: last_makers: of each artifact the last jobs of the chains that make it
SELECT product.artifact, last.id, last.chain, last.status
FROM product
JOIN job AS last ON last.id = (SELECT max(member.id) FROM job AS member WHERE member.chain = product.chain)
WHERE product.artifact @in(artifacts) ORDER BY product.artifact, product.chain

-- name: consumers: the jobs that come after these chains or need what they make
SELECT job.id, job.chain, job.status FROM edge JOIN job ON job.id = edge.job
WHERE edge.chain @in(chains) AND job.status @in(statuses) AND (job.retried_as IS NULL OR :with_retried = 1)
UNION
SELECT job.id, job.chain, job.status
FROM product JOIN need ON need.artifact = product.artifact AND need.chain <> product.chain
JOIN job ON job.chain = need.chain
WHERE product.chain @in(chains) AND job.status @in(statuses) AND (job.retried_as IS NULL OR :with_retried = 1)
ORDER BY 1 LIMIT :limit

-- name: captions
SELECT job.id, job.reason, spec.command, spec.name, spec.type, spec.target
FROM job JOIN spec ON spec.id = job.spec WHERE job.id @in(ids)

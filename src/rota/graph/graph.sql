-- name: active_vertices: in queue order
SELECT id, chain, status FROM job WHERE finished_at IS NULL
ORDER BY precedence, position, created_at, id LIMIT :limit

-- name: blocked_vertices: newest first, without retried jobs
SELECT id, chain, status FROM job
WHERE status = 'BLOCKED_BY_DEPENDENCY' AND finished_at IS NOT NULL AND retried_as IS NULL
ORDER BY id DESC LIMIT :limit

-- name: ended_vertices: newest first
SELECT id, chain, status FROM job WHERE finished_at IS NOT NULL ORDER BY id DESC LIMIT :limit

-- name: predecessor_edges: the predecessors of each job, with the last job of each predecessor's chain
SELECT edge.job, edge.predecessor, edge.policy, last.id, last.chain, last.status
FROM edge
LEFT JOIN job AS last ON last.id = (SELECT max(member.id) FROM job AS member WHERE member.chain = edge.chain)
WHERE edge.job @in(ids) ORDER BY edge.job, edge.sequence

-- name: last_producers: the last jobs of the chains that produce each artifact
SELECT product.artifact, last.id, last.chain, last.status
FROM product
JOIN job AS last ON last.id = (SELECT max(member.id) FROM job AS member WHERE member.chain = product.chain)
WHERE product.artifact @in(artifacts) ORDER BY product.artifact, product.chain

-- name: consumers: jobs that depend on these chains or need their products
SELECT job.id, job.chain, job.status FROM edge JOIN job ON job.id = edge.job
WHERE edge.chain @in(chains) AND NOT (job.status @in(hidden)) AND (job.retried_as IS NULL OR :with_retried = 1)
UNION
SELECT job.id, job.chain, job.status
FROM product JOIN need ON need.artifact = product.artifact AND need.chain <> product.chain
JOIN job ON job.chain = need.chain
WHERE product.chain @in(chains) AND NOT (job.status @in(hidden)) AND (job.retried_as IS NULL OR :with_retried = 1)
ORDER BY 1 LIMIT :limit

-- name: vertex_details
SELECT job.id, job.reason, spec.command, spec.name, spec.type, spec.target
FROM job LEFT JOIN spec ON spec.id = job.spec WHERE job.id @in(ids)

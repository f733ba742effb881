-- name: find_artifact
SELECT id FROM artifact WHERE scope = :scope AND name = :name

-- name: add_artifact
INSERT INTO artifact (id, scope, name) SELECT coalesce(max(id), 0) + 1, :scope, :name FROM artifact RETURNING id

-- name: add_need
INSERT INTO need (chain, sequence, artifact, missing_producer) VALUES (:chain, :sequence, :artifact, :missing_producer)

-- name: add_product: what was said to be made is not unsaid by what only follows from a name
INSERT INTO product (chain, artifact, sequence) VALUES (:chain, :artifact, :sequence)
ON CONFLICT (chain, artifact) DO UPDATE SET sequence = coalesce(product.sequence, excluded.sequence)

-- name: add_pin
INSERT INTO pin (chain, repository, branch, oid) VALUES (:chain, :repository, :branch, :oid)

-- name: needs_of
SELECT need.chain, artifact.id, artifact.scope, artifact.name, artifact.put_at, need.missing_producer
FROM need JOIN artifact ON artifact.id = need.artifact WHERE need.chain @in(chains) ORDER BY need.chain, need.sequence

-- name: producers_of: of each artifact the chains that make it, and what each has come to; dropped is not done
SELECT product.artifact, product.chain, product.is_rewound,
       (SELECT CASE WHEN last.dropped = 1 THEN 'CANCELLED' ELSE last.status END FROM job AS last WHERE last.chain = product.chain ORDER BY last.id DESC LIMIT 1)
FROM product WHERE product.artifact @in(artifacts)

-- name: pins_of
SELECT chain, repository, branch, oid FROM pin WHERE chain @in(chains)

-- name: named_by: as the jobs said
SELECT need.chain, 'need' AS what, need.sequence, artifact.name, NULL AS oid
FROM need JOIN artifact ON artifact.id = need.artifact WHERE need.chain @in(chains)
UNION ALL
SELECT product.chain, 'product', product.sequence, artifact.name, NULL
FROM product JOIN artifact ON artifact.id = product.artifact
WHERE product.chain @in(chains) AND product.sequence IS NOT NULL
UNION ALL
SELECT chain, 'pin', 0, branch, oid FROM pin WHERE chain @in(chains)

-- name: chain_of
SELECT chain FROM job WHERE id = :job

-- name: watched_artifacts: what the jobs that wait need
SELECT id, scope, name FROM artifact WHERE id IN (
    SELECT need.artifact FROM job JOIN need ON need.chain = job.chain
    WHERE job.asks = 1 AND job.finished_at IS NULL AND job.started_at IS NULL)

-- name: artifacts_in: the same of one repository
SELECT id, name FROM artifact WHERE scope = :scope AND EXISTS (
    SELECT 1 FROM need JOIN job ON job.chain = need.chain WHERE need.artifact = artifact.id
      AND job.asks = 1 AND job.finished_at IS NULL AND job.started_at IS NULL)

-- name: numbers_named
SELECT id FROM artifact WHERE name @in(names)

-- name: made_by_jobs
SELECT job.id, artifact.scope, artifact.name FROM job JOIN product ON product.chain = job.chain
JOIN artifact ON artifact.id = product.artifact WHERE job.id @in(ids)

-- name: watched_heads
SELECT pin.repository, pin.branch FROM job JOIN pin ON pin.chain = job.chain
WHERE job.asks = 1 AND job.finished_at IS NULL AND job.started_at IS NULL

-- name: stir_needing
UPDATE job SET stirred = 1
WHERE stirred = 0 AND asks = 1 AND finished_at IS NULL AND started_at IS NULL
  AND chain IN (SELECT chain FROM need WHERE artifact @in(artifacts))

-- name: stir_pinned
UPDATE job SET stirred = 1
WHERE stirred = 0 AND asks = 1 AND finished_at IS NULL AND started_at IS NULL
  AND chain IN (SELECT chain FROM pin WHERE repository = :repository AND branch = :branch)

-- name: made_by
SELECT artifact.id, artifact.scope, artifact.name
FROM product JOIN artifact ON artifact.id = product.artifact WHERE product.chain = :chain

-- name: made_anew: the chain has ended again, so what is there is of now
UPDATE product SET is_rewound = 0 WHERE chain = :chain AND is_rewound = 1

-- name: put
UPDATE artifact SET payload = :payload, put_at = :now, put_by = :job WHERE id = :artifact

-- name: take_back_put: what a job has put does not outlast its failure
UPDATE artifact SET payload = NULL, put_at = NULL, put_by = NULL WHERE put_by = :job RETURNING id

-- name: list_put: without what came with it, which may be much
SELECT scope, name, NULL, put_at, put_by FROM artifact WHERE put_at IS NOT NULL AND (name, scope) > (:name, :scope)
ORDER BY name, scope LIMIT :limit

-- name: put_as
SELECT scope, name, payload, put_at, put_by FROM artifact WHERE put_at IS NOT NULL AND id = :artifact

-- name: artifacts_of_run
SELECT artifacts FROM run WHERE id = :run

-- name: set_artifacts_of_run
UPDATE run SET artifacts = :artifacts WHERE id = :run

-- name: needed: which of these a job that waits needs
SELECT scope, name FROM artifact WHERE name @in(names) AND EXISTS (
    SELECT 1 FROM need JOIN job ON job.chain = need.chain WHERE need.artifact = artifact.id
      AND job.asks = 1 AND job.finished_at IS NULL AND job.started_at IS NULL)

-- name: makers_of: the chains that make one of these and have not ended
SELECT artifact.scope, artifact.name, product.chain FROM artifact JOIN product ON product.artifact = artifact.id
JOIN job ON job.chain = product.chain
WHERE artifact.name @in(names) AND job.finished_at IS NULL

-- name: open_edges_of
SELECT job.chain, edge.chain FROM edge JOIN job ON job.id = edge.job WHERE edge.job @in(ids) AND edge.state = 'open'

-- name: find_artifact
SELECT id FROM artifact WHERE scope = :scope AND name = :name

-- name: add_artifact
INSERT INTO artifact (id, scope, name) SELECT coalesce(max(id), 0) + 1, :scope, :name FROM artifact RETURNING id

-- name: add_need
INSERT INTO need (chain, sequence, artifact, missing_producer) VALUES (:chain, :sequence, :artifact, :missing_producer)

-- name: add_product: a product that follows from a name does not overwrite a declared one
INSERT INTO product (chain, artifact, sequence) VALUES (:chain, :artifact, :sequence)
ON CONFLICT (chain, artifact) DO UPDATE SET sequence = coalesce(product.sequence, excluded.sequence)

-- name: add_pin
INSERT INTO pin (chain, repository, branch, oid) VALUES (:chain, :repository, :branch, :oid)

-- name: needs_of
SELECT need.chain, artifact.id, artifact.scope, artifact.name, artifact.declared_at, need.missing_producer
FROM need JOIN artifact ON artifact.id = need.artifact WHERE need.chain @in(chains) ORDER BY need.chain, need.sequence

-- name: producer_states: producers of each artifact, with the status of their chains; dropped counts as cancelled
SELECT product.artifact, product.chain, product.is_rewound,
       (SELECT CASE WHEN last.dropped = 1 THEN 'CANCELLED' ELSE last.status END
        FROM job AS last WHERE last.chain = product.chain ORDER BY last.id DESC LIMIT 1)
FROM product WHERE product.artifact @in(artifacts)

-- name: pins_of
SELECT chain, repository, branch, oid FROM pin WHERE chain @in(chains)

-- name: artifacts_of_chains: as declared by the jobs
SELECT need.chain, 'need' AS role, need.sequence, artifact.name, NULL AS note
FROM need JOIN artifact ON artifact.id = need.artifact WHERE need.chain @in(chains)
UNION ALL
SELECT product.chain, 'product', product.sequence, artifact.name, product.check_state
FROM product JOIN artifact ON artifact.id = product.artifact
WHERE product.chain @in(chains) AND product.sequence IS NOT NULL
UNION ALL
SELECT chain, 'pin', 0, branch, oid FROM pin WHERE chain @in(chains)

-- name: chain_of
SELECT chain FROM job WHERE id = :job

-- name: watched_artifacts: artifacts that waiting jobs need
SELECT id, scope, name FROM artifact WHERE id IN (
    SELECT need.artifact FROM job JOIN need ON need.chain = job.chain
    WHERE job.needs_facts = 1 AND job.finished_at IS NULL AND job.started_at IS NULL)

-- name: needed_artifacts_in: artifacts of one repository that waiting jobs need
SELECT id, name FROM artifact WHERE scope = :scope AND EXISTS (
    SELECT 1 FROM need JOIN job ON job.chain = need.chain WHERE need.artifact = artifact.id
      AND job.needs_facts = 1 AND job.finished_at IS NULL AND job.started_at IS NULL)

-- name: artifact_ids_by_name
SELECT id FROM artifact WHERE name @in(names)

-- name: products_of_jobs
SELECT job.id, artifact.scope, artifact.name FROM job JOIN product ON product.chain = job.chain
JOIN artifact ON artifact.id = product.artifact WHERE job.id @in(ids)

-- name: watched_heads
SELECT pin.repository, pin.branch FROM job JOIN pin ON pin.chain = job.chain
WHERE job.needs_facts = 1 AND job.finished_at IS NULL AND job.started_at IS NULL

-- name: wake_needing
UPDATE job SET dirty = 1
WHERE dirty = 0 AND needs_facts = 1 AND finished_at IS NULL AND started_at IS NULL
  AND chain IN (SELECT chain FROM need WHERE artifact @in(artifacts))

-- name: wake_pinned
UPDATE job SET dirty = 1
WHERE dirty = 0 AND needs_facts = 1 AND finished_at IS NULL AND started_at IS NULL
  AND chain IN (SELECT chain FROM pin WHERE repository = :repository AND branch = :branch)

-- name: products_of
SELECT artifact.id, artifact.scope, artifact.name
FROM product JOIN artifact ON artifact.id = product.artifact WHERE product.chain = :chain

-- name: clear_rewound_products: the chain has ended again, so the existing artifacts are current
UPDATE product SET is_rewound = 0 WHERE chain = :chain AND is_rewound = 1

-- name: mark_products_unchecked: the chain has succeeded; its declared products are still to be checked
UPDATE product SET check_state = 'unchecked' WHERE chain = :chain AND sequence IS NOT NULL

-- name: unchecked_chains: each with its last job and the status of that job
SELECT product.chain, job.id, job.status FROM product JOIN job ON job.id = (
    SELECT max(member.id) FROM job AS member WHERE member.chain = product.chain)
WHERE product.check_state = 'unchecked' GROUP BY product.chain, job.id, job.status

-- name: unchecked_products
SELECT artifact.id, artifact.scope, artifact.name, artifact.declared_at FROM product
JOIN artifact ON artifact.id = product.artifact
WHERE product.chain = :chain AND product.check_state = 'unchecked' ORDER BY product.sequence

-- name: clear_product_checks
UPDATE product SET check_state = NULL WHERE chain = :chain AND check_state = 'unchecked'

-- name: mark_products_missing
UPDATE product SET check_state = 'missing' WHERE chain = :chain AND artifact @in(artifacts)

-- name: put_artifact
UPDATE artifact SET payload = :payload, declared_at = :now, declared_by = :job WHERE id = :artifact

-- name: withdraw_artifacts_of_job: artifacts that a job has put do not outlast its failure
UPDATE artifact SET payload = NULL, declared_at = NULL, declared_by = NULL WHERE declared_by = :job RETURNING id

-- name: list_put_artifacts: without payloads, which can be large
SELECT scope, name, NULL, declared_at, declared_by FROM artifact WHERE declared_at IS NOT NULL AND (name, scope) > (:name, :scope)
ORDER BY name, scope LIMIT :limit

-- name: find_put_artifact
SELECT scope, name, payload, declared_at, declared_by FROM artifact WHERE declared_at IS NOT NULL AND id = :artifact

-- name: artifacts_of_run
SELECT artifacts FROM run WHERE id = :run

-- name: set_artifacts_of_run
UPDATE run SET artifacts = :artifacts WHERE id = :run

-- name: needed_artifacts: artifacts among these that a waiting job needs
SELECT scope, name FROM artifact WHERE name @in(names) AND EXISTS (
    SELECT 1 FROM need JOIN job ON job.chain = need.chain WHERE need.artifact = artifact.id
      AND job.needs_facts = 1 AND job.finished_at IS NULL AND job.started_at IS NULL)

-- name: active_producers: chains that produce one of these and have not ended
SELECT artifact.scope, artifact.name, product.chain FROM artifact JOIN product ON product.artifact = artifact.id
JOIN job ON job.chain = product.chain
WHERE artifact.name @in(names) AND job.finished_at IS NULL

-- name: open_edges_of
SELECT job.chain, edge.chain FROM edge JOIN job ON job.id = edge.job WHERE edge.job @in(ids) AND edge.state = 'open'

-- name: next_job
SELECT next FROM sequence WHERE noun = 'job' UNION ALL SELECT max(id) + 1 FROM job

-- name: next_run
SELECT next FROM sequence WHERE noun = 'run' UNION ALL SELECT max(id) + 1 FROM run
UNION ALL SELECT max(run) + 1 FROM ahead

-- name: next_slot
SELECT next FROM sequence WHERE noun = 'slot' UNION ALL SELECT max(id) + 1 FROM slot

-- name: next_event
SELECT next FROM sequence WHERE noun = 'event' UNION ALL SELECT max(seq) + 1 FROM event

-- name: next_group
SELECT next FROM sequence WHERE noun = 'group' UNION ALL SELECT max(id) + 1 FROM job_group

-- name: next_template
SELECT next FROM sequence WHERE noun = 'template' UNION ALL SELECT max(id) + 1 FROM template

-- name: next_schedule
SELECT next FROM sequence WHERE noun = 'schedule' UNION ALL SELECT max(id) + 1 FROM schedule

-- name: next_webhook
SELECT next FROM sequence WHERE noun = 'webhook' UNION ALL SELECT max(id) + 1 FROM webhook

-- name: next_delivery
SELECT next FROM sequence WHERE noun = 'delivery' UNION ALL SELECT max(id) + 1 FROM delivery

-- name: spend
UPDATE sequence SET next = :next WHERE noun = :noun AND next < :next

-- name: find_surroundings
SELECT id FROM surroundings WHERE digest = :digest

-- name: add_surroundings
INSERT INTO surroundings (id, digest, variables)
SELECT coalesce(max(id), 0) + 1, :digest, :variables FROM surroundings RETURNING id

-- name: find_lane
SELECT id FROM lane WHERE draws = :draws AND type = :type AND flow = :flow AND target = :target AND asks = :asks

-- name: add_lane
INSERT INTO lane (id, draws, type, flow, target, asks)
SELECT coalesce(max(id), 0) + 1, :draws, :type, :flow, :target, :asks FROM lane RETURNING id

-- name: add_spec
INSERT INTO spec (id, command, cwd, surroundings, trace, name, type, params, flow, phase, target, pools, timeout, idle_timeout, skip_if,
                  retry, repository, workspace, template, recipe, webhook)
VALUES (:id, :command, :cwd, :surroundings, :trace, :name, :type, :params, :flow, :phase, :target, :pools, :timeout, :idle_timeout, :skip_if,
        :retry, :repository, :workspace, :template, :recipe, :webhook)

-- name: add_job
INSERT INTO job (id, spec, chain, status, precedence, position, created_at, queued_at, not_before, unmet, job_group,
                 sequence, schedule, unique_key, lane, asks, ready, ready_at, stirred)
VALUES (:id, :id, :id, 'QUEUED', :precedence, :position, :now, :now, :not_before, :unmet, :group,
        :sequence, :schedule, :unique, :lane, :asks, :ready, :ready_at, :stirred)

-- name: add_edge
INSERT INTO edge (job, sequence, predecessor, chain, policy, state, implied)
VALUES (:job, :sequence, :predecessor, :chain, :policy, :state, :implied)

-- name: add_lock
INSERT INTO lock (job, key, mode, state, precedence, position, created_at)
VALUES (:job, :key, :mode, 'idle', :precedence, :position, :now)

-- name: chains: the chain of each job and the status of the chain's last job
SELECT named.id, last.chain, last.id, last.status, last.unique_key, last.job_group, last.dropped
FROM job AS named
JOIN job AS last ON last.id = (SELECT max(member.id) FROM job AS member WHERE member.chain = named.chain)
WHERE named.id @in(ids)

-- name: active_of_keys: who has each of these unique keys
SELECT unique_key, id, chain FROM job WHERE unique_key @in(keys) AND unique_key IS NOT NULL AND finished_at IS NULL

-- name: find_answer
SELECT digest, status, answer FROM idempotency WHERE key = :key

-- name: add_answer
INSERT INTO idempotency (key, digest, status, answer, at) VALUES (:key, :digest, :status, :answer, :at)

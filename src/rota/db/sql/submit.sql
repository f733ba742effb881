-- name: next_job
SELECT next FROM sequence WHERE entity = 'job' UNION ALL SELECT max(id) + 1 FROM job

-- name: next_run
SELECT next FROM sequence WHERE entity = 'run' UNION ALL SELECT max(id) + 1 FROM run
UNION ALL SELECT max(run) + 1 FROM prefetch

-- name: next_reservation
SELECT next FROM sequence WHERE entity = 'reservation' UNION ALL SELECT max(id) + 1 FROM reservation

-- name: next_event
SELECT next FROM sequence WHERE entity = 'event' UNION ALL SELECT max(seq) + 1 FROM event

-- name: next_group
SELECT next FROM sequence WHERE entity = 'group' UNION ALL SELECT max(id) + 1 FROM job_group

-- name: next_template
SELECT next FROM sequence WHERE entity = 'template' UNION ALL SELECT max(id) + 1 FROM template

-- name: next_schedule
SELECT next FROM sequence WHERE entity = 'schedule' UNION ALL SELECT max(id) + 1 FROM schedule

-- name: next_webhook
SELECT next FROM sequence WHERE entity = 'webhook' UNION ALL SELECT max(id) + 1 FROM webhook

-- name: next_delivery
SELECT next FROM sequence WHERE entity = 'delivery' UNION ALL SELECT max(id) + 1 FROM delivery

-- name: advance_sequence
UPDATE sequence SET next = :next WHERE entity = :entity AND next < :next

-- name: find_environment
SELECT id FROM environment WHERE digest = :digest

-- name: add_environment
INSERT INTO environment (id, digest, variables)
SELECT coalesce(max(id), 0) + 1, :digest, :variables FROM environment RETURNING id

-- name: find_lane
SELECT id FROM lane
WHERE demand = :demand AND type = :type AND flow = :flow AND target = :target AND needs_facts = :needs_facts

-- name: add_lane
INSERT INTO lane (id, demand, type, flow, target, needs_facts)
SELECT coalesce(max(id), 0) + 1, :demand, :type, :flow, :target, :needs_facts FROM lane RETURNING id

-- name: add_spec
INSERT INTO spec (id, command, cwd, environment, trace, name, type, params, flow, phase, target, pools, timeout,
                  idle_timeout, skip_if, retry, repository, workspace, template, template_snapshot, webhook, sources)
VALUES (:id, :command, :cwd, :environment, :trace, :name, :type, :params, :flow, :phase, :target, :pools, :timeout,
        :idle_timeout, :skip_if, :retry, :repository, :workspace, :template, :template_snapshot, :webhook, :sources)

-- name: add_job
INSERT INTO job (id, spec, chain, status, precedence, position, created_at, queued_at, not_before, delay, unmet_edges,
                 job_group, sequence, schedule, unique_key, lane, needs_facts, ready, ready_at, dirty)
VALUES (:id, :id, :id, 'QUEUED', :precedence, :position, :now, :now, :not_before, :delay, :unmet_edges,
        :group, :sequence, :schedule, :unique, :lane, :needs_facts, :ready, :ready_at, :dirty)

-- name: add_edge
INSERT INTO edge (job, sequence, predecessor, chain, policy, state, implied)
VALUES (:job, :sequence, :predecessor, :chain, :policy, :state, :implied)

-- name: add_lock
INSERT INTO lock (job, key, mode, state, precedence, position, created_at)
VALUES (:job, :key, :mode, 'idle', :precedence, :position, :now)

-- name: chain_states: the chain of each job, and the last job of that chain
SELECT named.id, last.chain, last.id, last.status, last.unique_key, last.job_group, last.dropped
FROM job AS named
JOIN job AS last ON last.id = (SELECT max(member.id) FROM job AS member WHERE member.chain = named.chain)
WHERE named.id @in(ids)

-- name: ended_jobs
SELECT id, status, reason FROM job WHERE id @in(ids) AND finished_at IS NOT NULL ORDER BY id

-- name: key_holders: the active job that holds each of these unique keys
SELECT unique_key, id, chain FROM job WHERE unique_key @in(keys) AND unique_key IS NOT NULL AND finished_at IS NULL

-- name: find_response
SELECT digest, status, response FROM idempotency WHERE key = :key

-- name: add_response
INSERT INTO idempotency (key, digest, status, response, at) VALUES (:key, :digest, :status, :response, :at)

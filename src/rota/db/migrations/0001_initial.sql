-- Times are microseconds since the epoch, UTC. Durations are microseconds. Flags are 0 or 1.
-- A word that starts with `@` differs between the databases; each dialect replaces it (`@refuse`: db/statements.py).

CREATE TABLE sequence (  -- lower bound of the next id of each entity: no id is reused after its row is removed
    entity TEXT PRIMARY KEY,
    next @int NOT NULL
) @strict;
INSERT INTO sequence (entity, next) VALUES
    ('job', 1), ('run', 1), ('reservation', 1), ('event', 1), ('group', 1), ('template', 1), ('schedule', 1),
    ('webhook', 1), ('delivery', 1);

CREATE TABLE environment (         -- environment variables, one row for each distinct content
    id @int PRIMARY KEY,
    digest TEXT NOT NULL UNIQUE,
    variables TEXT NOT NULL
) @strict;

CREATE TABLE lane (                -- one row for each distinct pool demand, type, flow, target and need for facts
    id @int PRIMARY KEY,
    demand TEXT NOT NULL,
    type TEXT NOT NULL DEFAULT '', -- selects the breaker of its jobs; the demand may name the pool of another type
    flow TEXT NOT NULL DEFAULT '',
    target TEXT NOT NULL DEFAULT '',
    needs_facts @int NOT NULL DEFAULT 0,   -- its jobs need artifacts or have a pinned head: checked before a start
    ready_count @int NOT NULL DEFAULT 0 CHECK (ready_count >= 0),
    precedence @int,               -- rank of its first ready job
    position @int,
    created_at @int,
    job @int,
    UNIQUE (demand, type, flow, target, needs_facts),
    CHECK ((ready_count = 0) = (job IS NULL))
) @strict;
CREATE INDEX lane_order ON lane (precedence, position, created_at, job) WHERE ready_count > 0;

CREATE TABLE spec (                -- what a job runs, and how; frozen once one of its jobs is dispatched (INV-001)
    id @int PRIMARY KEY,
    command TEXT NOT NULL,
    cwd TEXT NOT NULL,
    environment @int NOT NULL,
    trace TEXT,                    -- trace context as variables; kept apart from the environment, which jobs share
    name TEXT,
    type TEXT,
    params TEXT NOT NULL,
    flow TEXT,
    phase TEXT,
    target TEXT,
    pools TEXT NOT NULL,
    timeout @int,
    idle_timeout @int,
    skip_if TEXT,
    retry TEXT,                    -- retry policy as of the submit; null: no automatic retry
    repository TEXT,               -- git common directory around cwd, if the job has artifacts or a pin of it
    workspace TEXT,                -- worktree and patches; null: the job uses neither
    template @int,                 -- source template, for the record only; never read when the job runs (INV-005)
    template_snapshot TEXT,        -- parts of the template that an edit of params needs; null: not made from a template
    webhook TEXT,                  -- URL that receives the ends of this job, in addition to the registered endpoints
    sources TEXT                   -- origin of each policy that the submit did not set itself
) @strict;
CREATE INDEX spec_workspace ON spec (id) WHERE workspace IS NOT NULL;
CREATE INDEX spec_template ON spec (template) WHERE template IS NOT NULL;

CREATE TABLE job (
    id @int PRIMARY KEY,
    spec @int NOT NULL,            -- id of the chain's first job, or of the edited job
    chain @int NOT NULL,
    retry_of @int,
    retried_as @int,               -- next job of the chain
    attempt @int NOT NULL DEFAULT 1,
    retries @int NOT NULL DEFAULT 0,       -- automatic retries that led to this job since the count was last reset
    status TEXT NOT NULL CHECK (   -- written out: SQLite builds a table for every IN, at every update
        status = 'QUEUED' OR status = 'DISPATCHED' OR status = 'RUNNING' OR status = 'COMPLETED'
        OR status = 'WAITING_ON_DEPS' OR status = 'WAITING_ON_LOCKS' OR status = 'FAILED'
        OR status = 'SKIPPED' OR status = 'CANCELLED' OR status = 'BLOCKED_BY_DEPENDENCY'),
    precedence @int NOT NULL,      -- negated priority: the queue order is ascending throughout (INV-004)
    position @int NOT NULL,
    created_at @int NOT NULL,
    queued_at @int,
    started_at @int,
    finished_at @int,
    not_before @int,
    delay @int,                    -- distance to `not_before` when it was set
    exit_code @int,
    reason TEXT,
    wait_kind TEXT CHECK (wait_kind = 'dependencies' OR wait_kind = 'pinned_head' OR wait_kind = 'locks'),
    waited_on TEXT NOT NULL DEFAULT '',
    unmet_edges @int NOT NULL DEFAULT 0 CHECK (unmet_edges >= 0),
    job_group @int,                -- its group and its place in the group; shared by the jobs of the chain
    sequence @int,
    dropped @int NOT NULL DEFAULT 0,       -- ended by the policy of its group because another member failed
    schedule @int,                 -- schedule that made the chain: for the record and for the overlap policy
    unique_key TEXT,               -- exclusive to the chain while the chain is active
    lane @int NOT NULL,
    needs_facts @int NOT NULL DEFAULT 0,   -- it needs artifacts or has a pinned head
    ready @int NOT NULL DEFAULT 0,         -- counted in its lane
    ready_at @int,                 -- when it last became ready
    dirty @int NOT NULL DEFAULT 0, -- to be evaluated: an event concerns it
    permanently_failed @int NOT NULL DEFAULT 0,
    dispatch_failures @int NOT NULL DEFAULT 0,
    last_failure TEXT,
    stop_requested TEXT,
    pid @int,
    pid_started @int,              -- field 22 of /proc/<pid>/stat: identifies the process together with the pid
    rewound_run @int,              -- latest run at the time of the last rewind: its files are moved aside
    -- Active is `finished_at IS NULL`; an active job waits if `started_at IS NULL`. The indexes rely on both.
    CHECK ((finished_at IS NULL) = (status = 'QUEUED' OR status = 'DISPATCHED' OR status = 'RUNNING'
                                    OR status = 'WAITING_ON_DEPS' OR status = 'WAITING_ON_LOCKS')),
    CHECK (finished_at IS NOT NULL OR (started_at IS NOT NULL) = (status = 'DISPATCHED' OR status = 'RUNNING')),
    CHECK ((wait_kind IS NOT NULL) = (status = 'WAITING_ON_DEPS' OR status = 'WAITING_ON_LOCKS')),
    CHECK (ready = 0 OR status = 'QUEUED'),
    CHECK ((job_group IS NULL) = (sequence IS NULL)),
    CHECK (dropped = 0 OR (job_group IS NOT NULL AND (status = 'CANCELLED' OR status = 'SKIPPED'))),
    CHECK (dirty = 0 OR (finished_at IS NULL AND started_at IS NULL))
) @strict;
CREATE INDEX job_chain ON job (chain, id);
CREATE UNIQUE INDEX job_one_active_in_chain ON job (chain) WHERE finished_at IS NULL;
CREATE UNIQUE INDEX job_one_active_of_key ON job (unique_key) WHERE unique_key IS NOT NULL AND finished_at IS NULL;
CREATE INDEX job_unretried ON job (id) WHERE status = 'FAILED' AND permanently_failed = 0 AND retried_as IS NULL;
CREATE INDEX job_unreadable ON job (id) WHERE    -- a status that this version does not know
    status <> 'QUEUED' AND status <> 'DISPATCHED' AND status <> 'RUNNING' AND status <> 'COMPLETED'
    AND status <> 'WAITING_ON_DEPS' AND status <> 'WAITING_ON_LOCKS' AND status <> 'FAILED'
    AND status <> 'SKIPPED' AND status <> 'CANCELLED' AND status <> 'BLOCKED_BY_DEPENDENCY';
CREATE INDEX job_lane ON job (lane, precedence, position, created_at, id) WHERE ready = 1;
CREATE INDEX job_dirty ON job (precedence, position, created_at, id) WHERE dirty = 1;
CREATE INDEX job_held ON job (not_before, lane) WHERE status = 'QUEUED' AND ready = 0;
CREATE INDEX job_waiting ON job (wait_kind, status) WHERE wait_kind IS NOT NULL;
CREATE INDEX job_needs_facts ON job (chain) WHERE needs_facts = 1 AND finished_at IS NULL AND started_at IS NULL;
CREATE INDEX job_active ON job (precedence, position, created_at, id) WHERE finished_at IS NULL;
CREATE INDEX job_ended ON job (status, id) WHERE finished_at IS NOT NULL;
CREATE INDEX job_member ON job (job_group, sequence, id) WHERE job_group IS NOT NULL;
CREATE INDEX job_ended_member ON job (job_group, finished_at, id)
    WHERE job_group IS NOT NULL AND finished_at IS NOT NULL;
CREATE INDEX job_scheduled ON job (schedule, id) WHERE schedule IS NOT NULL AND finished_at IS NULL;
CREATE INDEX job_active_member ON job (job_group, sequence) WHERE job_group IS NOT NULL AND finished_at IS NULL;

CREATE TABLE edge (
    job @int NOT NULL REFERENCES job (id),
    sequence @int NOT NULL,
    predecessor @int NOT NULL,
    chain @int NOT NULL,
    policy TEXT NOT NULL CHECK (policy = 'success' OR policy = 'finished' OR policy = 'failed'),
    state TEXT NOT NULL CHECK (state = 'open' OR state = 'met' OR state = 'unmeetable'),
    implied @int NOT NULL DEFAULT 0,       -- follows from the order of a sequential group; not part of the submit
    PRIMARY KEY (job, sequence)
) @strict;
CREATE INDEX edge_chain ON edge (chain, state, job);
CREATE INDEX edge_unmet ON edge (job, state, sequence) WHERE state <> 'met';
CREATE INDEX edge_unreadable ON edge (job) WHERE    -- a state that this version does not know
    state <> 'open' AND state <> 'met' AND state <> 'unmeetable';

-- Artifacts and pinned heads belong to the chain, by the id of its first job, as the spec does.

CREATE TABLE artifact (            -- every artifact that a job has named, one row for each scope
    id @int PRIMARY KEY,
    scope TEXT NOT NULL,           -- repository it belongs to; empty for an artifact of the home
    name TEXT NOT NULL,
    payload TEXT,                  -- content given when it was put
    declared_at @int,                   -- when it was declared to exist
    declared_by @int,                   -- job that declared it
    UNIQUE (name, scope)
) @strict;
CREATE INDEX artifact_scope ON artifact (scope) WHERE scope <> '';
CREATE INDEX artifact_declared_by ON artifact (declared_by) WHERE declared_by IS NOT NULL;

CREATE TABLE need (
    chain @int NOT NULL REFERENCES job (id),
    sequence @int NOT NULL,
    artifact @int NOT NULL REFERENCES artifact (id),
    missing_producer TEXT NOT NULL CHECK (missing_producer = 'block' OR missing_producer = 'wait'),
    PRIMARY KEY (chain, sequence)
) @strict;
CREATE INDEX need_artifact ON need (artifact, chain);

CREATE TABLE product (
    chain @int NOT NULL REFERENCES job (id),
    artifact @int NOT NULL REFERENCES artifact (id),
    sequence @int,                 -- place among the declared products; null: follows from the name
    is_rewound @int NOT NULL DEFAULT 0,    -- the existing artifact predates the rewind until the chain ends again
    check_state TEXT CHECK (check_state = 'unchecked' OR check_state = 'missing'), -- set when the chain succeeds
    PRIMARY KEY (chain, artifact)
) @strict;
CREATE INDEX product_artifact ON product (artifact, chain);
CREATE INDEX product_rewound ON product (artifact) WHERE is_rewound = 1;
CREATE INDEX product_unchecked ON product (chain) WHERE check_state = 'unchecked';

CREATE TABLE pin (
    chain @int PRIMARY KEY REFERENCES job (id),
    repository TEXT NOT NULL,
    branch TEXT NOT NULL,
    oid TEXT NOT NULL
) @strict;
CREATE INDEX pin_head ON pin (repository, branch);

CREATE TABLE lock (
    job @int NOT NULL,             -- or a reservation, as its negated id: each key has one queue for both
    key TEXT NOT NULL,
    mode TEXT NOT NULL CHECK (mode = 'exclusive' OR mode = 'shared'),
    state TEXT NOT NULL CHECK (state = 'idle' OR state = 'contending' OR state = 'held'),
    precedence @int NOT NULL,      -- copy of the job's rank, so that one index holds the queue of a key
    position @int NOT NULL,
    created_at @int NOT NULL,
    PRIMARY KEY (job, key)
) @strict;
CREATE INDEX lock_queue ON lock (key, precedence, position, created_at, job) WHERE state = 'contending';
CREATE INDEX lock_queue_exclusive ON lock (key, precedence, position, created_at, job)
    WHERE state = 'contending' AND mode = 'exclusive';
CREATE INDEX lock_held ON lock (key, mode) WHERE state = 'held';
CREATE UNIQUE INDEX lock_one_exclusive_holder ON lock (key) WHERE state = 'held' AND mode = 'exclusive';
CREATE INDEX lock_unreadable ON lock (job) WHERE    -- a state that this version does not know
    state <> 'idle' AND state <> 'contending' AND state <> 'held';

CREATE TABLE run (                 -- an audit row (INV-002)
    id @int PRIMARY KEY,
    job @int NOT NULL REFERENCES job (id),
    worker TEXT NOT NULL,
    status TEXT CHECK (status = 'COMPLETED' OR status = 'FAILED' OR status = 'SKIPPED' OR status = 'CANCELLED'),
    started_at @int NOT NULL,
    finished_at @int,
    exit_code @int,
    error TEXT,
    artifacts TEXT,                -- artifacts that the run has put
    -- Open is `finished_at IS NULL`. The queries and indexes rely on it, not on the status, which may be unknown.
    CHECK ((status IS NULL) = (finished_at IS NULL)),
    CHECK (status IS NOT NULL OR exit_code IS NULL),
    CHECK (exit_code IS NOT NULL OR status IS NULL OR status = 'FAILED')   -- null: the exit status is unknown
) @strict;
CREATE INDEX run_job ON run (job, id);
CREATE INDEX run_ended ON run (status, id) WHERE finished_at IS NOT NULL;
CREATE UNIQUE INDEX run_one_open_of_job ON run (job) WHERE finished_at IS NULL;
CREATE UNIQUE INDEX run_one_open_of_worker ON run (worker) WHERE finished_at IS NULL;   -- INV-003

CREATE TABLE prefetch (            -- queued jobs that the executor may start on its own, as these runs
    run @int PRIMARY KEY,
    job @int NOT NULL UNIQUE REFERENCES job (id),
    offered_at @int NOT NULL
) @strict;

-- The code checks these rules before it writes (`edit` in kernel/job.py, `amend` in kernel/run.py); the triggers below
-- enforce them for every writer.
@refuse spec_command UPDATE OF command ON spec WHEN NEW.command <> OLD.command AND EXISTS (
    SELECT 1 FROM job AS first JOIN job ON job.chain = first.chain AND job.spec = OLD.id
    WHERE first.id = OLD.id AND (job.started_at IS NOT NULL OR EXISTS (SELECT 1 FROM run WHERE run.job = job.id)))
MESSAGE 'Cannot modify command after dispatch';
@refuse spec_params UPDATE OF params ON spec WHEN NEW.params <> OLD.params AND EXISTS (
    SELECT 1 FROM job AS first JOIN job ON job.chain = first.chain AND job.spec = OLD.id
    WHERE first.id = OLD.id AND (job.started_at IS NOT NULL OR EXISTS (SELECT 1 FROM run WHERE run.job = job.id)))
MESSAGE 'Cannot modify params after dispatch';
@refuse job_spec UPDATE OF spec ON job WHEN NEW.spec <> OLD.spec AND (
    OLD.started_at IS NOT NULL OR EXISTS (SELECT 1 FROM run WHERE run.job = OLD.id) AND NOT EXISTS (
        SELECT 1 FROM spec AS old_spec
        JOIN spec AS new_spec ON new_spec.command = old_spec.command AND new_spec.params = old_spec.params
        WHERE old_spec.id = OLD.spec AND new_spec.id = NEW.spec))
MESSAGE 'Cannot modify params after dispatch';
@refuse job_chain UPDATE OF chain ON job WHEN NEW.chain <> OLD.chain MESSAGE 'Cannot modify immutable fields: chain';
@refuse run_status UPDATE OF status ON run WHEN OLD.finished_at IS NOT NULL
AND coalesce(NEW.status, '') <> coalesce(OLD.status, '')
MESSAGE 'Cannot modify immutable fields: status';
@refuse run_id UPDATE OF id ON run WHEN NEW.id <> OLD.id MESSAGE 'Cannot modify immutable fields: id';
@refuse run_job UPDATE OF job ON run WHEN NEW.job <> OLD.job MESSAGE 'Cannot modify immutable fields: job';
@refuse run_worker UPDATE OF worker ON run WHEN NEW.worker <> OLD.worker
MESSAGE 'Cannot modify immutable fields: worker';
@refuse run_started_at UPDATE OF started_at ON run WHEN NEW.started_at <> OLD.started_at
MESSAGE 'Cannot modify immutable fields: started_at';

CREATE TABLE reservation (         -- the record of a direct execution, which is not a job
    id @int PRIMARY KEY,           -- in order of arrival
    state TEXT NOT NULL CHECK (state = 'waiting' OR state = 'starting' OR state = 'running' OR state = 'ended'),
    name TEXT,
    command TEXT,                  -- null where the client does the work itself
    cwd TEXT,
    environment @int,
    trace TEXT,
    type TEXT NOT NULL DEFAULT '',
    flow TEXT NOT NULL DEFAULT '',
    target TEXT NOT NULL DEFAULT '',
    demand TEXT NOT NULL,
    timeout @int,
    idle_timeout @int,
    has_client @int NOT NULL,      -- it lasts only as long as its client's connection
    actor TEXT,
    created_at @int NOT NULL,
    started_at @int,
    finished_at @int,
    worker TEXT,
    run @int UNIQUE,               -- id that the executor knows it by; no row of `run` has it
    pid @int,
    pid_started @int,
    stop_requested TEXT,
    status TEXT CHECK (status = 'COMPLETED' OR status = 'FAILED' OR status = 'CANCELLED'),
    exit_code @int,
    reason TEXT,
    CHECK ((state = 'ended') = (finished_at IS NOT NULL) AND (state = 'ended') = (status IS NOT NULL)),
    CHECK ((state = 'starting' OR state = 'running') = (worker IS NOT NULL AND finished_at IS NULL))
) @strict;
CREATE INDEX reservation_open ON reservation (id) WHERE finished_at IS NULL;
CREATE INDEX reservation_ended ON reservation (finished_at) WHERE finished_at IS NOT NULL;
CREATE INDEX reservation_environment ON reservation (environment) WHERE environment IS NOT NULL;
CREATE UNIQUE INDEX reservation_one_of_worker ON reservation (worker)
    WHERE worker IS NOT NULL AND finished_at IS NULL;   -- INV-003

CREATE TABLE job_group (           -- its status follows from the chains of its members (INV-006)
    id @int PRIMARY KEY,
    name TEXT,
    mode TEXT NOT NULL CHECK (mode = 'sequential' OR mode = 'parallel'),
    on_failure TEXT NOT NULL,      -- name of its failure policy
    actor TEXT,
    created_at @int NOT NULL,
    closed_at @int,                -- an open group waits for further members; a closed one ends with its last member
    cancelled_at @int,             -- when the whole group was cancelled
    finished_at @int,              -- when it was closed and its last member had ended
    removed TEXT NOT NULL DEFAULT '{}',    -- number of its members that were removed from the store, by status
    CHECK (finished_at IS NULL OR closed_at IS NOT NULL)
) @strict;
CREATE INDEX job_group_open ON job_group (id) WHERE finished_at IS NULL;
CREATE INDEX job_group_name ON job_group (name, id) WHERE name IS NOT NULL;
CREATE INDEX job_group_finished ON job_group (finished_at) WHERE finished_at IS NOT NULL;

@refuse group_finished UPDATE OF finished_at ON job_group WHEN NEW.finished_at IS NOT NULL AND EXISTS (
    SELECT 1 FROM job WHERE job.job_group = NEW.id AND job.finished_at IS NULL)
MESSAGE 'Cannot finish a group while a member is active';

CREATE TABLE template (
    id @int PRIMARY KEY,
    name TEXT NOT NULL,
    body TEXT NOT NULL,            -- job definition
    created_at @int NOT NULL,
    changed_at @int NOT NULL,
    archived_at @int
) @strict;
CREATE UNIQUE INDEX template_name ON template (name) WHERE archived_at IS NULL;

CREATE TABLE schedule (
    id @int PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    cron TEXT NOT NULL,
    zone TEXT NOT NULL,
    catch_up TEXT NOT NULL CHECK (catch_up = 'latest' OR catch_up = 'none' OR catch_up = 'all'),
    overlap TEXT NOT NULL CHECK (overlap = 'allow' OR overlap = 'skip' OR overlap = 'queue_one'),
    body TEXT NOT NULL,            -- job definition
    environment @int,              -- environment of the client that made it; null: the scheduler's own
    is_enabled @int NOT NULL,
    since @int NOT NULL,           -- earlier times do not fire
    next_at @int,                  -- null while it is disabled or has no further time
    created_at @int NOT NULL,
    changed_at @int NOT NULL,
    epoch @int NOT NULL DEFAULT 0  -- incremented when a wrong clock is corrected, so that times can fire again
) @strict;
CREATE INDEX schedule_due ON schedule (next_at) WHERE next_at IS NOT NULL;
CREATE INDEX schedule_environment ON schedule (environment) WHERE environment IS NOT NULL;

CREATE TABLE fire (                -- a time of a schedule and its outcome: one row for each time, whatever crashes
    schedule @int NOT NULL,
    epoch @int NOT NULL,                   -- epoch of the schedule when the time was recorded
    at @int NOT NULL,
    state TEXT NOT NULL CHECK (state = 'fired' OR state = 'missed' OR state = 'skipped' OR state = 'failed'),
    job @int,
    recorded_at @int NOT NULL,
    reason TEXT,
    count @int NOT NULL DEFAULT 1,         -- number of times missed together; `at` is the last of them
    is_manual @int NOT NULL DEFAULT 0,     -- requested by a client instead of the clock
    PRIMARY KEY (schedule, epoch, at)
) @strict;
CREATE INDEX fire_recorded ON fire (recorded_at, state);

CREATE TABLE webhook (             -- an endpoint that receives the events it subscribed to
    id @int PRIMARY KEY,
    url TEXT NOT NULL,
    events TEXT NOT NULL,
    secret TEXT NOT NULL,
    old_secret TEXT,               -- also signs, until `old_secret_until`
    old_secret_until @int,
    old_secret_duration @int,      -- distance to `old_secret_until` when it was set
    created_at @int NOT NULL,
    disabled_at @int,
    disabled_reason TEXT,
    failures @int NOT NULL DEFAULT 0,      -- consecutive failed deliveries
    held_until @int,
    hold_duration @int             -- distance to `held_until` when it was set
) @strict;

CREATE TABLE delivery (            -- written in the transaction of the event that it reports
    id @int PRIMARY KEY,
    message TEXT NOT NULL,         -- id that the receiver sees
    webhook @int,                  -- null where a job named the URL
    receiver TEXT NOT NULL,        -- the endpoint, or the host of a job's URL
    url TEXT NOT NULL,
    kind TEXT NOT NULL,
    job @int,
    run @int,
    job_group @int,
    payload TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state = 'PENDING' OR state = 'DELIVERED' OR state = 'FAILED'),
    attempts @int NOT NULL DEFAULT 0,
    attempts_since_resend @int NOT NULL DEFAULT 0,  -- attempts since it was last resent by hand
    created_at @int NOT NULL,
    next_at @int,                  -- time of the next attempt while it is PENDING
    delay @int NOT NULL DEFAULT 0, -- distance to `next_at` when it was set
    finished_at @int,
    reason TEXT,
    CHECK ((state = 'PENDING') = (finished_at IS NULL) AND (state = 'PENDING') = (next_at IS NOT NULL))
) @strict;
CREATE INDEX delivery_due ON delivery (receiver, attempts_since_resend, next_at, id) WHERE next_at IS NOT NULL;
CREATE INDEX delivery_job ON delivery (job, id) WHERE job IS NOT NULL;
CREATE INDEX delivery_webhook ON delivery (webhook, id) WHERE webhook IS NOT NULL;
CREATE INDEX delivery_finished ON delivery (finished_at) WHERE finished_at IS NOT NULL;
CREATE INDEX spec_webhook ON spec (id) WHERE webhook IS NOT NULL;

CREATE TABLE delivery_attempt (
    delivery @int NOT NULL REFERENCES delivery (id),
    number @int NOT NULL,
    at @int NOT NULL,
    duration @int NOT NULL,
    status @int,                   -- HTTP status of the response; null: no response
    error TEXT,
    PRIMARY KEY (delivery, number)
) @strict;

CREATE TABLE event (
    seq @int PRIMARY KEY,
    at @int NOT NULL,
    kind TEXT NOT NULL,
    cause TEXT NOT NULL,
    actor TEXT,
    job @int,
    run @int,
    data TEXT NOT NULL
) @strict;
CREATE INDEX event_job ON event (job, seq);

CREATE TABLE pause (
    scope TEXT PRIMARY KEY,
    paused_by TEXT NOT NULL,
    paused_at @int NOT NULL
) @strict;

CREATE TABLE breaker (             -- breakers that are not closed
    key TEXT PRIMARY KEY,          -- type/… or target/…
    state TEXT NOT NULL CHECK (state = 'open' OR state = 'half_open'),
    opened_at @int NOT NULL,
    until @int NOT NULL,
    probe @int,                    -- job whose run decides whether it closes
    CHECK (state = 'half_open' OR probe IS NULL)
) @strict;
CREATE INDEX breaker_probe ON breaker (probe) WHERE probe IS NOT NULL;

CREATE TABLE breaker_failure (     -- ring buffer of the latest failed runs of a key, as many as open its breaker
    key TEXT NOT NULL,
    ring_index @int NOT NULL,
    at @int NOT NULL,
    PRIMARY KEY (key, ring_index)
) @strict;

CREATE TABLE idempotency (
    key TEXT PRIMARY KEY,
    digest TEXT NOT NULL,
    status @int NOT NULL,
    response TEXT NOT NULL,
    at @int NOT NULL
) @strict;

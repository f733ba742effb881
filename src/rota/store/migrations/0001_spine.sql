-- Times are microseconds since the epoch, UTC. Durations are microseconds. Flags are 0 or 1.
-- Words that start with `@` are those in which the databases differ; the store replaces them (`store/guard.py` has `@refuse`).

CREATE TABLE sequence (            -- no number of a noun below this is used again, though its row be gone
    noun TEXT PRIMARY KEY,
    next @int NOT NULL
) @strict;
INSERT INTO sequence (noun, next) VALUES
    ('job', 1), ('run', 1), ('slot', 1), ('event', 1), ('group', 1), ('template', 1), ('schedule', 1), ('webhook', 1),
    ('delivery', 1);

CREATE TABLE surroundings (        -- environments, once for each distinct content
    id @int PRIMARY KEY,
    digest TEXT NOT NULL UNIQUE,
    variables TEXT NOT NULL
) @strict;

CREATE TABLE lane (                -- one for each distinct set of pool draws, of each type, flow and target
    id @int PRIMARY KEY,
    draws TEXT NOT NULL,
    type TEXT NOT NULL DEFAULT '', -- whose breakers hold it; a job can draw from the pool of a type that is not its own
    flow TEXT NOT NULL DEFAULT '',
    target TEXT NOT NULL DEFAULT '',
    asks @int NOT NULL DEFAULT 0,  -- its jobs need artifacts or have a pinned head: looked at once more before they start
    ready @int NOT NULL DEFAULT 0 CHECK (ready >= 0),
    precedence @int,               -- the rank of its first ready job
    position @int,
    created_at @int,
    job @int,
    UNIQUE (draws, type, flow, target, asks),
    CHECK ((ready = 0) = (job IS NULL))
) @strict;
CREATE INDEX lane_order ON lane (precedence, position, created_at, job) WHERE ready > 0;

CREATE TABLE spec (                -- what was asked for; frozen once a job of it is dispatched (INV-001)
    id @int PRIMARY KEY,
    command TEXT NOT NULL,
    cwd TEXT NOT NULL,
    surroundings @int NOT NULL,
    trace TEXT,                    -- the trace it belongs to, as variables; apart from its surroundings, which jobs share
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
    retry TEXT,                    -- its retry policy as it was at submit; none: it is not tried again by itself
    repository TEXT,               -- the git common directory around cwd, where something of the job belongs to it
    workspace TEXT,                -- its worktree and patches; none: it asks for neither
    template @int,                 -- what it was made from: for the record, never looked up (INV-005)
    recipe TEXT,                   -- what an edit of its params needs of the template as it was; none: it is of no template
    webhook TEXT                   -- where its ends are told, beyond the endpoints that are told of everything
) @strict;
CREATE INDEX spec_workspace ON spec (id) WHERE workspace IS NOT NULL;
CREATE INDEX spec_template ON spec (template) WHERE template IS NOT NULL;

CREATE TABLE job (
    id @int PRIMARY KEY,
    spec @int NOT NULL,            -- the id of the chain's first job, or of the job that was edited
    chain @int NOT NULL,
    retry_of @int,
    retried_as @int,               -- the job that followed it in its chain
    attempt @int NOT NULL DEFAULT 1,
    retries @int NOT NULL DEFAULT 0,       -- automatic ones that led to it, since somebody last began the count anew
    status TEXT NOT NULL CHECK (   -- written out: SQLite builds a table for every IN, at every update
        status = 'QUEUED' OR status = 'DISPATCHED' OR status = 'RUNNING' OR status = 'COMPLETED'
        OR status = 'WAITING_ON_DEPS' OR status = 'WAITING_ON_LOCKS' OR status = 'FAILED'
        OR status = 'SKIPPED' OR status = 'CANCELLED' OR status = 'BLOCKED_BY_DEPENDENCY'),
    precedence @int NOT NULL,      -- priority negated: the queue order is ascending throughout (INV-004)
    position @int NOT NULL,
    created_at @int NOT NULL,
    queued_at @int,
    started_at @int,
    finished_at @int,
    not_before @int,
    exit_code @int,
    reason TEXT,
    wait_kind TEXT CHECK (wait_kind = 'dependencies' OR wait_kind = 'pinned_head' OR wait_kind = 'locks'),
    waited_on TEXT NOT NULL DEFAULT '',
    unmet @int NOT NULL DEFAULT 0 CHECK (unmet >= 0),
    job_group @int,                -- the group it is a member of, and its place in it; its chain's jobs share them
    sequence @int,
    dropped @int NOT NULL DEFAULT 0,       -- its group's policy has ended it because another member failed
    schedule @int,                 -- the schedule that made its chain: for the record, and for who must not overlap
    unique_key TEXT,               -- its chain has this key to itself as long as it is active
    lane @int NOT NULL,
    asks @int NOT NULL DEFAULT 0,  -- it needs artifacts, or has a pinned head
    ready @int NOT NULL DEFAULT 0,         -- stands in its lane
    ready_at @int,                 -- since when it stands there, or stood there last
    stirred @int NOT NULL DEFAULT 0,       -- something happened to it: to be looked at
    permanently_failed @int NOT NULL DEFAULT 0,
    dispatch_failures @int NOT NULL DEFAULT 0,
    last_failure TEXT,
    stop_requested TEXT,
    pid @int,
    pid_started @int,              -- field 22 of /proc/<pid>/stat: with the pid it names the process
    rewound_run @int,              -- its latest run when it was last rewound: what that one left is set aside
    -- Active is `finished_at IS NULL`; of these, waiting is `started_at IS NULL`; the indexes count on it.
    CHECK ((finished_at IS NULL) = (status = 'QUEUED' OR status = 'DISPATCHED' OR status = 'RUNNING'
                                    OR status = 'WAITING_ON_DEPS' OR status = 'WAITING_ON_LOCKS')),
    CHECK (finished_at IS NOT NULL OR (started_at IS NOT NULL) = (status = 'DISPATCHED' OR status = 'RUNNING')),
    CHECK ((wait_kind IS NOT NULL) = (status = 'WAITING_ON_DEPS' OR status = 'WAITING_ON_LOCKS')),
    CHECK (ready = 0 OR status = 'QUEUED'),
    CHECK ((job_group IS NULL) = (sequence IS NULL)),
    CHECK (dropped = 0 OR (job_group IS NOT NULL AND (status = 'CANCELLED' OR status = 'SKIPPED'))),
    CHECK (stirred = 0 OR (finished_at IS NULL AND started_at IS NULL))
) @strict;
CREATE INDEX job_chain ON job (chain, id);
CREATE UNIQUE INDEX job_one_active_in_chain ON job (chain) WHERE finished_at IS NULL;
CREATE UNIQUE INDEX job_one_active_of_key ON job (unique_key) WHERE unique_key IS NOT NULL AND finished_at IS NULL;
CREATE INDEX job_unretried ON job (id) WHERE status = 'FAILED' AND permanently_failed = 0 AND retried_as IS NULL;
CREATE INDEX job_lane ON job (lane, precedence, position, created_at, id) WHERE ready = 1;
CREATE INDEX job_stirred ON job (precedence, position, created_at, id) WHERE stirred = 1;
CREATE INDEX job_held ON job (not_before, lane) WHERE status = 'QUEUED' AND ready = 0;
CREATE INDEX job_waiting ON job (wait_kind, status) WHERE wait_kind IS NOT NULL;
CREATE INDEX job_asking ON job (chain) WHERE asks = 1 AND finished_at IS NULL AND started_at IS NULL;
CREATE INDEX job_active ON job (precedence, position, created_at, id) WHERE finished_at IS NULL;
CREATE INDEX job_ended ON job (status, id) WHERE finished_at IS NOT NULL;
CREATE INDEX job_member ON job (job_group, sequence, id) WHERE job_group IS NOT NULL;
CREATE INDEX job_ended_member ON job (job_group, finished_at, id) WHERE job_group IS NOT NULL AND finished_at IS NOT NULL;
CREATE INDEX job_scheduled ON job (schedule, id) WHERE schedule IS NOT NULL AND finished_at IS NULL;
CREATE INDEX job_active_member ON job (job_group, sequence) WHERE job_group IS NOT NULL AND finished_at IS NULL;

CREATE TABLE edge (
    job @int NOT NULL REFERENCES job (id),
    sequence @int NOT NULL,
    predecessor @int NOT NULL,
    chain @int NOT NULL,
    policy TEXT NOT NULL CHECK (policy = 'success' OR policy = 'finished' OR policy = 'failed'),
    state TEXT NOT NULL CHECK (state = 'open' OR state = 'met' OR state = 'unmeetable'),
    implied @int NOT NULL DEFAULT 0,       -- it follows from the order of a sequential group; nobody named it
    PRIMARY KEY (job, sequence)
) @strict;
CREATE INDEX edge_chain ON edge (chain, state, job);
CREATE INDEX edge_unmet ON edge (job, state, sequence) WHERE state <> 'met';

-- Artifacts and pinned heads belong to the chain, by the id of its first job, as its spec does.

CREATE TABLE artifact (            -- every one that a job has named, once for each that it can belong to
    id @int PRIMARY KEY,
    scope TEXT NOT NULL,           -- the repository it belongs to; empty where it belongs to none
    name TEXT NOT NULL,
    payload TEXT,                  -- what came with it when it was put
    put_at @int,                   -- somebody has declared that it is there
    put_by @int,                   -- the job that did
    UNIQUE (name, scope)
) @strict;
CREATE INDEX artifact_scope ON artifact (scope) WHERE scope <> '';
CREATE INDEX artifact_put_by ON artifact (put_by) WHERE put_by IS NOT NULL;

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
    sequence @int,                 -- its place among those the job said it produces; none where it follows from its name
    is_rewound @int NOT NULL DEFAULT 0,    -- until the chain ends again, what is there is of before
    PRIMARY KEY (chain, artifact)
) @strict;
CREATE INDEX product_artifact ON product (artifact, chain);
CREATE INDEX product_rewound ON product (artifact) WHERE is_rewound = 1;

CREATE TABLE pin (
    chain @int PRIMARY KEY REFERENCES job (id),
    repository TEXT NOT NULL,
    branch TEXT NOT NULL,
    oid TEXT NOT NULL
) @strict;
CREATE INDEX pin_head ON pin (repository, branch);

CREATE TABLE lock (
    job @int NOT NULL,             -- or a slot, by its number negated: each key has one queue and one holder, whoever it is
    key TEXT NOT NULL,
    mode TEXT NOT NULL CHECK (mode = 'exclusive' OR mode = 'shared'),
    state TEXT NOT NULL CHECK (state = 'idle' OR state = 'contending' OR state = 'held'),
    precedence @int NOT NULL,      -- the job's rank, copied: one index holds a key's queue
    position @int NOT NULL,
    created_at @int NOT NULL,
    PRIMARY KEY (job, key)
) @strict;
CREATE INDEX lock_queue ON lock (key, precedence, position, created_at, job) WHERE state = 'contending';
CREATE INDEX lock_queue_exclusive ON lock (key, precedence, position, created_at, job)
    WHERE state = 'contending' AND mode = 'exclusive';
CREATE INDEX lock_held ON lock (key, mode) WHERE state = 'held';
CREATE UNIQUE INDEX lock_one_exclusive_holder ON lock (key) WHERE state = 'held' AND mode = 'exclusive';

CREATE TABLE run (                 -- an audit row (INV-002)
    id @int PRIMARY KEY,
    job @int NOT NULL REFERENCES job (id),
    worker TEXT NOT NULL,
    status TEXT CHECK (status = 'COMPLETED' OR status = 'FAILED' OR status = 'SKIPPED' OR status = 'CANCELLED'),
    started_at @int NOT NULL,
    finished_at @int,
    exit_code @int,
    error TEXT,
    artifacts TEXT,                -- what it has put
    CHECK ((status IS NULL) = (finished_at IS NULL))
) @strict;
CREATE INDEX run_job ON run (job, id);
CREATE INDEX run_ended ON run (status, id) WHERE status IS NOT NULL;
CREATE UNIQUE INDEX run_one_open_of_job ON run (job) WHERE status IS NULL;
CREATE UNIQUE INDEX run_one_open_of_worker ON run (worker) WHERE status IS NULL;   -- INV-003

CREATE TABLE ahead (               -- jobs that stand in the queue, and that the executor may start by itself as these runs
    run @int PRIMARY KEY,
    job @int NOT NULL UNIQUE REFERENCES job (id),
    given_at @int NOT NULL
) @strict;

-- What the code asks before it writes (`edit` in core/job.py, `amend` in core/run.py) is refused here whoever writes.
@refuse spec_command UPDATE OF command ON spec WHEN NEW.command <> OLD.command AND EXISTS (
    SELECT 1 FROM job AS first JOIN job ON job.chain = first.chain AND job.spec = OLD.id
    WHERE first.id = OLD.id AND (job.started_at IS NOT NULL OR EXISTS (SELECT 1 FROM run WHERE run.job = job.id)))
SAY 'Cannot modify command after dispatch';
@refuse spec_params UPDATE OF params ON spec WHEN NEW.params <> OLD.params AND EXISTS (
    SELECT 1 FROM job AS first JOIN job ON job.chain = first.chain AND job.spec = OLD.id
    WHERE first.id = OLD.id AND (job.started_at IS NOT NULL OR EXISTS (SELECT 1 FROM run WHERE run.job = job.id)))
SAY 'Cannot modify params after dispatch';
@refuse job_spec UPDATE OF spec ON job WHEN NEW.spec <> OLD.spec AND (
    OLD.started_at IS NOT NULL OR EXISTS (SELECT 1 FROM run WHERE run.job = OLD.id) AND NOT EXISTS (
        SELECT 1 FROM spec AS was JOIN spec AS now ON now.command = was.command AND now.params = was.params
        WHERE was.id = OLD.spec AND now.id = NEW.spec))
SAY 'Cannot modify params after dispatch';
@refuse job_chain UPDATE OF chain ON job WHEN NEW.chain <> OLD.chain SAY 'Cannot modify immutable fields: chain';
@refuse run_status UPDATE OF status ON run WHEN OLD.status IS NOT NULL AND coalesce(NEW.status, '') <> OLD.status
SAY 'Cannot modify immutable fields: status';
@refuse run_id UPDATE OF id ON run WHEN NEW.id <> OLD.id SAY 'Cannot modify immutable fields: id';
@refuse run_job UPDATE OF job ON run WHEN NEW.job <> OLD.job SAY 'Cannot modify immutable fields: job';
@refuse run_worker UPDATE OF worker ON run WHEN NEW.worker <> OLD.worker SAY 'Cannot modify immutable fields: worker';
@refuse run_started_at UPDATE OF started_at ON run WHEN NEW.started_at <> OLD.started_at
SAY 'Cannot modify immutable fields: started_at';

CREATE TABLE slot (                -- a place for a direct execution, which is no job
    id @int PRIMARY KEY,           -- in the order of arrival
    state TEXT NOT NULL CHECK (state = 'waiting' OR state = 'starting' OR state = 'running' OR state = 'ended'),
    name TEXT,
    command TEXT,                  -- none where a program does the work itself
    cwd TEXT,
    surroundings @int,
    trace TEXT,
    type TEXT NOT NULL DEFAULT '',
    flow TEXT NOT NULL DEFAULT '',
    target TEXT NOT NULL DEFAULT '',
    draws TEXT NOT NULL,
    timeout @int,
    idle_timeout @int,
    attended @int NOT NULL,        -- it hangs on a connection of its client
    actor TEXT,
    created_at @int NOT NULL,
    started_at @int,
    finished_at @int,
    worker TEXT,
    run @int UNIQUE,               -- the number under which the executor knows it: that of no run
    pid @int,
    pid_started @int,
    stop_requested TEXT,
    status TEXT CHECK (status = 'COMPLETED' OR status = 'FAILED' OR status = 'CANCELLED'),
    exit_code @int,
    reason TEXT,
    CHECK ((state = 'ended') = (finished_at IS NOT NULL) AND (state = 'ended') = (status IS NOT NULL)),
    CHECK ((state = 'starting' OR state = 'running') = (worker IS NOT NULL AND finished_at IS NULL))
) @strict;
CREATE INDEX slot_open ON slot (id) WHERE finished_at IS NULL;
CREATE INDEX slot_ended ON slot (finished_at) WHERE finished_at IS NOT NULL;
CREATE INDEX slot_surroundings ON slot (surroundings) WHERE surroundings IS NOT NULL;
CREATE UNIQUE INDEX slot_one_of_worker ON slot (worker) WHERE worker IS NOT NULL AND finished_at IS NULL;   -- INV-003

CREATE TABLE job_group (           -- what it has come to is asked of its members' chains (INV-006)
    id @int PRIMARY KEY,
    name TEXT,
    mode TEXT NOT NULL CHECK (mode = 'sequential' OR mode = 'parallel'),
    on_failure TEXT NOT NULL,      -- the name of its failure policy
    actor TEXT,
    created_at @int NOT NULL,
    closed_at @int,                -- it ends with its members; until then it waits for further ones
    cancelled_at @int,             -- as a whole
    finished_at @int,              -- it is closed, and every member has ended
    removed TEXT NOT NULL DEFAULT '{}',    -- how many of its members are gone from the store, by status
    CHECK (finished_at IS NULL OR closed_at IS NOT NULL)
) @strict;
CREATE INDEX job_group_open ON job_group (id) WHERE finished_at IS NULL;
CREATE INDEX job_group_name ON job_group (name, id) WHERE name IS NOT NULL;
CREATE INDEX job_group_finished ON job_group (finished_at) WHERE finished_at IS NOT NULL;

@refuse group_finished UPDATE OF finished_at ON job_group WHEN NEW.finished_at IS NOT NULL AND EXISTS (
    SELECT 1 FROM job WHERE job.job_group = NEW.id AND job.finished_at IS NULL)
SAY 'Cannot finish a group while a member is active';

CREATE TABLE template (
    id @int PRIMARY KEY,
    name TEXT NOT NULL,
    body TEXT NOT NULL,            -- the job that it makes
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
    body TEXT NOT NULL,            -- the job that it makes
    surroundings @int,             -- of who made it; none: the scheduler's own
    is_enabled @int NOT NULL,
    since @int NOT NULL,           -- nothing older than this fires
    next_at @int,                  -- none while it is disabled, or where there is no further time
    created_at @int NOT NULL,
    changed_at @int NOT NULL
) @strict;
CREATE INDEX schedule_due ON schedule (next_at) WHERE next_at IS NOT NULL;
CREATE INDEX schedule_surroundings ON schedule (surroundings) WHERE surroundings IS NOT NULL;

CREATE TABLE fire (                -- a time of a schedule, and what became of it: at most once, whatever crashes
    schedule @int NOT NULL,
    at @int NOT NULL,
    state TEXT NOT NULL CHECK (state = 'fired' OR state = 'missed' OR state = 'skipped' OR state = 'failed'),
    job @int,
    booked_at @int NOT NULL,
    reason TEXT,
    count @int NOT NULL DEFAULT 1,         -- so many times were missed together; `at` is the last of them
    is_trigger @int NOT NULL DEFAULT 0,    -- somebody asked for it, then
    PRIMARY KEY (schedule, at)
) @strict;
CREATE INDEX fire_booked ON fire (booked_at, state);

CREATE TABLE webhook (             -- an endpoint that is told of everything it asked for
    id @int PRIMARY KEY,
    url TEXT NOT NULL,
    events TEXT NOT NULL,
    secret TEXT NOT NULL,
    old_secret TEXT,               -- still signs, until then
    old_secret_until @int,
    created_at @int NOT NULL,
    disabled_at @int,
    disabled_reason TEXT,
    failures @int NOT NULL DEFAULT 0,      -- deliveries that failed in a row
    held_until @int
) @strict;

CREATE TABLE delivery (            -- written with what it tells of
    id @int PRIMARY KEY,
    message TEXT NOT NULL,         -- what the receiver knows it by
    webhook @int,                  -- none where a job named the URL
    receiver TEXT NOT NULL,        -- the endpoint, or the host of a job's URL
    url TEXT NOT NULL,
    kind TEXT NOT NULL,
    job @int,
    run @int,
    job_group @int,
    payload TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state = 'PENDING' OR state = 'DELIVERED' OR state = 'FAILED'),
    tries @int NOT NULL DEFAULT 0,
    tried @int NOT NULL DEFAULT 0, -- of these, since it was last sent by hand
    created_at @int NOT NULL,
    next_at @int,                  -- when it is tried next, while it is PENDING
    finished_at @int,
    reason TEXT,
    CHECK ((state = 'PENDING') = (finished_at IS NULL) AND (state = 'PENDING') = (next_at IS NOT NULL))
) @strict;
CREATE INDEX delivery_due ON delivery (receiver, tried, next_at, id) WHERE next_at IS NOT NULL;
CREATE INDEX delivery_job ON delivery (job, id) WHERE job IS NOT NULL;
CREATE INDEX delivery_webhook ON delivery (webhook, id) WHERE webhook IS NOT NULL;
CREATE INDEX delivery_finished ON delivery (finished_at) WHERE finished_at IS NOT NULL;
CREATE INDEX spec_webhook ON spec (id) WHERE webhook IS NOT NULL;

CREATE TABLE delivery_try (
    delivery @int NOT NULL REFERENCES delivery (id),
    number @int NOT NULL,
    at @int NOT NULL,
    duration @int NOT NULL,
    status @int,                   -- what the receiver answered; none: it did not
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

CREATE TABLE breaker (             -- those that are not closed
    key TEXT PRIMARY KEY,          -- type/… or target/…
    state TEXT NOT NULL CHECK (state = 'open' OR state = 'half_open'),
    opened_at @int NOT NULL,
    until @int NOT NULL,
    probe @int,                    -- the job that tries whether it can close
    CHECK (state = 'half_open' OR probe IS NULL)
) @strict;
CREATE INDEX breaker_probe ON breaker (probe) WHERE probe IS NOT NULL;

CREATE TABLE breaker_failure (     -- the latest failed runs of a key, as many as it takes to open its breaker
    key TEXT NOT NULL,
    slot @int NOT NULL,
    at @int NOT NULL,
    PRIMARY KEY (key, slot)
) @strict;

CREATE TABLE idempotency (
    key TEXT PRIMARY KEY,
    digest TEXT NOT NULL,
    status @int NOT NULL,
    answer TEXT NOT NULL,
    at @int NOT NULL
) @strict;

-- The journal of durable workflows (libs/workflow). It lies in the schema of the service that runs them.

-- Drawn whenever a workflow changes hands; goes with each write that a step makes, so that a newer writer has a higher one.
create sequence workflow_fence;

-- One row per engine. A restarted engine has the same name and another incarnation: what its predecessor held is free at once.
create table worker (
    name        text primary key,
    incarnation uuid not null,
    lease_until timestamptz not null
);

create table workflow (
    id               uuid primary key,
    kind             text not null,
    version          integer not null,
    subject          text not null,
    traceparent      text,
    input            jsonb not null,
    -- What the steps know together; written with the journal.
    state            jsonb not null,
    -- running: forward · undoing: back · done, failed, cancelled: ended
    status           text not null default 'running',
    -- The next step forward, and the journal row that is being written (0: none yet).
    step             text not null,
    seq              integer not null default 0,
    round            integer not null default 1,
    past_pivot       boolean not null default false,
    cancel_requested boolean not null default false,
    -- No engine that looked at it knows its kind and version.
    refused          boolean not null default false,
    message          text,
    failure          jsonb,
    parent_id        uuid references workflow,
    parent_seq       integer,

    -- Whoever runs it now (null: nobody), whoever ran it last, and the fence of that hand.
    worker           text,
    incarnation      uuid,
    fence            bigint not null default 0,
    -- When to look at it next; what to look at it for earlier; whether somebody already called.
    run_at           timestamptz not null default now(),
    wake_keys        text[] not null default '{}',
    woken            boolean not null default false,

    -- Grows with every visible change.
    revision         bigint not null default 1,
    created_at       timestamptz not null default now(),
    updated_at       timestamptz not null default now(),
    ended_at         timestamptz,

    constraint workflow_status check (status in ('running', 'undoing', 'done', 'failed', 'cancelled')),
    constraint workflow_end check ((ended_at is not null) = (status in ('done', 'failed', 'cancelled')))
);
create index workflow_due on workflow (run_at) where ended_at is null;
create index workflow_wake on workflow using gin (wake_keys) where ended_at is null;
create index workflow_children on workflow (parent_id, parent_seq) where parent_id is not null;
create index workflow_newest on workflow (created_at, id);
create index workflow_subject on workflow (subject, created_at, id);

-- One row per step that was started, in the order of starting.
create table workflow_step (
    workflow_id      uuid not null references workflow on delete cascade,
    seq              integer not null,
    name             text not null,
    round            integer not null,
    -- started, done, failed · undoing, undone
    status           text not null,
    -- The effect is the journal's own transaction: a step that did not finish left nothing to undo.
    atomic           boolean not null,
    attempt          integer not null default 1,
    output           jsonb,
    error            jsonb,
    started_at       timestamptz not null default now(),
    finished_at      timestamptz,
    undo_started_at  timestamptz,
    undo_finished_at timestamptz,
    primary key (workflow_id, seq),
    constraint workflow_step_status check (status in ('started', 'done', 'failed', 'undoing', 'undone'))
);

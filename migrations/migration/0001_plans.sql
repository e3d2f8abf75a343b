-- What Drover itself keeps beside the documents (migrations/resources, which run first).

-- Owners' words by app, from the app intents: what planning reads.
create table movability (
    intent uuid primary key references resource on delete cascade,
    dig uuid not null,
    app text not null,
    migration boolean not null,
    priority smallint not null check (priority between 1 and 10)
);

-- The one policy of a project that orders candidates.
create table active_policy (
    project uuid primary key,
    policy uuid not null unique references resource on delete cascade
);

-- Built-in rows that were made once: a deleted one does not come back by itself.
create table builtin (
    path text primary key
);

-- Plans: documents, never effects. An infeasible one is kept too, with its reasons.
create table plan (
    id uuid primary key,
    subject jsonb not null,
    state text not null check (state in ('proposed', 'accepted', 'discarded', 'infeasible')),
    operation uuid check ((state = 'accepted') = (operation is not null)),
    result jsonb not null,
    policy text not null,
    made_on text not null,
    -- The whole input (fleet and request), JSON, gzip: for replay.
    input bytea not null,
    created_at timestamptz not null default now()
);
create index plan_by_time on plan (created_at desc, id desc);

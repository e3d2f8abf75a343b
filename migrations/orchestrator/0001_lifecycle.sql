-- What Drover writes about deployment intent groups. What users wrote is in `resource` (migrations/resources).


-- Rendered objects of an app, once per digest.
create table bundle (
    digest     text primary key,
    objects    jsonb not null,
    created_at timestamptz not null default now()
);

-- A deployment intent group; no row: Created.
create table deployment (
    dig_id     uuid primary key references resource (id) on delete cascade,
    state      text not null,
    revision   bigint not null default 0,
    changed_at timestamptz not null default now(),
    constraint deployment_state check (state in ('Created', 'Approved', 'Applied', 'Instantiated', 'Terminated', 'InstantiateStopped', 'TerminateStopped', 'Updated'))
);

-- Its history, as EMCO's status shows it.
create table deployment_action (
    dig_id   uuid not null references deployment (dig_id) on delete cascade,
    seq      bigint generated always as identity,
    state    text not null,
    instance uuid,
    revision bigint not null,
    at       timestamptz not null default now(),
    primary key (dig_id, seq)
);

-- What `approve` rendered; what instantiate will use.
create table deployment_app (
    dig_id    uuid not null references deployment (dig_id) on delete cascade,
    app       text not null,
    digest    text not null references bundle (digest),
    namespace text not null,
    demand    jsonb not null,
    primary key (dig_id, app)
);

-- One writer per deployment intent group.
create table hold (
    dig_id      uuid not null,
    workflow_id uuid not null,
    taken_at    timestamptz not null default now(),
    constraint hold_one_writer primary key (dig_id)
);
create index hold_workflow on hold (workflow_id);

-- One app on one member. Its id is the claim's and the desired state's.
--   target:   being brought up by `operation`
--   current:  serves
--   retiring: shall go; its claim is released when the synchronizer says that it is gone
--   gone:     kept for a minute, so that a late write meets its fence; task `retire` deletes it
create table binding (
    id            uuid primary key,
    dig_id        uuid not null,
    project       text not null,
    composite_app text not null,
    version       text not null,
    dig           text not null,
    app           text not null,
    member        text not null,
    namespace     text not null,
    digest        text not null references bundle (digest),
    request       jsonb not null,
    role          text not null,
    operation     uuid not null,
    created_at    timestamptz not null default now(),
    changed_at    timestamptz not null default now(),
    constraint binding_role check (role in ('target', 'current', 'retiring', 'gone'))
);
create index binding_dig on binding (dig_id);
create index binding_operation on binding (operation);
create unique index binding_one_current on binding (dig_id, app, member) where role = 'current';

-- History of a logical cloud (level 0: instantiating one writes nothing into clusters).
create table logical_cloud_action (
    cloud_id uuid not null,
    seq      bigint generated always as identity,
    state    text not null,
    at       timestamptz not null default now(),
    primary key (cloud_id, seq)
);

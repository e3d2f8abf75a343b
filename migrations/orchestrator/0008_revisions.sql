-- The revisions of deployment intent groups: what each was to run, so that any of them can be run again.
create table deployment_revision (
    dig_id        uuid not null references deployment (dig_id) on delete cascade,
    revision      bigint not null,
    -- The operation that was to bring it about. The revision counts once that operation has passed its pivot.
    operation     uuid not null,
    kind          text not null,
    -- Of a rollback: the revision that it goes back to.
    from_revision bigint,
    requested_by  text not null default '',
    description   text not null default '',
    created_at    timestamptz not null default now(),
    primary key (dig_id, revision),
    constraint deployment_revision_kind check (kind in ('instantiate', 'update', 'rollback'))
);

-- The apps of a revision, as `deployment_app` has them for the approved one.
create table deployment_revision_app (
    dig_id    uuid not null,
    revision  bigint not null,
    app       text not null,
    digest    text not null references bundle (digest),
    namespace text not null,
    demand    jsonb not null,
    terms     jsonb not null,
    primary key (dig_id, revision, app),
    foreign key (dig_id, revision) references deployment_revision on delete cascade
);

-- Groups that are to be terminated once another group runs in their place (the verb `migrate`).
create table deployment_migration (
    source_id   uuid primary key references deployment (dig_id) on delete cascade,
    target_id   uuid not null,
    -- The instantiation of the target.
    operation   uuid not null,
    created_at  timestamptz not null default now()
);

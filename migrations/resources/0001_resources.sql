-- Documents that users wrote (libs/resources). What Drover writes has tables of its own.

-- Versions come from one sequence per schema: a document that is made again never repeats an ETag.
create sequence resource_version;

-- Bytes that came with documents, stored once.
create table file (
    digest     bytea primary key,
    bytes      bytea not null,
    created_at timestamptz not null default now()
);

create table resource (
    id             uuid primary key,
    kind           text not null,
    -- The path in the API, from /v2; compared bytewise, which is what pages are cut by.
    path           text collate "C" not null constraint resource_path_key unique,
    name           text not null,
    parent_id      uuid constraint resource_parent_id_fkey references resource on delete restrict,
    -- Id of the document of another service below which this one hangs, near or far.
    foreign_parent uuid,
    version        bigint not null default nextval('resource_version'),
    metadata       jsonb not null,
    -- JSON null: the client sent none.
    spec           jsonb not null,
    file_digest    bytea constraint resource_file_digest_fkey references file on delete restrict,
    created_at     timestamptz not null default now(),
    updated_at     timestamptz not null default now()
);
create index resource_by_kind on resource (kind, path);
create index resource_by_parent on resource (parent_id, kind);
create index resource_by_foreign_parent on resource (foreign_parent, kind) where foreign_parent is not null;
create index resource_by_file on resource (file_digest) where file_digest is not null;

create table resource_reference (
    from_id uuid not null references resource on delete cascade,
    field   text not null,
    to_id   uuid not null constraint resource_reference_to_id_fkey references resource on delete restrict,
    primary key (from_id, field, to_id)
);
create index resource_reference_by_target on resource_reference (to_id);

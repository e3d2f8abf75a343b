-- This installation; the label drover.io/hub of everything it applies, so that two installations may share a member.
create table hub (
    single boolean primary key default true check (single),
    id     uuid not null default gen_random_uuid()
);
insert into hub default values;

-- Rendered objects, stored once by digest.
create table bundle (
    digest     text primary key,
    objects    jsonb not null,
    created_at timestamptz not null default now()
);

-- What shall be true of a binding, newest writer only; `gone`: absent was desired and is so.
create table binding (
    id         uuid primary key,
    dig        jsonb not null,
    app        text not null,
    member     text not null,
    namespace  text not null,
    digest     text not null,
    present    boolean not null,
    fence      bigint not null,
    gone       boolean not null default false,
    updated_at timestamptz not null default now()
);
create index binding_member on binding (member);
create index binding_digest on binding (digest);

-- What was applied for a binding. A row is written before its object is applied, so that nothing can be applied and
-- forgotten; uid, generation and resource version follow when the member has answered.
create table inventory (
    binding          uuid not null references binding on delete cascade,
    api_version      text not null,
    kind             text not null,
    namespace        text not null,
    name             text not null,
    digest           text not null,
    uid              text,
    generation       bigint,
    resource_version text,
    primary key (binding, api_version, kind, namespace, name)
);

-- Kinds that were ever applied in a member: where leftovers can be.
create table member_kind (
    member      text not null,
    api_version text not null,
    kind        text not null,
    primary key (member, api_version, kind)
);

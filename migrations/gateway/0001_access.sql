-- Who may use the REST API, and who did what.

-- Tokens that admins made. Only a digest of the secret is stored: 256 random bits cannot be guessed from it.
create table token (
    id uuid primary key,
    name text not null,
    digest bytea not null unique,
    role text not null check (role in ('viewer', 'deployer', 'mover', 'operator', 'admin')),
    -- Null: everywhere.
    projects text[],
    created_by text not null,
    created_at timestamptz not null default now(),
    expires_at timestamptz,
    revoked_at timestamptz
);
create unique index token_name on token (name) where revoked_at is null;

-- Roles of users of the identity provider.
create table role_binding (
    name text primary key,
    subject text not null,
    role text not null check (role in ('viewer', 'deployer', 'mover', 'operator', 'admin')),
    projects text[],
    created_by text not null,
    created_at timestamptz not null default now()
);
create index role_binding_subject on role_binding (subject);

-- Requests before they are passed on, and their answers. What is written here stays.
create table audit (
    id bigint generated always as identity primary key,
    at timestamptz not null default now(),
    who text not null,
    via text not null,
    method text not null,
    path text not null,
    project text,
    address text not null,
    trace text,
    request text
);
create table audit_outcome (
    audit bigint primary key references audit,
    status smallint not null,
    code text,
    at timestamptz not null default now()
);
create function refuse_change() returns trigger language plpgsql as $$
begin
    raise exception 'the audit log is append-only';
end $$;
create trigger audit_is_append_only before update or delete or truncate on audit for each statement execute function refuse_change();
create trigger audit_outcome_is_append_only before update or delete or truncate on audit_outcome
    for each statement execute function refuse_change();

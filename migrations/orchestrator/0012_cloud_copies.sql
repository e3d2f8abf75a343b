-- The parts of instantiated logical clouds of level 1: what each cluster is to have (namespace, quotas, roles), and the user's certificate.
-- The id is that of the binding at resource-synchronizer and of the user at cluster-manager.
create table cloud_copy (
    id         uuid primary key,
    cloud_id   uuid not null,
    project    text not null,
    cloud      text not null,
    member     text not null,
    namespace  text not null,
    -- Whom the certificate is for; empty: nobody.
    user_name  text not null,
    digest     text not null references bundle (digest),
    -- Whether it is to be there; otherwise it is being removed.
    present    boolean not null default true,
    -- Of the last write; null: what is desired now has not been sent.
    fence      bigint,
    -- Whether everything that is desired is there.
    settled    boolean not null default false,
    -- Why it is not yet.
    trouble    text,
    -- It does not get better by waiting.
    failed     boolean not null default false,
    changed_at timestamptz not null default now()
);
create index cloud_copy_cloud on cloud_copy (cloud_id);
create unique index cloud_copy_one_present on cloud_copy (cloud_id, member) where present;

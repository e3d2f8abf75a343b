-- What cluster-manager keeps beside the documents. Health and capacity are observed, never stored.

create sequence credential_version;

-- Kubeconfigs, sealed (libs/store); one per cluster, a rotation replaces it.
create table credential (
    cluster_id uuid primary key constraint credential_cluster_id_fkey references resource on delete cascade,
    sealed     bytea not null,
    version    bigint not null default nextval('credential_version'),
    rotated_at timestamptz not null default now()
);

-- EMCO's cluster labels: no documents, only words.
create table cluster_label (
    cluster_id uuid not null constraint cluster_label_cluster_id_fkey references resource on delete restrict,
    label      text collate "C" not null,
    constraint cluster_label_pkey primary key (cluster_id, label)
);

-- Clusters that are closed to new copies of apps. Applying a drain plan writes a row, too; only an explicit uncordon deletes it.
create table cordon (
    cluster_id uuid primary key constraint cordon_cluster_id_fkey references resource on delete cascade,
    reason     text not null,
    -- The cluster is lost for good: it may be deleted although applications still have room there.
    abandoned  boolean not null default false,
    since      timestamptz not null default now()
);

-- The uid of a member's namespace kube-system, which identifies the Kubernetes cluster itself, whatever its address. Unique, since the
-- room of a cluster that is registered under two names would be given away twice.
create table member_identity (
    cluster_id uuid primary key constraint member_identity_cluster_id_fkey references resource on delete cascade,
    uid        text not null constraint member_identity_uid_key unique
);

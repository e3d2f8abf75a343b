-- The shares of copies of bounds that count for all members of an app (libs/autoscaling/src/shares.rs).
create table bounds_share (
    binding    uuid primary key references binding on delete cascade,
    -- Of the order that was written last. It may not have arrived.
    version    bigint not null,
    -- By autoscaler: the share, the upper bound that is aimed at, and the largest one that the member may be acting upon.
    policies   jsonb not null,
    -- Whether the member has what was written last.
    confirmed  boolean not null default false,
    changed_at timestamptz not null default now()
);

-- The objects of apps, which may be Secrets, are sealed with a key outside of the database (libs/store). What is not sealed yet is when
-- orchestrator starts.
alter table bundle
    alter column objects drop not null,
    add column sealed bytea,
    -- Keyed hashes of the names of hosts in its workloads and ConfigMaps, by which callers of a Service are found.
    add column hosts bigint[] not null default '{}',
    add constraint bundle_one_form check (num_nonnulls(objects, sealed) = 1);
alter table bundle_variant
    alter column objects drop not null,
    add column sealed bytea,
    add constraint bundle_variant_one_form check (num_nonnulls(objects, sealed) = 1);

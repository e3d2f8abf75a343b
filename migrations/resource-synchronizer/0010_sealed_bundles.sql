-- The objects of apps, which may be Secrets, are sealed with a key outside of the database (libs/store). What is not sealed yet is when
-- resource-synchronizer starts.
alter table bundle
    alter column objects drop not null,
    add column sealed bytea,
    add constraint bundle_one_form check (num_nonnulls(objects, sealed) = 1);

-- Files are charts, manifests and values, which may hold Secrets: they are sealed with a key outside of the database (libs/store). A service
-- seals what is not sealed yet when it starts.
alter table file
    alter column bytes drop not null,
    add column sealed bytea,
    add constraint file_one_form check (num_nonnulls(bytes, sealed) = 1);

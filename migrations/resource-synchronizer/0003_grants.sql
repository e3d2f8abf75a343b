-- What a binding may write besides namespaced objects in its namespace (libs/api/src/grants.rs). Null: everything.
alter table binding add column grants jsonb;

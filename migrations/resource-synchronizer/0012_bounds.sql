-- The share of this copy of bounds that count for all members of its app (libs/api/src/bindings.rs). Null: it was told none yet.
alter table binding add column bounds jsonb;

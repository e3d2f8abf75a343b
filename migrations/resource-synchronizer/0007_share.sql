-- The part of a stateful app that a copy runs while the app moves pod by pod (libs/api/src/bindings.rs). Null: all of it.
alter table binding add column share jsonb;

-- The run of the chart's tests that was asked for last. How far it is is in `hooks` (services/resource-synchronizer/src/store/hooks.rs).
alter table binding add column test uuid;
-- Whether the desired state is an earlier revision to which somebody goes back.
alter table binding add column rollback boolean not null default false;
-- Whether the volume claims that StatefulSets made go with a binding that is to be absent.
alter table binding add column delete_volumes boolean not null default false;

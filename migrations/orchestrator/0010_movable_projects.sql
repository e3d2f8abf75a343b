-- The projects of which apps may be moved for an operation; null: of all.
alter table deployment_revision add column movable_projects text[];
create index deployment_revision_operation on deployment_revision (operation);

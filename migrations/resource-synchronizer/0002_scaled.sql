-- Who has chosen the number of replicas of a workload, if it was not Drover, and the number when the workload was applied last: a copy
-- that is moved starts with it.
alter table inventory add column scaled_by text;
alter table inventory add column replicas  integer;

-- The copies of an app.
create index binding_app on binding ((dig ->> 'id'), app);

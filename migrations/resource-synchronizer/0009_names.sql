-- Names of Services that answer in other members than the one where the app runs (services/resource-synchronizer/src/names.rs).
-- `names`: the copy's Services are to have them. `stand_in`: the row has only names; it follows from the copies of its app.
alter table binding
    add column names    boolean not null default false,
    add column stand_in boolean not null default false;
create index binding_project on binding ((dig ->> 'project'));

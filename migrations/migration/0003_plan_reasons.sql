-- Why an app is to move although nobody needs its room, for people: plans of the kind relieve.
alter table plan add column reason text;

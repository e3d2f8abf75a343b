-- Objects that were left in the member because others would lose theirs with them, a sentence for people per object.
alter table binding add column kept text[] not null default '{}';

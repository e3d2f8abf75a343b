-- Keyed hashes of the names of hosts in what an app has in single members only, as `bundle.hosts`. What earlier versions stored has them in
-- `bundle.hosts`, until it is sealed with another key.
alter table bundle_variant add column hosts bigint[] not null default '{}';

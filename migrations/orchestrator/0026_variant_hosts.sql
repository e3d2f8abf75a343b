-- As `bundle.hosts`, of what an app has in single members only. Null: not known, because an earlier version stored it; then it counts as a
-- possible caller.
alter table bundle_variant add column hosts bigint[];

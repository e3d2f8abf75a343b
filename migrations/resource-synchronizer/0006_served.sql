-- Digest of the bundle whose objects have been ready for as long as its app asks (drover.io/serving-after). Null: of none yet.
alter table binding add column served text;

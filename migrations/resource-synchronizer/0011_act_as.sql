-- The service account of the member, as namespace/name, as which objects are written. Null: the account that Drover has there.
alter table binding add column act_as text;

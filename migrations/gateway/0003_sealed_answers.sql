-- Answers may have the values of overrides: they are sealed with a key outside of the database (libs/store). Those of an earlier version are
-- forgotten; a repetition of their requests is told that they were carried out.
update idempotency set body = null where body is not null;
alter table idempotency rename column body to sealed;

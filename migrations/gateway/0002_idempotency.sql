-- Requests that were sent with an Idempotency-Key, and the answers of those that were carried out.
create table idempotency (
    -- The token or user that sends the key: keys of different senders have nothing to do with each other.
    sender text not null,
    key text not null,
    -- Of method, path and body: a key belongs to one request.
    digest bytea not null,
    -- Who carries the request out at present.
    attempt uuid not null,
    -- A request without an answer is given up then; an answer is forgotten then.
    until timestamptz not null,
    -- Null while the request is carried out.
    status smallint,
    headers jsonb,
    -- Null if the answer is not kept, because it holds a secret or is too large.
    body bytea,
    primary key (sender, key)
);
create index idempotency_until on idempotency (until);

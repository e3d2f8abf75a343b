-- How far Drover's agents are in the clusters. What they are to be is in cluster-manager's documents.
create table agent_rollout (
    agent      text primary key,
    -- Generation of the document whose order is rolled out, and that order.
    generation bigint not null,
    spec       jsonb not null,
    -- The last order that reached all its clusters: a failed one goes back to it.
    good       jsonb,
    -- rolling · done: it reached all clusters · stopped: it failed in one
    state      text not null default 'rolling',
    -- Why it was stopped, or what it waits for.
    reason     text,
    constraint agent_rollout_state check (state in ('rolling', 'done', 'stopped'))
);

-- An agent in a cluster. Its deployment intent group has no document of users: see app/agents.rs.
create table agent_copy (
    agent         text not null references agent_rollout,
    member        text not null,
    dig_id        uuid not null,
    -- Digest and version of what runs there; null before anything does.
    digest        text,
    version       text,
    -- Since when it has been ready without interruption.
    healthy_since timestamptz,
    -- The last attempt to change it: to what, by which operation, when it began, and why it failed.
    tried_digest  text,
    tried_version text,
    operation     uuid,
    tried_at      timestamptz,
    failed        text,
    removing      boolean not null default false,
    -- Whether that operation has not ended yet.
    busy          boolean not null default false,
    primary key (agent, member)
);

-- Clusters that are reached through the connection of their agent.

-- The authority of agents' certificates and of the listener's; made at the first start of a process that takes agents.
create table link_authority (
    id          text primary key check (id = 'links'),
    certificate text not null,
    -- Its key, sealed (libs/store).
    sealed      bytea not null
);

create table link (
    cluster_id        uuid primary key constraint link_cluster_id_fkey references resource on delete cascade,
    -- Digest of the token of the invitation; null when an agent has used it to its end, or there is none.
    token             bytea,
    token_expires_at  timestamptz,
    -- Fingerprint of the key that has shown the token. No other key may use it.
    asking            text,
    -- Fingerprints of the keys that may connect: of the agent's present key and, while it is being renewed, of its next one.
    keys              text[] not null default '{}',
    -- Grows when an agent is accepted or revoked; connections of an earlier one end.
    generation        bigint not null default 0,
    accepted_at       timestamptz,
    revoked_at        timestamptz,
    certificate_until timestamptz
);
create unique index link_token on link (token);

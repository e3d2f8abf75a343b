-- Destinations at which an app did not become ready. Plans choose others for a while.
create table refused_destination (
    dig_id     uuid not null,
    app        text not null,
    member     text not null,
    -- Of the objects that did not become ready there.
    digest     text not null,
    reason     text not null,
    refused_at timestamptz not null default now(),
    primary key (dig_id, app, member)
);

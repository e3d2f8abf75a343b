-- Members that refused the objects of an app for what they have, and would refuse them again: what `explain` says would be decided now leaves
-- them out. Kept until the app runs there, or has other objects.
create table refusal (
    dig_id     uuid not null references deployment (dig_id) on delete cascade,
    app        text not null,
    member     text not null,
    -- Of the objects that were refused.
    digest     text not null,
    reason     text not null,
    refused_at timestamptz not null default now(),
    primary key (dig_id, app, member)
);

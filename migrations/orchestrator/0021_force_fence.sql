-- What operators have vouched for: in this cluster nothing runs any more that this operation moves. Kept as a record.
create table force_fence (
    operation uuid not null,
    member    text not null,
    reason    text not null,
    -- Empty if nobody says a name.
    by        text not null,
    at        timestamptz not null default now(),
    primary key (operation, member)
);

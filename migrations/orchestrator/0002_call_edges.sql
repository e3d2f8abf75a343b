-- Calls between the apps of a composite app as they were measured; what users declare is in their documents.
create table call_edge (
    composite_app uuid not null references resource (id) on delete cascade,
    caller        text not null,
    called        text not null,
    source        text not null,
    rate          double precision not null,
    confidence    double precision not null,
    seen_at       timestamptz not null,
    primary key (composite_app, caller, called, source),
    constraint call_edge_source check (source in ('traces', 'prometheus'))
);

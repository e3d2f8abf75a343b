-- The share of users' requests that a copy of an app gets while its app is being moved. Without a row a current copy has 100, another 0.
create table traffic_weight (
    binding   uuid primary key,
    operation uuid not null,
    weight    smallint not null
);
create index traffic_weight_operation on traffic_weight (operation);

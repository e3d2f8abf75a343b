-- Documents that SQL never looks into become bytes (placement's store/packed.rs: a first byte that says how, 0 for JSON), and what
-- apps ask for is kept once per content: as jsonb in every decision and again in every claim it was most of what a decision cost.

-- For ever, as decisions are. No foreign keys point here: rows are only ever added, in the statement that first names them, and
-- a check for each claim would cost more than the claim.
create table app_request (
    -- SHA-256 of what was written.
    digest bytea primary key,
    body bytea not null
);
alter table app_request alter column body set storage external;
insert into app_request (digest, body)
select distinct sha256(convert_to(request::text, 'UTF8')), '\x00'::bytea || convert_to(request::text, 'UTF8')
from (
    select request from claim
    union all
    select jsonb_array_elements(request -> 'apps') from decision
) as every (request);

alter table decision
    add column fence bigint,
    add column overflow boolean,
    -- Digests of its apps' requests, 32 bytes each.
    add column requests bytea,
    add column packed bytea;
update decision set
    fence = (request ->> 'fence')::bigint,
    overflow = coalesce((request ->> 'overflow')::boolean, false),
    requests = (
        select coalesce(string_agg(sha256(convert_to(app::text, 'UTF8')), ''::bytea order by n), ''::bytea)
        from jsonb_array_elements(request -> 'apps') with ordinality as asked (app, n)
    ),
    packed = '\x00'::bytea || convert_to(answer::text, 'UTF8');
alter table decision
    drop column request,
    drop column answer,
    alter column fence set not null,
    alter column overflow set not null,
    alter column requests set not null,
    alter column packed set not null,
    alter column packed set storage external;
alter table decision rename column packed to answer;

alter table claim add column digest bytea;
update claim set digest = sha256(convert_to(request::text, 'UTF8'));
alter table claim drop column request, alter column digest set not null;
alter table claim rename column digest to request;

-- Operations that need a plan. One at a time plans and claims what its plan needs, so that no two plans choose the same victims or
-- the same room. The order is that of arrival.
create table planning_queue (
    workflow_id uuid primary key references workflow on delete cascade,
    place       bigint generated always as identity,
    -- waiting: for its turn · planning: it has the turn · blocked: there is no plan until another operation ends
    state       text not null default 'waiting',
    -- When it got the turn. A turn that takes too long passes to the next one.
    since       timestamptz not null default now(),
    constraint planning_queue_state check (state in ('waiting', 'planning', 'blocked'))
);
create unique index planning_queue_turn on planning_queue (state) where state = 'planning';

-- Ledger sequence of the latest claim that a plan led to. The next plan must know of it.
create table planning_ledger (
    only_row boolean primary key default true check (only_row),
    seq      bigint not null default 0
);
insert into planning_ledger default values;

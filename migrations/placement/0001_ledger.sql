-- The ledger: who holds room where. One process decides in memory and logs here; `head` makes any number of processes correct:
-- whoever moves it from the sequence that he decided on has decided on the truth.

create table head (
    single boolean primary key default true check (single),
    -- Sequence of the last entry. Every decision and every transaction takes one number.
    seq bigint not null default 0,
    -- Tombstones up to here were tidied away: a reader that stands before it starts anew.
    tidied bigint not null default 0
);
insert into head default values;

-- What was asked and what was answered, for ever: a repeated request gets the same answer, and people can ask why.
create table decision (
    id uuid primary key,
    seq bigint not null,
    project text not null,
    composite_app text not null,
    dig text not null,
    dig_id uuid not null,
    operation uuid not null,
    outcome text not null check (outcome in ('placed', 'no_room', 'unknown', 'impossible')),
    request jsonb not null,
    answer jsonb not null,
    created_at timestamptz not null default now()
);
create index decision_of_dig on decision (project, dig, seq desc);
create index decision_of_composite_app on decision (project, composite_app, seq desc);

-- Room that a binding takes.
create table claim (
    id uuid primary key,
    seq bigint not null,
    dig_id uuid not null,
    project text not null,
    composite_app text not null,
    composite_app_version text not null,
    dig text not null,
    app text not null,
    member text not null,
    state text not null check (state in ('held', 'promised', 'leaving')),
    surging boolean not null,
    fence bigint not null,
    operation uuid not null,
    -- Demand and terms, and the witness: opaque to SQL.
    request jsonb not null,
    pods jsonb not null
);
create index claim_by_seq on claim (seq);

-- What remains of a released claim for a week: readers that follow by `seq` hear of it, and a writer that was replaced (a lower
-- fence) cannot take the room after all.
create table tombstone (
    id uuid primary key,
    seq bigint not null,
    fence bigint not null,
    released_at timestamptz not null default now()
);
create index tombstone_by_seq on tombstone (seq);

-- What a transaction answered, so that repeating it is harmless.
create table receipt (
    id uuid primary key,
    seq bigint not null,
    operation uuid not null,
    answer jsonb not null,
    created_at timestamptz not null default now()
);

-- Whose turn is next: the highest priority first, and among equal ones whoever came first. It is the highest priority of the group's
-- migration intents: apps that give way last also get room first.
alter table planning_queue add column priority smallint not null default 10;

-- waiting: for its turn · planning: it has the turn · blocked: it comes back by itself · awaiting: until another operation ends.
-- All that await come back together, so that their order counts and not which of them is faster.
alter table planning_queue drop constraint planning_queue_state;
alter table planning_queue add constraint planning_queue_state check (state in ('waiting', 'planning', 'blocked', 'awaiting'));

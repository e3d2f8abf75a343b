-- How plans end, with the reason for people; and the operation that a plan was made for, which may end without using it.
alter table plan drop constraint plan_state_check;
alter table plan drop constraint plan_check;
alter table plan
    add column made_for uuid,
    add column why text,
    add constraint plan_state_check
        check (state in ('proposed', 'accepted', 'discarded', 'infeasible', 'applied', 'refused', 'superseded')),
    add constraint plan_operation_check check ((state in ('accepted', 'applied', 'refused')) = (operation is not null));
create index plan_open on plan (created_at) where state in ('proposed', 'accepted');
create index plan_made_for on plan (made_for) where state = 'proposed' and made_for is not null;

-- How far the hooks of a binding's chart have run (services/resource-synchronizer/src/store/hooks.rs). Null: it has run none.
alter table binding add column hooks jsonb;

-- What was there before Drover ran hooks is installed.
update binding set hooks = jsonb_build_object('settled', digest, 'event', null, 'applied', '[]'::jsonb) where present;

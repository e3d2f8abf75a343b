-- A batch of ledger entries, all or none, if nobody moved the head since it was decided. No row comes back: somebody did.
with h as (
    update head set seq = seq + $1 where seq = $2 returning seq
), d as (
    insert into decision (id, seq, project, composite_app, dig, dig_id, operation, outcome, request, answer)
    select r.id, r.seq, r.project, r.composite_app, r.dig, r.dig_id, r.operation, r.outcome, r.request::jsonb, r.answer::jsonb
    from h, unnest($3::uuid[], $4::bigint[], $5::text[], $6::text[], $7::text[], $8::uuid[], $9::uuid[], $10::text[], $11::text[], $12::text[])
        as r (id, seq, project, composite_app, dig, dig_id, operation, outcome, request, answer)
), t as (
    insert into receipt (id, seq, operation, answer)
    select r.id, r.seq, r.operation, r.answer::jsonb
    from h, unnest($13::uuid[], $14::bigint[], $15::uuid[], $16::text[]) as r (id, seq, operation, answer)
), c as (
    insert into claim (id, seq, dig_id, project, composite_app, composite_app_version, dig, app, member, state, surging, fence, operation, request, pods)
    select r.id, r.seq, r.dig_id, r.project, r.composite_app, r.composite_app_version, r.dig, r.app, r.member, r.state, r.surging, r.fence,
        r.operation, r.request::jsonb, r.pods::jsonb
    from h, unnest($17::uuid[], $18::bigint[], $19::uuid[], $20::text[], $21::text[], $22::text[], $23::text[], $24::text[], $25::text[],
            $26::text[], $27::bool[], $28::bigint[], $29::uuid[], $30::text[], $31::text[])
        as r (id, seq, dig_id, project, composite_app, composite_app_version, dig, app, member, state, surging, fence, operation, request, pods)
    on conflict (id) do update set
        seq = excluded.seq, dig_id = excluded.dig_id, project = excluded.project, composite_app = excluded.composite_app,
        composite_app_version = excluded.composite_app_version, dig = excluded.dig, app = excluded.app, member = excluded.member,
        state = excluded.state, surging = excluded.surging, fence = excluded.fence, operation = excluded.operation,
        request = excluded.request, pods = excluded.pods
)

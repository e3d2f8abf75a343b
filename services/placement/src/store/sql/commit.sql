-- Writes a batch of ledger entries, all or none, if the head is still the one that it was decided on. Returns no row if it is not.
with h as (
    update head set seq = seq + $1 where seq = $2 returning seq
), q as (
    insert into app_request (digest, body)
    select r.digest, r.body from h, unnest($3::bytea[], $4::bytea[]) as r (digest, body)
    on conflict (digest) do nothing
), d as (
    insert into decision (id, seq, project, composite_app, dig, dig_id, operation, fence, overflow, outcome, requests, answer)
    select r.id, r.seq, r.project, r.composite_app, r.dig, r.dig_id, r.operation, r.fence, r.overflow, r.outcome, r.requests, r.answer
    from h, unnest($5::uuid[], $6::bigint[], $7::text[], $8::text[], $9::text[], $10::uuid[], $11::uuid[], $12::bigint[], $13::bool[],
            $14::text[], $15::bytea[], $16::bytea[])
        as r (id, seq, project, composite_app, dig, dig_id, operation, fence, overflow, outcome, requests, answer)
), t as (
    insert into receipt (id, seq, operation, answer)
    select r.id, r.seq, r.operation, r.answer::jsonb
    from h, unnest($17::uuid[], $18::bigint[], $19::uuid[], $20::text[]) as r (id, seq, operation, answer)
), c as (
    insert into claim (id, seq, dig_id, project, composite_app, composite_app_version, dig, app, member, state, surging, fence, operation, request, pods)
    select r.id, r.seq, r.dig_id, r.project, r.composite_app, r.composite_app_version, r.dig, r.app, r.member, r.state, r.surging, r.fence,
        r.operation, r.request, r.pods::jsonb
    from h, unnest($21::uuid[], $22::bigint[], $23::uuid[], $24::text[], $25::text[], $26::text[], $27::text[], $28::text[], $29::text[],
            $30::text[], $31::bool[], $32::bigint[], $33::uuid[], $34::bytea[], $35::text[])
        as r (id, seq, dig_id, project, composite_app, composite_app_version, dig, app, member, state, surging, fence, operation, request, pods)
    on conflict (id) do update set
        seq = excluded.seq, dig_id = excluded.dig_id, project = excluded.project, composite_app = excluded.composite_app,
        composite_app_version = excluded.composite_app_version, dig = excluded.dig, app = excluded.app, member = excluded.member,
        state = excluded.state, surging = excluded.surging, fence = excluded.fence, operation = excluded.operation,
        request = excluded.request, pods = excluded.pods
)

-- Continues commit.sql for batches that release claims.
, gone as (
    delete from claim using h where claim.id = any($36::uuid[])
), stone as (
    insert into tombstone (id, seq, fence)
    select r.id, r.seq, r.fence from h, unnest($36::uuid[], $37::bigint[], $38::bigint[]) as r (id, seq, fence)
    on conflict (id) do update set seq = excluded.seq, fence = greatest(tombstone.fence, excluded.fence), released_at = now()
)

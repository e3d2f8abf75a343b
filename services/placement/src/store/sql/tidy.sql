-- Deletes tombstones and receipts older than a week. A reader that has not seen a deleted tombstone reads all claims again (head.tidied).
with gone as (
    delete from tombstone where released_at < now() - interval '7 days' returning seq
), receipts as (
    delete from receipt where created_at < now() - interval '7 days'
)
update head set tidied = greatest(tidied, (select max(seq) from gone)) where exists (select from gone)

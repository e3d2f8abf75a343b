-- Tombstones and receipts that nobody can need any more; readers that stand before the last of them start anew.
with gone as (
    delete from tombstone where released_at < now() - interval '7 days' returning seq
), receipts as (
    delete from receipt where created_at < now() - interval '7 days'
)
update head set tidied = greatest(tidied, (select max(seq) from gone)) where exists (select from gone)

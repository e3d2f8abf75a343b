insert into call_edge as known (composite_app, caller, called, source, rate, confidence, seen_at)
select $1, caller, called, $2, sum(rate), max(confidence), now() - make_interval(secs => min(age))
-- A query that groups by more than the two ends tells of a pair several times.
from unnest($3::text[], $4::text[], $5::float8[], $6::float8[], $7::float8[]) as seen (caller, called, rate, confidence, age)
where exists (select 1 from resource where id = $1)
group by caller, called
on conflict (composite_app, caller, called, source) do update
set rate = excluded.rate, confidence = excluded.confidence, seen_at = excluded.seen_at
-- Doubt grows with age: with the half-life of the collector, 600 s, for the calls that stand behind the confidence.
where excluded.confidence >= 1 - 1 / sqrt(1 + (power(1 - least(known.confidence, 0.999999), -2) - 1)
    * power(0.5, extract(epoch from greatest(excluded.seen_at - known.seen_at, interval '0')) / 600))

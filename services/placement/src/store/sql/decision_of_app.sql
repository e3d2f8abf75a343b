-- The last decision that placed or refused this app of a deployment intent group or composite app of that name.
select request, answer, created_at
from decision
where project = $1 and (dig = $2 or composite_app = $2) and request -> 'apps' @> jsonb_build_array(jsonb_build_object('app', $3::text))
order by seq desc
limit 1

-- Decisions about a deployment intent group or composite app of that name, the last first, before a sequence.
select requests, answer, operation, fence, overflow, created_at
from decision
where project = $1 and (dig = $2 or composite_app = $2) and seq < $3
order by seq desc
limit $4

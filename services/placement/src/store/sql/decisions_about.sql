-- Decisions about the deployment intent group or composite app $2 before the sequence number $3, the last first.
select requests, answer, operation, fence, overflow, created_at
from decision
where project = $1 and (dig = $2 or composite_app = $2) and seq < $3
order by seq desc
limit $4

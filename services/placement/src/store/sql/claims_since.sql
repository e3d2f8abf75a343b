-- Claims that were written after the sequence number $1.
select id, dig_id, project, composite_app, composite_app_version, dig, app, member, state, surging, fence, operation, request, pods
from claim
where seq > $1

-- Claims, filtered by deployment intent group, member and operation.
select id, dig_id, project, composite_app, composite_app_version, dig, app, member, state, surging, fence, operation, request, pods
from claim
where ($1::uuid is null or dig_id = $1)
    and ($2::text is null or member = $2)
    and ($3::uuid is null or operation = $3)
order by project, composite_app, dig, app, member, id

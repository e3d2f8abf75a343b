-- Finds the groups with an app for every cluster of a selection without a look at all others.
create index deployment_revision_app_spreads on deployment_revision_app (dig_id)
    where jsonb_path_exists(terms, '$.intent.allOf[*] ? (exists(@.clusterLabel) || @.cluster == "*")');

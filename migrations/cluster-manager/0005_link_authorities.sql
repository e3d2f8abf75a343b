-- The authority of links can be replaced. The certificate of the one before it is kept for those who know only that.

-- The certificate of this authority as the one before it has signed it; null for the first one.
alter table link_authority add column crossed text;

create table link_authority_earlier (
    certificate text primary key,
    -- As above. Its key is gone.
    crossed     text,
    replaced_at timestamptz not null
);

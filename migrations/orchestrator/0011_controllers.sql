-- The objects of an app in the clusters where they differ from those of its bundle.
create table bundle_variant (
    digest  text not null references bundle (digest) on delete cascade,
    member  text not null,
    objects jsonb not null,
    primary key (digest, member)
);

-- What controllers of users answered when a group was approved, and when a revision was made.
alter table deployment add column controllers jsonb not null default '[]';
alter table deployment_revision add column controllers jsonb not null default '[]';

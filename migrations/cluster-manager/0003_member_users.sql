-- Users of members, for logical clouds: a key of Drover's making, and a certificate that the member's own authority has signed.
create table member_user (
    id         uuid primary key,
    cluster_id uuid not null constraint member_user_cluster_id_fkey references resource on delete cascade,
    user_name  text not null,
    namespace  text not null,
    -- Key and certificate, sealed (libs/store).
    sealed     bytea not null,
    -- The validity of the certificate.
    starts_at  timestamptz not null,
    expires_at timestamptz not null
);

//! The engine against a real Postgres, with a made-up move and made-up members.

mod fixture;
mod hands;
mod lifecycle;
mod parking;
mod properties;

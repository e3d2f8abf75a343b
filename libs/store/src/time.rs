//! One time type for Rust and Postgres: jiff's timestamp, stored as `timestamptz`.
//!
//! sqlx does not support jiff. Postgres stores microseconds, so [`now`] is rounded to them: a value reads back as it was written.

use std::ops::Deref;

use serde::{Deserialize, Serialize};
use sqlx::encode::IsNull;
use sqlx::error::BoxDynError;
use sqlx::postgres::types::Oid;
use sqlx::postgres::{PgArgumentBuffer, PgHasArrayType, PgTypeInfo, PgValueFormat, PgValueRef};
use sqlx::{Decode, Encode, Postgres, Type};

/// Microseconds from 1970 to 2000, the epoch of Postgres.
const POSTGRES_EPOCH_MICROS: i64 = 946_684_800_000_000;
const TIMESTAMPTZ: Oid = Oid(1184);
const TIMESTAMPTZ_ARRAY: Oid = Oid(1185);

/// An instant, to the microsecond; RFC 3339 with `Z` in JSON, `timestamptz` in Postgres.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(pub jiff::Timestamp);

/// The current time.
pub fn now() -> Timestamp {
    Timestamp::from(jiff::Timestamp::now())
}

impl From<jiff::Timestamp> for Timestamp {
    fn from(instant: jiff::Timestamp) -> Self {
        // This cannot fail: the value is in jiff's range.
        Self(jiff::Timestamp::from_microsecond(instant.as_microsecond()).unwrap_or(instant))
    }
}

impl From<Timestamp> for jiff::Timestamp {
    fn from(timestamp: Timestamp) -> Self {
        timestamp.0
    }
}

impl Deref for Timestamp {
    type Target = jiff::Timestamp;
    fn deref(&self) -> &jiff::Timestamp {
        &self.0
    }
}

impl std::fmt::Display for Timestamp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl Type<Postgres> for Timestamp {
    fn type_info() -> PgTypeInfo {
        PgTypeInfo::with_oid(TIMESTAMPTZ)
    }
}

impl PgHasArrayType for Timestamp {
    fn array_type_info() -> PgTypeInfo {
        PgTypeInfo::with_oid(TIMESTAMPTZ_ARRAY)
    }
}

impl Encode<'_, Postgres> for Timestamp {
    fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        Encode::<Postgres>::encode(self.0.as_microsecond() - POSTGRES_EPOCH_MICROS, buffer)
    }

    fn size_hint(&self) -> usize {
        size_of::<i64>()
    }
}

impl<'r> Decode<'r, Postgres> for Timestamp {
    fn decode(value: PgValueRef<'r>) -> Result<Self, BoxDynError> {
        let instant = match value.format() {
            PgValueFormat::Binary => {
                let micros = <i64 as Decode<Postgres>>::decode(value)?;
                jiff::Timestamp::from_microsecond(micros.checked_add(POSTGRES_EPOCH_MICROS).ok_or("timestamptz out of range")?)?
            }
            PgValueFormat::Text => value.as_str()?.parse()?,
        };
        Ok(Self(instant))
    }
}

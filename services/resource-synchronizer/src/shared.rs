//! What bindings of an app have in common, whatever their member: kept once. Each row that is read has its own.

use std::sync::{Mutex, PoisonError};

use drover_scheduling::{DigRef, Interner};

use crate::store::bindings::Row;

/// See the module.
#[derive(Default)]
pub struct Shared(Mutex<Known>);

#[derive(Default)]
struct Known {
    digs: Interner<DigRef>,
    digests: Interner<str>,
}

impl Shared {
    /// The row, sharing what it can.
    pub fn row(&self, mut row: Row) -> Row {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        row.desired.dig = known.digs.intern(row.desired.dig);
        row.desired.digest = known.digests.intern(row.desired.digest);
        row
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use drover_api::bindings::{DesiredBinding, DesiredState};
    use drover_scheduling::MemberKey;
    use uuid::Uuid;

    use super::*;

    #[test]
    fn rows_of_an_app_share_its_group_and_its_digest() {
        let row = |member: &str, digest: &str| {
            let (id, dig, member, state) = (Uuid::new_v4(), Arc::default(), MemberKey::new("p", member), DesiredState::Present);
            let (app, namespace, digest) = ("a".to_owned(), "n".to_owned(), digest.into());
            Row { desired: DesiredBinding { id, dig, app, member, namespace, digest, state, fence: 1 }, gone: false }
        };
        let shared = Shared::default();
        let [one, two, other] = [row("x", "d"), row("y", "d"), row("x", "e")].map(|row| shared.row(row).desired);
        assert!(Arc::ptr_eq(&one.dig, &two.dig) && Arc::ptr_eq(&one.digest, &two.digest));
        assert_eq!((&*other.digest, other.member.cluster()), ("e", "x"));
    }
}

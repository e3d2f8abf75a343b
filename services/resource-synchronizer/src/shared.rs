//! Keeps values once that many bindings have in common: the bindings of an app in all members. Every row read has its own copy.

use std::sync::{Mutex, PoisonError};

use drover_api::grants::Grants;
use drover_scheduling::{DigRef, Interner};

use crate::store::bindings::Row;

/// Values that bindings have in common.
#[derive(Default)]
pub struct Shared(Mutex<SharedValues>);

#[derive(Default)]
struct SharedValues {
    digs: Interner<DigRef>,
    digests: Interner<str>,
    accounts: Interner<str>,
    grants: Interner<Grants>,
}

impl Shared {
    /// The row with its group, its digest, its grants and its account replaced by the shared ones.
    pub fn row(&self, mut row: Row) -> Row {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        row.desired.dig = known.digs.intern(row.desired.dig);
        row.desired.digest = known.digests.intern(row.desired.digest);
        row.desired.grants = row.desired.grants.map(|grants| known.grants.intern(grants));
        row.desired.act_as = row.desired.act_as.map(|account| known.accounts.intern(account));
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
    fn row_shares_group_and_digest_with_rows_of_the_same_app() {
        let row = |member: &str, digest: &str| {
            let (id, dig, member, state) = (Uuid::new_v4(), Arc::default(), MemberKey::new("p", member), DesiredState::Present);
            let (app, namespace, digest) = ("a".to_owned(), "n".to_owned(), digest.into());
            Row {
                desired: DesiredBinding {
                    id,
                    dig,
                    app,
                    member,
                    namespace,
                    digest,
                    state,
                    fence: 1,
                    grants: None,
                    act_as: None,
                    share: None,
                    rollback: false,
                    delete_volumes: false,
                    names: false,
                },
                gone: false,
                kept: Vec::new(),
                hooks: None,
                served: None,
                test: None,
                stand_in: false,
                bounds: None,
            }
        };
        let shared = Shared::default();
        let [one, two, other] = [row("x", "d"), row("y", "d"), row("x", "e")].map(|row| shared.row(row).desired);
        assert!(Arc::ptr_eq(&one.dig, &two.dig) && Arc::ptr_eq(&one.digest, &two.digest));
        assert_eq!((&*other.digest, other.member.cluster()), ("e", "x"));
    }
}

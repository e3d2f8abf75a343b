//! When the authority of links is replaced, and for how long the one before it is kept. Pure: times come from the caller.
//!
//! ```text
//! first ───── two thirds of its time ─────▶ second is made; it signs everything from now on, and the key of the first is gone
//!                                           ├─ the first has signed the second: who knows only the first believes the second
//!                                           └─ KEPT later the certificate of the first is forgotten
//! ```
//! Agents learn the newest authority with each certificate. Invariant: nobody who could show a valid certificate or invitation has to be
//! invited again because of this; nothing valid is older than [`KEPT`].

use std::time::{Duration, SystemTime};

const DAY: Duration = Duration::from_secs(24 * 3600);
/// For how long the certificate of an authority is valid.
pub const LIFETIME: Duration = Duration::from_secs(3 * 365 * 24 * 3600);
/// For how long the certificate of an authority that was replaced is kept: a day longer than the longest life of an agent's certificate, and
/// of an invitation.
pub const KEPT: Duration = Duration::from_secs(31 * 24 * 3600);
/// How many are kept at most; whoever replaces more of them in that time invites agents again that were not connected meanwhile. TLS
/// libraries follow no longer chains.
pub const MOST: usize = 4;
/// For how long the listener's certificate is valid, and when it is made anew.
pub const LISTENER: (Duration, Duration) = (Duration::from_secs(7 * 24 * 3600), DAY);

/// Whether an authority that is valid from and until these times is to be replaced.
pub fn is_due((from, until): (SystemTime, SystemTime), now: SystemTime) -> bool {
    // The first ones of earlier versions were made for twenty years.
    let whole = until.duration_since(from).unwrap_or_default().min(LIFETIME);
    now >= from + whole * 2 / 3
}

/// Whether an authority that was replaced at this time still counts.
pub fn is_kept(replaced: SystemTime, now: SystemTime) -> bool {
    now < replaced + KEPT
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);
    const STEP: Duration = Duration::from_secs(4 * 3600);
    /// The longest that the settings allow.
    const LONGEST: Duration = Duration::from_secs(2_592_000);

    /// What an agent, or the holder of an invitation, has.
    #[derive(Clone, Copy)]
    struct Holder {
        /// The authority that it believes, by number.
        knows: usize,
        /// Who signed its certificate; none has no certificate yet.
        signed_by: Option<usize>,
        until: SystemTime,
        /// For how long its certificates are valid.
        lifetime: Duration,
        /// When it comes next.
        comes: SystemTime,
    }

    /// Runs the clock for twelve years, with authorities that are kept for so long. Returns how often somebody with something valid was
    /// refused, and how many authorities there were.
    fn refused(kept: impl Fn(SystemTime, SystemTime) -> bool) -> (usize, usize) {
        let start = SystemTime::UNIX_EPOCH;
        // When each authority was made, which is when the one before it was replaced.
        let mut made = vec![start];
        let holder = |lifetime, share: u32| Holder {
            knows: 0,
            signed_by: None,
            until: start + lifetime,
            lifetime,
            // As late as it can: after all but a hundredth of the time, or early.
            comes: start + lifetime * share / 100,
        };
        let mut holders: Vec<Holder> =
            [HOUR * 12, DAY, DAY * 9, LONGEST].iter().flat_map(|l| [67, 83, 99].map(|s| holder(*l, s))).collect();
        let (mut now, mut refused) = (start, 0);
        while now < start + DAY * 365 * 12 {
            let newest = made.len() - 1;
            if is_due((made[newest], made[newest] + LIFETIME), now) {
                made.push(now);
            }
            let newest = made.len() - 1;
            let counts = |of: usize| of == newest || kept(made[of + 1], now);
            for holder in &mut holders {
                if now < holder.comes {
                    continue;
                }
                // The hub shows a chain from the newest authority to each that is kept.
                let believes = counts(holder.knows);
                let believed = holder.signed_by.is_none_or(counts);
                refused += usize::from(holder.until > now && !(believes && believed));
                // Every third time it begins anew, with an invitation instead of a certificate.
                let begins = (now.duration_since(start).unwrap_or_default().as_secs() / STEP.as_secs()).is_multiple_of(3);
                let share = if begins { 99 } else { 67 };
                *holder = Holder {
                    knows: newest,
                    signed_by: (!begins).then_some(newest),
                    until: now + holder.lifetime,
                    lifetime: holder.lifetime,
                    comes: now + holder.lifetime * share / 100,
                };
            }
            now += STEP;
        }
        (refused, made.len())
    }

    #[test]
    fn nobody_with_something_valid_is_refused_because_the_authority_was_replaced() {
        let (refusals, authorities) = refused(is_kept);
        assert_eq!(refusals, 0);
        assert_eq!(authorities, 6, "each lives for two years of its three before it is replaced");
        let (refusals, _) = refused(|replaced, now| now < replaced + DAY);
        assert!(refusals > 0, "this test can find refusals");
    }

    #[test]
    fn authority_is_due_after_two_thirds_of_its_time_and_kept_for_longer_than_anything_that_it_signed() {
        let at = |days: u32| SystemTime::UNIX_EPOCH + DAY * days;
        let valid = (at(0), at(30));
        assert!(!is_due(valid, at(20) - HOUR) && is_due(valid, at(20)) && is_due(valid, at(40)));
        assert!(is_due((at(0), at(20 * 365)), at(2 * 365)) && !is_due((at(0), at(20 * 365)), at(2 * 365) - HOUR));
        assert!(is_kept(at(0), at(30)) && !is_kept(at(0), at(31)));
        assert!(KEPT > LONGEST && LIFETIME / 3 > KEPT);
    }
}

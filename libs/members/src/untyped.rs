//! How an API server refuses objects that it cannot compare field by field.

/// How the refusal of an object begins that its schema does not allow. The API server answers 500, as if it were its own fault.
pub(crate) const NOT_TYPED: &str = "failed to create typed patch object";

/// Whether an object was refused only because a list in it has two items of one key. [`Member::write_plainly`](crate::Member::write_plainly)
/// can write it.
pub(crate) fn has_duplicate_keys(reason: &str) -> bool {
    reason.starts_with(NOT_TYPED) && reason.contains("duplicate entries for key") && !reason.contains("field not declared")
}

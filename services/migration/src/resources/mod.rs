//! The documents, a file per noun.

pub mod algorithm;
pub mod builtin;
pub mod intent;
pub mod parameter;
pub mod policy;
pub mod rules;

use drover_resources::DocumentKind;

/// Every kind of document that migration owns.
pub static KINDS: [&DocumentKind; 5] =
    [&intent::MIGRATION_INTENT, &intent::APP_INTENT, &policy::POLICY, &algorithm::ALGORITHM, &parameter::PARAMETER];

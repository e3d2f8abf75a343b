//! The documents, one file per kind.

pub mod algorithm;
pub mod builtin;
pub mod intent;
pub mod parameter;
pub mod policy;
pub mod rules;

use drover_resources::DocumentKind;

/// All kinds of documents that migration owns.
pub static KINDS: [&DocumentKind; 5] =
    [&intent::MIGRATION_INTENT, &intent::APP_INTENT, &policy::POLICY, &algorithm::ALGORITHM, &parameter::PARAMETER];

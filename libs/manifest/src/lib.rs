//! Reads YAML and JSON that users send: manifests, rendered charts, values, profiles, kubeconfigs. No I/O.
//!
//! Scalars mean what they mean to kubectl (YAML 1.1, as sigs.k8s.io/yaml reads it): `0744` is an octal number, `yes` and `on` are
//! booleans. [`yaml`] reads text, [`objects`] finds the Kubernetes objects in it,
//! [`callers`] the Services that their pods call.
//!
//! Invariant: whatever the text is, reading it takes memory and time in proportion to [`budget`]: aliases, nesting and the number of
//! values are limited. Reading may still take a second, so callers on an async runtime do it on a thread for blocking work.

pub mod budget;
pub mod callers;
mod json;
pub mod objects;
mod scalar;
mod write;
pub mod yaml;

pub use budget::Limits;
pub use objects::{Address, Manifest, ManifestError, Place};
pub use write::to_text;
pub use yaml::{Document, YamlError, documents, one};

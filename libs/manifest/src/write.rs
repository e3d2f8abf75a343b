//! Writes manifests as text that every reader reads alike.

use std::fmt::Write;

use crate::objects::Manifest;

/// The manifests as documents of one text: JSON, which is also YAML, so that no reader takes text for a number or a boolean. A comment
/// before each says where it came from.
pub fn to_text(manifests: &[Manifest]) -> String {
    let mut text = String::new();
    for manifest in manifests {
        let place = manifest.place.to_string().replace(char::is_control, " ");
        // A value made of JSON can always be written as JSON.
        let json = serde_json::to_string_pretty(&manifest.value).unwrap_or_default();
        let _ = writeln!(text, "---\n# {place}\n{json}");
    }
    text
}

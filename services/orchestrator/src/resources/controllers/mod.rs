//! The documents of EMCO's controllers. Those of the traffic controller (`traffic`), the generic action controller (`generic`) and hardware
//! placement (`hpa`) are carried out when a group is approved (`app::actions`). All others (`kept`) are only stored, and the response to each
//! write says so.

pub mod generic;
pub mod hpa;
pub mod kept;
pub mod traffic;

use drover_resources::is_name;

/// The reasons why fields that must be names are not.
fn not_names<'a>(fields: impl IntoIterator<Item = (&'a str, &'a str)>) -> Vec<String> {
    let broken = fields.into_iter().filter(|(_, value)| !is_name(value));
    broken.map(|(field, value)| format!("spec.{field}: {value:?} is not a name")).collect()
}

//! Packs objects that have not changed for a while: JSON compressed by lz4 with another object of the same kind as dictionary, so that a
//! thousand similar pods take little more memory than one. Reading unpacks a copy; the stored object stays packed until it is written.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use serde::de::DeserializeOwned;
use serde_json::Value;

/// The dictionary of each resource, made of its first objects; shared by the whole process. lz4 uses at most the last 64 KiB.
static MODELS: LazyLock<Mutex<Models>> = LazyLock::new(Mutex::default);
type Models = HashMap<Arc<str>, Arc<[u8]>>;
/// Longest dictionary, in bytes: of a larger first object only the beginning is used.
const LONGEST_MODEL: usize = 16 << 10;

/// A packed object.
#[derive(Debug, Clone)]
pub struct Frozen {
    packed: Box<[u8]>,
    length: u32,
    model: Arc<[u8]>,
}

impl Frozen {
    /// Packs an object of this resource (`plural.group`).
    pub fn of(resource: &Arc<str>, object: &Value) -> Self {
        let json = object.to_string().into_bytes();
        let model = {
            let mut models = MODELS.lock().unwrap_or_else(PoisonError::into_inner);
            models.entry(resource.clone()).or_insert_with(|| json[..json.len().min(LONGEST_MODEL)].into()).clone()
        };
        let packed = lz4_flex::block::compress_with_dict(&json, &model);
        Self { packed: packed.into(), length: u32::try_from(json.len()).unwrap_or(u32::MAX), model }
    }

    /// Unpacks a copy of the whole object.
    pub fn thaw(&self) -> Arc<Value> {
        Arc::new(self.part())
    }

    /// Only the fields of `P`: decoding a whole pod takes ten times as long as skipping most of it.
    pub fn part<P: DeserializeOwned>(&self) -> P {
        serde_json::from_str(&self.json()).expect("what was packed here unpacks")
    }

    /// The JSON text that was packed.
    pub fn json(&self) -> String {
        let json = lz4_flex::block::decompress_with_dict(&self.packed, self.length as usize, &self.model);
        json.ok().and_then(|json| String::from_utf8(json).ok()).expect("what was packed here unpacks")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn objects_come_back_and_equal_ones_are_small() {
        let resource: Arc<str> = "frozen-tests".into();
        let pod = |uid: u32| {
            let containers: Vec<Value> =
                (0..20).map(|at| json!({"name": format!("c{at}"), "image": format!("registry/i{}", at * 7)})).collect();
            json!({"metadata": {"uid": uid}, "spec": {"containers": containers}})
        };
        for uid in [1, 2, 1_000_000] {
            let frozen = Frozen::of(&resource, &pod(uid));
            assert_eq!(*frozen.thaw(), pod(uid));
            assert!(frozen.packed.len() < 100, "{} bytes", frozen.packed.len());
        }
        let other = json!({"quite": "another", "long": "x".repeat(100_000)});
        assert_eq!(*Frozen::of(&resource, &other).thaw(), other);
    }
}

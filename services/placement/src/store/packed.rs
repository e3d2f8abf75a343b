//! Documents as bytes: JSON, packed by lz4 where that makes it smaller. The first byte says which.
//!
//! For what SQL never looks into. As `jsonb`, parsed, copied and compressed anew by Postgres, these documents cost more than
//! everything else of a decision together.

use std::borrow::Cow;

use drover_store::{StoreError, StoreResult};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// What follows is JSON. Migrations write this one.
const PLAIN: u8 = 0;
/// What follows is the length as 4 bytes, little endian, and an lz4 block of JSON.
const LZ4: u8 = 1;
/// Below this lz4 gains nothing.
const SHORT: usize = 64;
/// More than any request may have.
const LONGEST: usize = 256 << 20;

/// Packs a document's JSON.
pub fn pack_json(json: &[u8]) -> Vec<u8> {
    if json.len() >= SHORT {
        let mut packed = vec![0; 5 + lz4_flex::block::get_maximum_output_size(json.len())];
        packed[0] = LZ4;
        packed[1..5].copy_from_slice(&u32::try_from(json.len()).unwrap_or(u32::MAX).to_le_bytes());
        if let Ok(length) = lz4_flex::block::compress_into(json, &mut packed[5..])
            && length < json.len()
        {
            packed.truncate(5 + length);
            packed.shrink_to_fit();
            return packed;
        }
    }
    [&[PLAIN], json].concat()
}

/// A document's JSON.
pub fn json(document: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(document).expect("maps with string keys always serialise")
}

/// Unpacks a document.
pub fn unpack<T: DeserializeOwned>(bytes: &[u8]) -> StoreResult<T> {
    serde_json::from_slice(&unpack_json(bytes)?).map_err(|error| undecodable(error.to_string()))
}

/// Unpacks a document's JSON.
pub fn unpack_json(bytes: &[u8]) -> StoreResult<Cow<'_, [u8]>> {
    Ok(match bytes {
        [PLAIN, json @ ..] => Cow::Borrowed(json),
        [LZ4, a, b, c, d, block @ ..] => {
            let length = u32::from_le_bytes([*a, *b, *c, *d]) as usize;
            if length > LONGEST {
                return Err(undecodable(format!("a document of {length} bytes")));
            }
            Cow::Owned(lz4_flex::block::decompress(block, length).map_err(|error| undecodable(error.to_string()))?)
        }
        _ => return Err(undecodable("a document packed in an unknown way".to_owned())),
    })
}

fn undecodable(error: String) -> StoreError {
    StoreError::from(sqlx::Error::Decode(error.into()))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn documents_come_back_and_repetition_is_small() {
        let members: Vec<Value> = (0..50).map(|n| json!({"member": format!("onprem+{n}"), "verdict": "fits"})).collect();
        for document in [json!(null), json!({"short": true}), Value::from(members)] {
            let packed = pack_json(&json(&document));
            assert_eq!(unpack::<Value>(&packed).unwrap_or_default(), document);
            let length = json(&document).len();
            assert!(packed.len() <= length + 1 && (length < 500 || packed.len() < length / 3), "{length} bytes became {}", packed.len());
        }
    }

    #[test]
    fn what_is_damaged_is_an_error_and_no_panic() {
        let mut cut = pack_json(&json(&vec!["the same"; 100]));
        cut.truncate(20);
        for bytes in [&[][..], &[7, 1], &[LZ4, 1], &[LZ4, 255, 255, 255, 255, 0], b"\0{", &cut] {
            assert!(unpack::<Value>(bytes).is_err(), "{bytes:?}");
        }
    }
}

//! Documents as bytes: JSON, compressed by lz4 where that makes it smaller. The first byte says which of the two.
//!
//! For documents that SQL never reads. As `jsonb`, which Postgres parses, copies and compresses, they cost more than everything else
//! of a decision together.

use std::borrow::Cow;

use drover_store::{StoreError, StoreResult};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// JSON follows. Migrations write this form.
const PLAIN: u8 = 0;
/// The length as 4 bytes, little endian, and an lz4 block of JSON follow.
const LZ4: u8 = 1;
/// Below this length in bytes lz4 gains nothing.
const SHORT: usize = 64;
/// Maximum length of the JSON in bytes; requests are far smaller.
const LONGEST: usize = 256 << 20;

/// Packs the JSON of a document.
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

/// Serialises a document.
pub fn json(document: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(document).expect("maps with string keys always serialise")
}

/// Unpacks and deserialises a document.
///
/// # Errors
/// The bytes are damaged, or are no document of this type.
pub fn unpack<T: DeserializeOwned>(bytes: &[u8]) -> StoreResult<T> {
    serde_json::from_slice(&unpack_json(bytes)?).map_err(|error| undecodable(error.to_string()))
}

fn unpack_json(bytes: &[u8]) -> StoreResult<Cow<'_, [u8]>> {
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
    fn unpacked_document_equals_the_original_and_repetition_is_compressed() {
        let members: Vec<Value> = (0..50).map(|n| json!({"member": format!("onprem+{n}"), "verdict": "fits"})).collect();
        for document in [json!(null), json!({"short": true}), Value::from(members)] {
            let packed = pack_json(&json(&document));
            assert_eq!(unpack::<Value>(&packed).unwrap_or_default(), document);
            let length = json(&document).len();
            assert!(packed.len() <= length + 1 && (length < 500 || packed.len() < length / 3), "{length} bytes became {}", packed.len());
        }
    }

    #[test]
    fn damaged_bytes_are_an_error() {
        let mut cut = pack_json(&json(&vec!["the same"; 100]));
        cut.truncate(20);
        for bytes in [&[][..], &[7, 1], &[LZ4, 1], &[LZ4, 255, 255, 255, 255, 0], b"\0{", &cut] {
            assert!(unpack::<Value>(bytes).is_err(), "{bytes:?}");
        }
    }
}

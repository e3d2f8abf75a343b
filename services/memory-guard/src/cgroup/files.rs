//! Reading and writing the small files of the kernel.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// v1 writes "no limit" as the largest multiple of the page size; anything near it is no limit.
const UNLIMITED: u64 = 1 << 60;
/// Larger than any `memory.stat` or `/proc/meminfo` so far (about 2 KiB).
const BUFFER: usize = 8192;

/// A file that is read again and again from its beginning.
#[derive(Debug)]
pub(super) struct Numbers(File);

impl Numbers {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        File::open(path).map(Self)
    }

    fn text<'a>(&self, buffer: &'a mut [u8]) -> io::Result<&'a str> {
        let length = self.0.read_at(buffer, 0)?;
        std::str::from_utf8(&buffer[..length]).map_err(|_| io::Error::from(io::ErrorKind::InvalidData))
    }

    /// Its only number.
    pub(super) fn number(&self) -> io::Result<u64> {
        let mut buffer = [0; 32];
        self.text(&mut buffer)?.trim().parse().map_err(|_| io::Error::from(io::ErrorKind::InvalidData))
    }

    /// The number behind a key.
    pub(super) fn keyed(&self, key: &str) -> io::Result<Option<u64>> {
        let mut buffer = [0; BUFFER];
        Ok(keyed(self.text(&mut buffer)?, key))
    }

    /// The numbers behind two keys.
    pub(super) fn two(&self, first: &str, second: &str) -> io::Result<(Option<u64>, Option<u64>)> {
        let mut buffer = [0; BUFFER];
        let text = self.text(&mut buffer)?;
        Ok((keyed(text, first), keyed(text, second)))
    }
}

/// `key 123` or `key: 123 kB` in a text of lines.
pub(super) fn keyed(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        (words.next()?.trim_end_matches(':') == key).then(|| words.next()?.parse().ok())?
    })
}

/// The first line, trimmed.
pub(super) fn word(path: &Path) -> io::Result<String> {
    Ok(std::fs::read_to_string(path)?.trim().to_owned())
}

/// Writes one of the words of a file that is there, all words of which are equally long. Neither makes nor empties it: another process may
/// be reading, and dying between emptying and writing leaves a word too.
pub(super) fn tell(path: &Path, word: &str) -> io::Result<()> {
    File::options().write(true).open(path)?.write_all_at(word.as_bytes(), 0)
}

/// A limit: a number, or none.
pub(super) fn limit(path: &Path) -> io::Result<Option<u64>> {
    let text = word(path)?;
    if text == "max" {
        return Ok(None);
    }
    let bytes: u64 = text.parse().map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
    Ok((bytes < UNLIMITED).then_some(bytes))
}

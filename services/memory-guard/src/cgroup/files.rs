//! Reads and writes the small control files of cgroups and `/proc`.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// v1 shows "no limit" as the largest multiple of the page size. Anything at or above this value counts as no limit.
const UNLIMITED: u64 = 1 << 60;
/// In bytes; larger than any `memory.stat` or `/proc/meminfo` so far (about 2 KiB).
const BUFFER: usize = 8192;

/// An open file whose numbers are read again and again from its beginning.
#[derive(Debug)]
pub(super) struct NumberFile(File);

impl NumberFile {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        File::open(path).map(Self)
    }

    fn text<'a>(&self, buffer: &'a mut [u8]) -> io::Result<&'a str> {
        let length = self.0.read_at(buffer, 0)?;
        std::str::from_utf8(&buffer[..length]).map_err(|_| io::Error::from(io::ErrorKind::InvalidData))
    }

    /// The only number in the file.
    pub(super) fn number(&self) -> io::Result<u64> {
        let mut buffer = [0; 32];
        self.text(&mut buffer)?.trim().parse().map_err(|_| io::Error::from(io::ErrorKind::InvalidData))
    }

    /// The number that follows a key; `None` if the key is missing.
    pub(super) fn keyed(&self, key: &str) -> io::Result<Option<u64>> {
        let mut buffer = [0; BUFFER];
        Ok(keyed(self.text(&mut buffer)?, key))
    }

    /// The numbers that follow two keys, from one read.
    pub(super) fn two(&self, first: &str, second: &str) -> io::Result<(Option<u64>, Option<u64>)> {
        let mut buffer = [0; BUFFER];
        let text = self.text(&mut buffer)?;
        Ok((keyed(text, first), keyed(text, second)))
    }
}

/// The number of a line `key 123` or `key: 123 kB`.
pub(super) fn keyed(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        (words.next()?.trim_end_matches(':') == key).then(|| words.next()?.parse().ok())?
    })
}

/// The content of a one-line file, trimmed.
pub(super) fn word(path: &Path) -> io::Result<String> {
    Ok(std::fs::read_to_string(path)?.trim().to_owned())
}

/// Overwrites the word in an existing file whose words all have the same length. The file is neither created nor truncated: another
/// process may be reading it, and a process that dies in between must not leave it empty.
pub(super) fn overwrite(path: &Path, word: &str) -> io::Result<()> {
    File::options().write(true).open(path)?.write_all_at(word.as_bytes(), 0)
}

/// A limit in bytes; `None` for `max` or v1's largest number.
pub(super) fn limit(path: &Path) -> io::Result<Option<u64>> {
    let text = word(path)?;
    if text == "max" {
        return Ok(None);
    }
    let bytes: u64 = text.parse().map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
    Ok((bytes < UNLIMITED).then_some(bytes))
}

//! Archives written as a stream, byte for byte in the structure PyTorch's writer gives them.
//!
//! Every entry is stored, its data starts at a multiple of 64 bytes (so that a mapped file can be used in place), and
//! its checksum follows in a descriptor, so that nothing is patched. Dates are zero: equal content gives equal bytes.

use crate::{Error, Result};
use indexmap::IndexMap;
use std::io::Write;

const ALIGNMENT: u64 = 64;
const LOCAL_LENGTH: u64 = 30;
const NARROW: u64 = u32::MAX as u64;
/// Names are UTF-8.
const UTF8: u16 = 0x800;
/// Checksum and sizes follow the data.
const DESCRIPTOR: u16 = 8;

struct Written {
    flags: u16,
    crc: u32,
    size: u64,
    offset: u64,
}

/// Writes an archive entry by entry; [`ArchiveWriter::finish`] completes it.
pub struct ArchiveWriter<W: Write> {
    out: W,
    at: u64,
    entries: IndexMap<String, Written>,
}

/// Counts and sums what passes through.
struct Counted<'a, W: Write> {
    out: &'a mut W,
    crc: crc32fast::Hasher,
    size: u64,
}

firebrand_core::opaque_debug! { [W: Write] ArchiveWriter<W> => "ArchiveWriter"; }

impl<W: Write> Write for Counted<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let n = self.out.write(bytes)?;
        self.crc.update(&bytes[..n]);
        self.size += n as u64;
        Ok(n)
    }
    fn flush(&mut self) -> std::io::Result<()> {
        self.out.flush()
    }
}

impl<W: Write> ArchiveWriter<W> {
    /// An empty archive.
    pub fn new(out: W) -> ArchiveWriter<W> {
        ArchiveWriter { out, at: 0, entries: IndexMap::new() }
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.out.write_all(bytes)?;
        self.at += bytes.len() as u64;
        Ok(())
    }

    /// Adds a file with this content.
    pub fn add(&mut self, name: &str, content: &[u8]) -> Result<()> {
        self.add_stream(name, content.len() as u64, |out| Ok(out.write_all(content)?))
    }

    /// Adds a file of `size` bytes that `fill` writes.
    pub fn add_stream(&mut self, name: &str, size: u64, fill: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
        let Ok(name_length) = u16::try_from(name.len()) else {
            return Err(Error::EntryName { name: name.to_string(), reason: "is too long" });
        };
        if self.entries.contains_key(name) {
            return Err(Error::EntryName { name: name.to_string(), reason: "occurs twice" });
        }
        let wide = size >= NARROW;
        let flags = if size == 0 { UTF8 } else { UTF8 | DESCRIPTOR };
        // A wide entry announces itself, because its descriptor has other sizes.
        let zip64: &[u8] = if wide { &[1, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0] } else { &[] };
        let unpadded = self.at + LOCAL_LENGTH + name.len() as u64 + zip64.len() as u64 + 4;
        let padding = (unpadded.next_multiple_of(ALIGNMENT) - unpadded) as u16;
        let offset = self.at;
        let narrow = if wide { u32::MAX } else { 0 };

        let mut head = Vec::with_capacity(256);
        head.extend_from_slice(b"PK\x03\x04");
        for v in [0, flags, 0, 0, 0] {
            head.extend_from_slice(&u16::to_le_bytes(v));
        }
        for v in [0, narrow, narrow] {
            head.extend_from_slice(&u32::to_le_bytes(v));
        }
        head.extend_from_slice(&name_length.to_le_bytes());
        head.extend_from_slice(&(zip64.len() as u16 + 4 + padding).to_le_bytes());
        head.extend_from_slice(name.as_bytes());
        head.extend_from_slice(zip64);
        head.extend_from_slice(b"FB");
        head.extend_from_slice(&padding.to_le_bytes());
        head.resize(head.len() + usize::from(padding), b'Z');
        self.put(&head)?;

        let mut counted = Counted { out: &mut self.out, crc: crc32fast::Hasher::new(), size: 0 };
        fill(&mut counted)?;
        let (crc, written) = (counted.crc.finalize(), counted.size);
        if written != size {
            let reason = format!("{written} bytes were written where {size} were announced");
            return Err(Error::Damaged { reason }.in_entry(name));
        }
        self.at += size;
        if size > 0 {
            let mut tail = b"PK\x07\x08".to_vec();
            tail.extend_from_slice(&crc.to_le_bytes());
            for _ in 0..2 {
                if wide {
                    tail.extend_from_slice(&size.to_le_bytes());
                } else {
                    tail.extend_from_slice(&(size as u32).to_le_bytes());
                }
            }
            self.put(&tail)?;
        }
        self.entries.insert(name.to_string(), Written { flags, crc, size, offset });
        Ok(())
    }

    /// A hash of all names and checksums so far, as in PyTorch's archives: forty digits.
    pub fn serialization_id(&self) -> String {
        let mut names = crc32fast::Hasher::new();
        let mut sums = 0xcbf2_9ce4_8422_2325u64;
        for (name, e) in &self.entries {
            names.update(name.as_bytes());
            sums = (sums ^ u64::from(e.crc)).wrapping_mul(0x100_0000_01b3);
        }
        format!("{:020}{sums:020}", names.finalize())
    }

    /// Writes the directory and returns the output.
    pub fn finish(mut self) -> Result<W> {
        let start = self.at;
        let entries = std::mem::take(&mut self.entries);
        for (name, e) in &entries {
            let narrow = |v: u64| if v >= NARROW { u32::MAX } else { v as u32 };
            let mut wide = Vec::new();
            if e.size >= NARROW {
                wide.extend_from_slice(&e.size.to_le_bytes());
                wide.extend_from_slice(&e.size.to_le_bytes());
            }
            if e.offset >= NARROW {
                wide.extend_from_slice(&e.offset.to_le_bytes());
            }
            let mut extra = Vec::new();
            if !wide.is_empty() {
                extra.extend_from_slice(&1u16.to_le_bytes());
                extra.extend_from_slice(&(wide.len() as u16).to_le_bytes());
                extra.extend_from_slice(&wide);
            }
            let mut head = Vec::with_capacity(128);
            head.extend_from_slice(b"PK\x01\x02");
            for v in [0, 0, e.flags, 0, 0, 0] {
                head.extend_from_slice(&u16::to_le_bytes(v));
            }
            for v in [e.crc, narrow(e.size), narrow(e.size)] {
                head.extend_from_slice(&v.to_le_bytes());
            }
            for v in [name.len() as u16, extra.len() as u16, 0, 0, 0] {
                head.extend_from_slice(&v.to_le_bytes());
            }
            for v in [0, narrow(e.offset)] {
                head.extend_from_slice(&v.to_le_bytes());
            }
            head.extend_from_slice(name.as_bytes());
            head.extend_from_slice(&extra);
            self.put(&head)?;
        }
        let (count, size, end) = (entries.len() as u64, self.at - start, self.at);
        let mut tail = Vec::with_capacity(98);
        // The zip64 record and its locator are always there, as in PyTorch's archives.
        tail.extend_from_slice(b"PK\x06\x06");
        tail.extend_from_slice(&44u64.to_le_bytes());
        tail.extend_from_slice(&[0x1e, 0x03, 45, 0]);
        tail.extend_from_slice(&[0; 8]);
        for v in [count, count, size, start] {
            tail.extend_from_slice(&v.to_le_bytes());
        }
        tail.extend_from_slice(b"PK\x06\x07");
        tail.extend_from_slice(&[0; 4]);
        tail.extend_from_slice(&end.to_le_bytes());
        tail.extend_from_slice(&1u32.to_le_bytes());
        tail.extend_from_slice(b"PK\x05\x06");
        tail.extend_from_slice(&[0; 4]);
        let count = count.min(u64::from(u16::MAX)) as u16;
        tail.extend_from_slice(&count.to_le_bytes());
        tail.extend_from_slice(&count.to_le_bytes());
        tail.extend_from_slice(&(size.min(NARROW) as u32).to_le_bytes());
        tail.extend_from_slice(&(start.min(NARROW) as u32).to_le_bytes());
        tail.extend_from_slice(&[0; 2]);
        self.put(&tail)?;
        self.out.flush()?;
        Ok(self.out)
    }
}

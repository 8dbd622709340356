//! The directory of a zip archive, checked as a whole before anything in it is used.

use super::ReadOptions;
use crate::{Error, Result};
use indexmap::IndexMap;
use std::ops::Range;

const END: u32 = 0x0605_4b50;
const END64: u32 = 0x0606_4b50;
const LOCATOR64: u32 = 0x0706_4b50;
const CENTRAL: u32 = 0x0201_4b50;
const LOCAL: u32 = 0x0403_4b50;
const END_LENGTH: usize = 22;
const CENTRAL_LENGTH: usize = 46;
const LOCAL_LENGTH: usize = 30;

/// How an entry is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    Stored,
    Deflated,
}

/// One file of the archive.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) method: Method,
    pub(crate) crc: u32,
    /// Bytes of its content.
    pub(crate) size: u64,
    /// The range of its stored bytes in the archive.
    pub(crate) data: Range<usize>,
}

fn damaged<T>(reason: impl Into<String>) -> Result<T> {
    Err(Error::Damaged { reason: reason.into() })
}

/// Little-endian integers at offsets that may not exist.
#[derive(Clone, Copy)]
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn part(self, at: usize, n: usize) -> Result<&'a [u8]> {
        match at.checked_add(n).and_then(|end| self.0.get(at..end)) {
            Some(part) => Ok(part),
            None => damaged(format!("{n} bytes at {at} are outside the file")),
        }
    }
    fn u16(self, at: usize) -> Result<u16> {
        Ok(u16::from_le_bytes(self.part(at, 2)?.try_into().expect("two bytes")))
    }
    fn u32(self, at: usize) -> Result<u32> {
        Ok(u32::from_le_bytes(self.part(at, 4)?.try_into().expect("four bytes")))
    }
    fn u64(self, at: usize) -> Result<u64> {
        Ok(u64::from_le_bytes(self.part(at, 8)?.try_into().expect("eight bytes")))
    }
    fn signed(self, at: usize, signature: u32, what: &str) -> Result<()> {
        if self.u32(at)? == signature { Ok(()) } else { damaged(format!("no {what} at byte {at}")) }
    }
}

/// Where the central directory lies.
struct Central {
    entries: u64,
    range: Range<usize>,
}

fn position(v: u64) -> Result<usize> {
    usize::try_from(v).or_else(|_| damaged(format!("an offset of {v} bytes")))
}

fn central(file: Bytes<'_>) -> Result<Central> {
    let length = file.0.len();
    if length < END_LENGTH {
        return damaged(format!("{length} bytes are too short for a zip archive"));
    }
    // The end record is last, but for a comment that it announces.
    let first = length.saturating_sub(END_LENGTH + usize::from(u16::MAX));
    let end = (first..=length - END_LENGTH).rev().find(|&at| {
        file.u32(at).is_ok_and(|s| s == END)
            && file.u16(at + 20).is_ok_and(|c| at + END_LENGTH + usize::from(c) == length)
    });
    let Some(end) = end else {
        return damaged("no end of a zip directory: the file is truncated or not a zip archive");
    };
    if file.u16(end + 4)? != 0 && file.u16(end + 4)? != u16::MAX {
        return damaged("archives in several parts are not supported");
    }
    let locator = end.checked_sub(20).filter(|&at| file.u32(at).is_ok_and(|s| s == LOCATOR64));
    let (entries, size, offset, limit) = match locator {
        Some(at) => {
            let record = position(file.u64(at + 8)?)?;
            file.signed(record, END64, "zip64 end record")?;
            (file.u64(record + 32)?, file.u64(record + 40)?, file.u64(record + 48)?, record)
        }
        None => (u64::from(file.u16(end + 10)?), u64::from(file.u32(end + 12)?), u64::from(file.u32(end + 16)?), end),
    };
    let (start, size) = (position(offset)?, position(size)?);
    match start.checked_add(size) {
        Some(stop) if stop <= limit => Ok(Central { entries, range: start..stop }),
        _ => damaged("the central directory lies outside the file"),
    }
}

/// Names are relative paths without `..`, so that they are safe to use.
fn check_name(name: &str) -> Result<()> {
    let reason = if name.is_empty() {
        "is empty"
    } else if name.starts_with('/') {
        "is absolute"
    } else if name.contains('\\') {
        "has a backslash"
    } else if name.chars().any(char::is_control) {
        "has a control character"
    } else if name.as_bytes().get(1) == Some(&b':') {
        "starts with a drive letter"
    } else if name.split('/').any(|part| part == "..") {
        "points outside the archive"
    } else {
        return Ok(());
    };
    Err(Error::EntryName { name: name.to_string(), reason })
}

/// Sizes and offset that did not fit 32 bits stand in an extra field, in the order of the directory.
fn widen(extra: Bytes<'_>, fields: &mut [&mut u64]) -> Result<()> {
    let narrow = u64::from(u32::MAX);
    if fields.iter().all(|f| **f != narrow) {
        return Ok(());
    }
    let mut at = 0;
    while at + 4 <= extra.0.len() {
        let (id, n) = (extra.u16(at)?, usize::from(extra.u16(at + 2)?));
        let body = Bytes(extra.part(at + 4, n)?);
        if id == 1 {
            let mut k = 0;
            for field in fields.iter_mut().filter(|f| ***f == narrow) {
                **field = body.u64(k)?;
                k += 8;
            }
            return Ok(());
        }
        at += 4 + n;
    }
    // Exactly 4 GiB - 1 without the field is legal.
    Ok(())
}

/// Reads and checks the whole directory.
pub(crate) fn read(bytes: &[u8], options: &ReadOptions) -> Result<IndexMap<String, Entry>> {
    let file = Bytes(bytes);
    let directory = central(file)?;
    let span = directory.range.len();
    if directory.entries > (span / CENTRAL_LENGTH) as u64 {
        return damaged(format!("a directory of {span} bytes claims {} entries", directory.entries));
    }
    let mut entries = IndexMap::new();
    let mut occupied = Vec::new();
    let (mut at, mut total) = (directory.range.start, 0u64);
    for _ in 0..directory.entries {
        let head = Bytes(&bytes[..directory.range.end]);
        head.signed(at, CENTRAL, "directory entry")?;
        let (flags, method) = (head.u16(at + 8)?, head.u16(at + 10)?);
        let crc = head.u32(at + 16)?;
        let (mut stored, mut size) = (u64::from(head.u32(at + 20)?), u64::from(head.u32(at + 24)?));
        let mut offset = u64::from(head.u32(at + 42)?);
        let (name_length, extra_length, comment_length) =
            (usize::from(head.u16(at + 28)?), usize::from(head.u16(at + 30)?), usize::from(head.u16(at + 32)?));
        let raw_name = head.part(at + CENTRAL_LENGTH, name_length)?;
        let extra = Bytes(head.part(at + CENTRAL_LENGTH + name_length, extra_length)?);
        widen(extra, &mut [&mut size, &mut stored, &mut offset])?;
        at += CENTRAL_LENGTH + name_length + extra_length + comment_length;

        let Ok(name) = std::str::from_utf8(raw_name) else { return damaged("an entry name that is not UTF-8") };
        check_name(name)?;
        let (start, data) =
            locate(file, raw_name, position(offset)?, stored, directory.range.start).map_err(|e| e.in_entry(name))?;
        occupied.push((start, data.end));
        if name.ends_with('/') {
            // A folder; its files name it themselves.
            continue;
        }
        let entry = || -> Result<Entry> {
            if flags & 1 != 0 {
                return damaged("encrypted entries are not supported");
            }
            let method = match method {
                0 => Method::Stored,
                8 => Method::Deflated,
                other => return damaged(format!("compression method {other} is not supported; store or deflate it")),
            };
            if method == Method::Stored && stored != size {
                return damaged(format!("stored as {stored} bytes, claims {size}"));
            }
            if size > stored.max(1).saturating_mul(options.ratio_limit) {
                return Err(Error::Inflated { claimed: size, stored });
            }
            Ok(Entry { method, crc, size, data })
        };
        let entry = entry().map_err(|e| e.in_entry(name))?;
        total = total.saturating_add(size);
        if total > options.total_limit {
            return Err(Error::TooLarge { claimed: total, limit: options.total_limit });
        }
        if entries.insert(name.to_string(), entry).is_some() {
            return Err(Error::EntryName { name: name.to_string(), reason: "occurs twice" });
        }
    }
    occupied.sort_unstable();
    if occupied.windows(2).any(|w| w[0].1 > w[1].0) {
        return damaged("entries overlap");
    }
    Ok(entries)
}

/// Follows an entry to its local header; gives the start of that and the range of the data.
fn locate(file: Bytes<'_>, name: &[u8], offset: usize, stored: u64, limit: usize) -> Result<(usize, Range<usize>)> {
    file.signed(offset, LOCAL, "local header")?;
    let (name_length, extra_length) = (usize::from(file.u16(offset + 26)?), usize::from(file.u16(offset + 28)?));
    if file.part(offset + LOCAL_LENGTH, name_length)? != name {
        return damaged("the local header has another name");
    }
    let start = offset + LOCAL_LENGTH + name_length + extra_length;
    match start.checked_add(position(stored)?) {
        Some(end) if end <= limit => Ok((offset, start..end)),
        _ => damaged("its data reaches into the directory or beyond the file"),
    }
}

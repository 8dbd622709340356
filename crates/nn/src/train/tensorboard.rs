//! TensorBoard event files: scalars by name and step.
//!
//! An event file is a sequence of records (length, checksum, bytes, checksum) of protocol buffer messages; the few fields
//! that scalars need are written here by hand. TensorBoard reads files while they grow, so records are only ever appended.

use firebrand_core::system::{process_id, unix_seconds};
use firebrand_core::{Error, Result};
use std::fs::File;
use std::io::Write;
use std::path::Path;

/// Appends scalars to an event file.
#[derive(Debug)]
pub struct EventWriter {
    file: File,
}

/// CRC-32C, bit by bit: records are short.
fn crc32c(bytes: &[u8]) -> u32 {
    let mut crc = !0u32;
    for &b in bytes {
        crc ^= u32::from(b);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0x82F6_3B78 } else { crc >> 1 };
        }
    }
    !crc
}

/// The checksum as records store it.
fn masked(bytes: &[u8]) -> [u8; 4] {
    crc32c(bytes).rotate_right(15).wrapping_add(0xA282_EAD8).to_le_bytes()
}

fn record(message: &[u8]) -> Vec<u8> {
    let length = (message.len() as u64).to_le_bytes();
    [&length[..], &masked(&length), message, &masked(message)].concat()
}

fn varint(mut v: u64, out: &mut Vec<u8>) {
    while v >= 0x80 {
        out.push(v as u8 | 0x80);
        v >>= 7;
    }
    out.push(v as u8);
}

/// A field that holds bytes: its number, their length, the bytes.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![number << 3 | 2];
    varint(bytes.len() as u64, &mut out);
    out.extend(bytes);
    out
}

/// An event: time (field 1, double), step (field 2, varint), and one field more.
fn event(time: f64, step: u64, rest: &[u8]) -> Vec<u8> {
    let mut out = vec![1 << 3 | 1];
    out.extend(time.to_le_bytes());
    out.push(2 << 3);
    varint(step, &mut out);
    out.extend(rest);
    out
}

impl EventWriter {
    /// A new file in `folder`, named so that TensorBoard finds it.
    pub fn new(folder: impl AsRef<Path>) -> Result<EventWriter> {
        let time = unix_seconds();
        let name = format!("events.out.tfevents.{:010}.firebrand.{}", time as u64, process_id());
        let path = folder.as_ref().join(name);
        let mut writer =
            EventWriter { file: File::create(&path).map_err(|e| Error::user(format!("{}: {e}", path.display())))? };
        writer.write(&event(time, 0, &field(3, b"brain.Event:2")))?;
        Ok(writer)
    }

    /// One value.
    pub fn scalar(&mut self, name: &str, step: u64, value: f64) -> Result<()> {
        let mut number = field(1, name.as_bytes());
        number.push(2 << 3 | 5);
        number.extend((value as f32).to_le_bytes());
        self.write(&event(unix_seconds(), step, &field(5, &field(1, &number))))
    }

    /// Records that the run continues at this step: TensorBoard discards values of earlier files from there on.
    pub fn restart(&mut self, step: u64) -> Result<()> {
        // Field 7 is the session's log, its field 1 the status, of which 1 is the start.
        self.write(&event(unix_seconds(), step, &field(7, &[1 << 3, 1])))
    }

    fn write(&mut self, message: &[u8]) -> Result<()> {
        self.file.write_all(&record(message)).map_err(Error::user)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_tensorboards() {
        // The check value of CRC-32C.
        assert_eq!(crc32c(b"123456789"), 0xE306_9283);
        // A scalar as TensorFlow writes it.
        let message = event(1.5, 300, &field(5, &field(1, b"\x0a\x01a\x15\x00\x00\x80\x3f")));
        let expected = b"\x09\x00\x00\x00\x00\x00\x00\xf8\x3f\x10\xac\x02\x2a\x0a\x0a\x08\x0a\x01a\x15\x00\x00\x80\x3f";
        assert_eq!(message, expected);
        let bytes = record(&message);
        assert_eq!((bytes.len(), &bytes[..8]), (message.len() + 16, &(message.len() as u64).to_le_bytes()[..]));
    }
}

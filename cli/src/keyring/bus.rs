//! A connection to the session bus on which one call follows another, each done before one deadline.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use secrecy::zeroize::Zeroizing;

use super::address::Address;
use super::wire::{Call, HEAD_BYTES, Head, Kind, Reader, Writer};

/// Longest line of the greeting, in bytes.
const MAX_LINE: usize = 512;
/// Longest message that is read, in bytes; answers about keys take a few hundred.
const MAX_MESSAGE: usize = 1 << 20;

/// The bus, greeted.
pub(super) struct Bus {
    stream: UnixStream,
    deadline: Instant,
    serial: u32,
}

/// Why a call gave nothing.
#[derive(Debug)]
pub(super) enum Fault {
    /// The deadline passed.
    Late,
    /// The other side says no, by the name of its error.
    Refused(String),
    /// The connection broke, or what came is no answer.
    Broken(String),
}

/// The arguments of an answer.
pub(super) struct Answer {
    body: Zeroizing<Vec<u8>>,
    little: bool,
}

impl Answer {
    pub(super) fn reader(&self) -> Reader<'_> {
        Reader::new(&self.body, self.little)
    }
}

impl Bus {
    /// Connects to the first address that takes it, says who is there, and gets a name.
    pub(super) fn connect(addresses: &[Address], deadline: Instant) -> Result<Self, Fault> {
        let mut last = Fault::Broken("no address leads to it".into());
        for address in addresses {
            match address.connect() {
                Ok(stream) => {
                    let mut bus = Self { stream, deadline, serial: 0 };
                    bus.greet()?;
                    return Ok(bus);
                }
                Err(error) => last = Fault::Broken(error.to_string()),
            }
        }
        Err(last)
    }

    fn greet(&mut self) -> Result<(), Fault> {
        let mut user = String::new();
        for digit in nix::unistd::geteuid().to_string().bytes() {
            user.push_str(&format!("{digit:02x}"));
        }
        self.write(format!("\0AUTH EXTERNAL {user}\r\n").as_bytes())?;
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            if line.len() == MAX_LINE {
                return Err(Fault::Broken("its greeting has no end".into()));
            }
            let mut byte = [0];
            self.read(&mut byte)?;
            line.push(byte[0]);
        }
        if !line.starts_with(b"OK ") {
            return Err(Fault::Broken("it lets nobody in".into()));
        }
        self.write(b"BEGIN\r\n")?;
        self.call(Call {
            destination: "org.freedesktop.DBus",
            path: "/org/freedesktop/DBus",
            interface: "org.freedesktop.DBus",
            member: "Hello",
            signature: "",
            arguments: Writer::new(),
        })?;
        Ok(())
    }

    /// Sends a call and waits for its answer; what else comes is passed over.
    pub(super) fn call(&mut self, call: Call<'_>) -> Result<Answer, Fault> {
        self.serial += 1;
        self.write(call.encode(self.serial).bytes())?;
        loop {
            let mut start = [0; HEAD_BYTES];
            self.read(&mut start)?;
            let malformed = || Fault::Broken("what it says is no message".into());
            let head = Head::parse(&start).ok_or_else(malformed)?;
            if head.fields.saturating_add(head.body) > MAX_MESSAGE {
                return Err(Fault::Broken("its message is too long".into()));
            }
            let mut fields = vec![0; head.fields];
            self.read(&mut fields)?;
            let mut body = Zeroizing::new(vec![0; head.body]);
            self.read(&mut body)?;
            if head.kind == Kind::Other {
                continue;
            }
            let (serial, error) = head.answers(&fields).ok_or_else(malformed)?;
            match head.kind {
                _ if serial != self.serial => {}
                Kind::Error => return Err(Fault::Refused(error.to_owned())),
                Kind::Return | Kind::Other => return Ok(Answer { body, little: head.little }),
            }
        }
    }

    fn left(&self) -> Result<Option<Duration>, Fault> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(Fault::Late) } else { Ok(Some(left)) }
    }

    fn read(&mut self, mut bytes: &mut [u8]) -> Result<(), Fault> {
        while !bytes.is_empty() {
            self.stream.set_read_timeout(self.left()?).map_err(|error| broken(&error))?;
            match self.stream.read(bytes) {
                Ok(0) => return Err(Fault::Broken("it hung up".into())),
                Ok(count) => bytes = &mut bytes[count..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(broken(&error)),
            }
        }
        Ok(())
    }

    fn write(&mut self, mut bytes: &[u8]) -> Result<(), Fault> {
        while !bytes.is_empty() {
            self.stream.set_write_timeout(self.left()?).map_err(|error| broken(&error))?;
            match self.stream.write(bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(broken(&error)),
            }
        }
        Ok(())
    }
}

fn broken(error: &std::io::Error) -> Fault {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => Fault::Late,
        _ => Fault::Broken(error.to_string()),
    }
}

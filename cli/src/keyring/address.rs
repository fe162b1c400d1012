//! Where the session bus listens, as the environment announces it. Pure. An address that would start a
//! program, or that leads off this machine, is not followed.

use std::ffi::OsString;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::PathBuf;

/// A socket of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Address {
    /// One with a name in the file system.
    Path(PathBuf),
    /// One with a name of its own.
    Abstract(Vec<u8>),
}

impl Address {
    /// Connects; may block where the listener takes nobody.
    pub(super) fn connect(&self) -> io::Result<UnixStream> {
        match self {
            Self::Path(path) => UnixStream::connect(path),
            Self::Abstract(name) => UnixStream::connect_addr(&SocketAddr::from_abstract_name(name)?),
        }
    }
}

/// Reads the addresses that are announced: by `DBUS_SESSION_BUS_ADDRESS`, else the well-known socket in
/// `XDG_RUNTIME_DIR` where there is one. None: this session has no bus.
pub(super) fn announced(variable: impl Fn(&str) -> Option<OsString>) -> Vec<Address> {
    let set = |name| variable(name).filter(|value| !value.is_empty());
    if let Some(list) = set("DBUS_SESSION_BUS_ADDRESS") {
        return list.to_str().map(parse).unwrap_or_default();
    }
    let socket = set("XDG_RUNTIME_DIR").map(|dir| PathBuf::from(dir).join("bus"));
    socket.filter(|path| path.is_absolute() && path.exists()).map(Address::Path).into_iter().collect()
}

/// Reads a list such as `unix:path=/run/user/1/bus,guid=0;unix:abstract=/tmp/x`.
fn parse(list: &str) -> Vec<Address> {
    list.split(';').filter_map(one).collect()
}

fn one(address: &str) -> Option<Address> {
    let (transport, options) = address.split_once(':')?;
    if transport != "unix" {
        return None;
    }
    options.split(',').filter_map(|option| option.split_once('=')).find_map(|(name, value)| match name {
        "path" => Some(Address::Path(OsString::from_vec(unescape(value)?).into())),
        "abstract" => Some(Address::Abstract(unescape(value)?)),
        _ => None,
    })
}

/// Undoes `%` with two hex digits.
fn unescape(text: &str) -> Option<Vec<u8>> {
    let mut bytes = text.bytes();
    let mut plain = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        plain.push(match byte {
            b'%' => {
                let mut digit = || char::from(bytes.next()?).to_digit(16);
                u8::try_from(digit()? * 16 + digit()?).ok()?
            }
            byte => byte,
        });
    }
    Some(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(variables: &[(&str, &str)]) -> Vec<Address> {
        announced(|name| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into()))
    }

    #[test]
    fn sockets_of_this_machine_are_followed_and_nothing_else() {
        let list =
            "unixexec:path=/bin/false;tcp:host=h,port=1;unix:guid=1,path=/a%20b;unix:abstract=/c;autolaunch:";
        assert_eq!(
            with(&[("DBUS_SESSION_BUS_ADDRESS", list), ("XDG_RUNTIME_DIR", "/")]),
            [Address::Path("/a b".into()), Address::Abstract(b"/c".to_vec())]
        );
        for none in ["disabled:", "garbage", "unix:", "unix:path=%zz", "unix:tmpdir=/tmp", "unix:path=%2"] {
            assert_eq!(with(&[("DBUS_SESSION_BUS_ADDRESS", none)]), [], "{none}");
        }
    }

    #[test]
    fn the_well_known_socket_counts_where_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().to_str().unwrap();
        assert_eq!(with(&[("XDG_RUNTIME_DIR", path), ("DBUS_SESSION_BUS_ADDRESS", "")]), []);
        std::fs::write(dir.path().join("bus"), "").unwrap();
        assert_eq!(with(&[("XDG_RUNTIME_DIR", path)]), [Address::Path(dir.path().join("bus"))]);
        assert_eq!(with(&[("XDG_RUNTIME_DIR", "relative")]), []);
        assert_eq!(with(&[]), []);
    }
}

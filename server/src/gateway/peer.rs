//! Who is at the other end of a loopback connection: the OS user that owns the peer's socket.
//!
//! Linux: the kernel's TCP tables under `/proc/net`, whose lines are documented in the kernel's
//! `proc_net_tcp` page: local and remote address as hexadecimal words in the machine's byte order, the
//! state (`01` is ESTABLISHED) and the owner's uid. Elsewhere the owner can't be known here.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Whether a peer is let in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Peer {
    /// A program of the server's own user.
    Own,
    /// Anybody else, or nobody knows; the reason is shown.
    Stranger(String),
}

/// Finds the owner of the socket at `peer` that is connected to `local`. Reads a file: not for async threads.
pub(crate) fn identify(local: SocketAddr, peer: SocketAddr) -> Peer {
    let own = nix::unistd::geteuid().as_raw();
    match owner(local, peer) {
        Some(uid) if uid == own => Peer::Own,
        Some(_) => Peer::Stranger("this server serves only the user who runs it".to_owned()),
        None => Peer::Stranger(
            "which user connects can't be known here, so the connection is refused; \
             connect from the machine and user that run the server"
                .to_owned(),
        ),
    }
}

#[cfg(target_os = "linux")]
fn owner(local: SocketAddr, peer: SocketAddr) -> Option<u32> {
    // A program may reach an IPv4 address through an IPv6 socket, which stands in the other table.
    ["/proc/net/tcp", "/proc/net/tcp6"].into_iter().find_map(|path| {
        let table = std::fs::read_to_string(path).ok()?;
        owner_in(&table, local, peer)
    })
}

#[cfg(not(target_os = "linux"))]
fn owner(_local: SocketAddr, _peer: SocketAddr) -> Option<u32> {
    None
}

/// Finds the established socket whose own address is `peer` and whose other end is `local`.
fn owner_in(table: &str, local: SocketAddr, peer: SocketAddr) -> Option<u32> {
    const ESTABLISHED: &str = "01";
    table.lines().skip(1).find_map(|line| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let own = address(fields.next()?)?;
        let other = address(fields.next()?)?;
        if fields.next()? != ESTABLISHED || !same(own, peer) || !same(other, local) {
            return None;
        }
        // After the state: queues, timer, retransmits, then the uid.
        fields.nth(3)?.parse().ok()
    })
}

fn same(one: SocketAddr, other: SocketAddr) -> bool {
    one.port() == other.port() && one.ip().to_canonical() == other.ip().to_canonical()
}

fn address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let words: Option<Vec<[u8; 4]>> = ip
        .as_bytes()
        .chunks(8)
        .map(|word| Some(u32::from_str_radix(std::str::from_utf8(word).ok()?, 16).ok()?.to_ne_bytes()))
        .collect();
    let ip = match words?.as_slice() {
        [word] => IpAddr::V4(Ipv4Addr::from(*word)),
        [a, b, c, d] => {
            let mut octets = [0; 16];
            for (at, word) in [a, b, c, d].into_iter().enumerate() {
                octets[at * 4..at * 4 + 4].copy_from_slice(word);
            }
            IpAddr::V6(Ipv6Addr::from(octets))
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

#[cfg(all(test, target_os = "linux", target_endian = "little"))]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    const TABLE: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1E61 00000000:0000 0A 00000000:00000000 00:00000000 00000000     7        0 1 1 0 100 0 0 10 0
   1: 0100007F:9C40 0100007F:1E61 01 00000000:00000000 00:00000000 00000000  1000        0 2 1 0 20 4 30 10 -1
   2: 0100007F:9C41 0100007F:1E61 06 00000000:00000000 00:00000000 00000000  1001        0 3 1 0 20 4 30 10 -1
   3: 0000000000000000FFFF00000100007F:9C42 0000000000000000FFFF00000100007F:1E61 01 00000000:00000000 00:00000000 00000000  1002        0 3 1 0 20 4 30 10 -1
";

    fn at(port: u16) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, port))
    }

    #[test]
    fn the_peers_established_socket_is_matched_on_both_addresses() {
        assert_eq!(owner_in(TABLE, at(7777), at(40000)), Some(1000));
        assert_eq!(owner_in(TABLE, at(7778), at(40000)), None);
        assert_eq!(owner_in(TABLE, at(40000), at(7777)), None);
        // Not established.
        assert_eq!(owner_in(TABLE, at(7777), at(40001)), None);
        // An IPv4 address through an IPv6 socket.
        assert_eq!(owner_in(TABLE, at(7777), at(40002)), Some(1002));
    }

    #[test]
    fn a_connection_of_this_process_is_its_own() {
        for host in ["127.0.0.1", "::1"] {
            let Ok(listener) = TcpListener::bind((host, 0)) else { continue };
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (server, peer) = listener.accept().unwrap();
            assert_eq!(identify(server.local_addr().unwrap(), peer), Peer::Own);
            drop(client);
        }
    }

    #[test]
    fn a_damaged_table_finds_nobody() {
        for table in ["", "x\n", "x\n 0: zz:1 0100007F:1E61 01 0 0 0 1000\n", "x\n 0: 0100007F 1 01\n"] {
            assert_eq!(owner_in(table, at(7777), at(40000)), None);
        }
    }
}

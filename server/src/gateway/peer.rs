//! Who is at the other end of a loopback connection: the OS user that owns the peer's socket.
//!
//! Linux: the kernel's table of TCP sockets, asked for the one socket by both addresses over netlink
//! (`sock_diag(7)`, `linux/inet_diag.h`), which costs the same however many sockets there are. Where the
//! kernel does not offer that, the same table as text in `/proc/net` (the kernel's `proc_net_tcp` page:
//! addresses as hexadecimal words in the machine's byte order, state `01` is ESTABLISHED, then the uid).
//! Elsewhere the owner can't be known here.

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
    // "No such socket" and "no such question" are one answer, so the table has the last word.
    diag::owner(local, peer).or_else(|| owner_in_tables(local, peer))
}

#[cfg(target_os = "linux")]
fn owner_in_tables(local: SocketAddr, peer: SocketAddr) -> Option<u32> {
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

/// One question to the kernel about one socket.
#[cfg(target_os = "linux")]
mod diag {
    use std::net::{IpAddr, SocketAddr};
    use std::os::fd::AsRawFd;

    use nix::errno::Errno;
    use nix::sys::socket::{
        AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendto, setsockopt,
        socket, sockopt,
    };
    use nix::sys::time::TimeVal;

    /// Length of `nlmsghdr`.
    const HEADER: usize = 16;
    /// Length of `inet_diag_req_v2`.
    const REQUEST: usize = 56;
    /// Length of `inet_diag_msg`.
    const ANSWER: usize = 72;
    const SOCK_DIAG_BY_FAMILY: u16 = 20;
    const NLM_F_REQUEST: u16 = 1;
    const AF_INET: u8 = 2;
    const AF_INET6: u8 = 10;
    const IPPROTO_TCP: u8 = 6;
    const TCP_ESTABLISHED: u8 = 1;
    /// `INET_DIAG_NOCOOKIE`, twice: any socket with these addresses.
    const ANY_COOKIE: [u8; 8] = [0xff; 8];
    /// The kernel answers at once; a limit keeps a wrong guess of ours from hanging a connection.
    const PATIENCE_SECONDS: i64 = 1;

    /// Returns the owner of the established socket at `peer` whose other end is `local`; `None`: there is
    /// none, or the kernel does not say.
    pub(super) fn owner(local: SocketAddr, peer: SocketAddr) -> Option<u32> {
        let id = socket_id(peer, local);
        let mut answer = [0; 512];
        let length = ask(&request(peer, &id), &mut answer).ok()?;
        parse(answer.get(..length)?, &id)
    }

    fn ask(request: &[u8], answer: &mut [u8]) -> Result<usize, Errno> {
        let socket = socket(
            AddressFamily::Netlink,
            SockType::Datagram,
            SockFlag::SOCK_CLOEXEC,
            SockProtocol::NetlinkSockDiag,
        )?;
        setsockopt(&socket, sockopt::ReceiveTimeout, &TimeVal::new(PATIENCE_SECONDS, 0))?;
        sendto(socket.as_raw_fd(), request, &NetlinkAddr::new(0, 0), MsgFlags::empty())?;
        recv(socket.as_raw_fd(), answer, MsgFlags::empty())
    }

    fn family(address: SocketAddr) -> u8 {
        match address.ip().to_canonical() {
            IpAddr::V4(_) => AF_INET,
            IpAddr::V6(_) => AF_INET6,
        }
    }

    /// `inet_diag_sockid` up to its addresses: ports and addresses in network order, own end first.
    fn socket_id(own: SocketAddr, other: SocketAddr) -> [u8; 36] {
        let mut id = [0; 36];
        id[0..2].copy_from_slice(&own.port().to_be_bytes());
        id[2..4].copy_from_slice(&other.port().to_be_bytes());
        for (at, address) in [(4, own), (20, other)] {
            match address.ip().to_canonical() {
                IpAddr::V4(ip) => id[at..at + 4].copy_from_slice(&ip.octets()),
                IpAddr::V6(ip) => id[at..at + 16].copy_from_slice(&ip.octets()),
            }
        }
        id
    }

    fn request(own: SocketAddr, id: &[u8; 36]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER + REQUEST);
        bytes.extend(u32::try_from(HEADER + REQUEST).unwrap_or(0).to_ne_bytes());
        bytes.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
        bytes.extend(NLM_F_REQUEST.to_ne_bytes());
        // Sequence number and our port: one question, one answer.
        bytes.extend([0; 8]);
        bytes.extend([family(own), IPPROTO_TCP, 0, 0]);
        bytes.extend((1_u32 << TCP_ESTABLISHED).to_ne_bytes());
        bytes.extend(id);
        // Any interface.
        bytes.extend([0; 4]);
        bytes.extend(ANY_COOKIE);
        bytes
    }

    /// Reads the answer. The kernel's lookup may end at a listening socket, so state and addresses are checked.
    fn parse(answer: &[u8], id: &[u8; 36]) -> Option<u32> {
        let kind = answer.get(4..6)?;
        let body = answer.get(HEADER..HEADER + ANSWER)?;
        if u16::from_ne_bytes([kind[0], kind[1]]) != SOCK_DIAG_BY_FAMILY {
            return None;
        }
        // A program may reach an IPv4 address through an IPv6 socket, whose addresses stand here mapped.
        let same_ports = body[4..8] == id[..4];
        let same_addresses =
            same_address(&body[8..24], &id[4..20]) && same_address(&body[24..40], &id[20..36]);
        let uid = u32::from_ne_bytes([body[64], body[65], body[66], body[67]]);
        (body[1] == TCP_ESTABLISHED && same_ports && same_addresses).then_some(uid)
    }

    fn same_address(found: &[u8], asked: &[u8]) -> bool {
        let mapped = found.get(12..16) == asked.get(..4)
            && found.get(..12) == Some(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff][..])
            && asked.get(4..).is_some_and(|rest| rest.iter().all(|byte| *byte == 0));
        found == asked || mapped
    }
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
    fn the_kernel_and_its_table_agree() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let local = listener.local_addr().unwrap();
        let _client = TcpStream::connect(local).unwrap();
        let (_server, peer) = listener.accept().unwrap();
        let own = Some(nix::unistd::geteuid().as_raw());
        assert_eq!(owner_in_tables(local, peer), own);
        // Where the kernel offers no such question, the table alone is used.
        if let Some(owner) = diag::owner(local, peer) {
            assert_eq!(Some(owner), own);
            assert_eq!(diag::owner(local, at(peer.port() ^ 1)), None);
            assert_eq!(diag::owner(peer, local), own);
            // A listening socket is nobody's end of a connection.
            assert_eq!(diag::owner(at(1), local), None);
        }
    }

    #[test]
    fn an_ipv4_address_reached_through_an_ipv6_socket_is_found() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let Ok(_client) = TcpStream::connect(format!("[::ffff:127.0.0.1]:{port}")) else { return };
        let (server, peer) = listener.accept().unwrap();
        assert_eq!(identify(server.local_addr().unwrap(), peer), Peer::Own);
    }

    #[test]
    fn a_damaged_table_finds_nobody() {
        for table in ["", "x\n", "x\n 0: zz:1 0100007F:1E61 01 0 0 0 1000\n", "x\n 0: 0100007F 1 01\n"] {
            assert_eq!(owner_in(table, at(7777), at(40000)), None);
        }
    }
}

//! The server's address, checked once: from `http://host:port` to the addresses of its faces.
//! Only plain HTTP: a tns server listens on loopback, and a remote one is reached through a tunnel.

use std::sync::{Arc, Mutex, PoisonError};

use reqwest::Url;

use crate::ClientError;

/// A checked address.
#[derive(Debug, Clone)]
pub(crate) struct Address {
    base: Url,
}

impl Address {
    /// Reads `http://host:port`; a trailing slash is allowed, a path is not.
    pub(crate) fn parse(url: &str) -> Result<Self, ClientError> {
        let refuse = |why: &str| Err(ClientError::Unreachable(format!("{url} {why}")));
        let Ok(base) = Url::parse(url) else {
            return refuse("is not an address like http://127.0.0.1:7777");
        };
        match base.scheme() {
            "http" => {}
            "https" => {
                return refuse("asks for TLS, which this client does not speak: use http:// over a tunnel");
            }
            _ => return refuse("must begin with http://"),
        }
        if base.path() != "/" || base.query().is_some() || base.fragment().is_some() {
            return refuse("must end after the port");
        }
        if !base.username().is_empty() || base.password().is_some() {
            return refuse("must not hold a user name or password");
        }
        Ok(Self { base })
    }

    /// Returns the address as it is shown to people, without a trailing slash.
    pub(crate) fn as_str(&self) -> &str {
        self.base.as_str().trim_end_matches('/')
    }

    /// Returns the address of the chat socket.
    pub(crate) fn chat(&self) -> String {
        format!("ws{}/chat", self.as_str().trim_start_matches("http"))
    }

    /// Returns `HOST:PORT`, as a connection is asked for.
    pub(crate) fn host_and_port(&self) -> String {
        // An http address has a host, and a port that it need not name.
        let (host, port) = (self.base.host_str(), self.base.port_or_known_default());
        format!("{}:{}", host.unwrap_or_default(), port.unwrap_or_default())
    }

    /// Returns the address of a REST call; each segment is escaped.
    pub(crate) fn rest(&self, segments: &[&str], query: &[(&str, &str)]) -> Url {
        let mut url = self.base.clone();
        // An http address can always hold segments, so there is no other branch to take.
        if let Ok(mut path) = url.path_segments_mut() {
            path.clear().extend(segments);
        }
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        url
    }
}

/// The address that a client and its REST calls use, which a reconnect may change.
#[derive(Debug, Clone)]
pub(crate) struct SharedAddress(Arc<Mutex<Address>>);

impl SharedAddress {
    pub(crate) fn new(address: Address) -> Self {
        Self(Arc::new(Mutex::new(address)))
    }

    pub(crate) fn get(&self) -> Address {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set(&self, address: Address) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = address;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faces_stand_beside_each_other() {
        for text in ["http://127.0.0.1:7777", "http://127.0.0.1:7777/"] {
            let address = Address::parse(text).unwrap();
            assert_eq!(address.as_str(), "http://127.0.0.1:7777");
            assert_eq!(address.chat(), "ws://127.0.0.1:7777/chat");
            assert_eq!(address.rest(&["api", "info"], &[]).as_str(), "http://127.0.0.1:7777/api/info");
        }
        let address = Address::parse("http://[::1]:80").unwrap();
        assert_eq!(
            (address.chat().as_str(), address.host_and_port().as_str()),
            ("ws://[::1]/chat", "[::1]:80")
        );
    }

    #[test]
    fn ids_are_escaped_in_paths_and_queries() {
        let url =
            Address::parse("http://h:1").unwrap().rest(&["api", "kb", "a/../b?c"], &[("sessionId", "x&y=z")]);
        assert_eq!(url.as_str(), "http://h:1/api/kb/a%2F..%2Fb%3Fc?sessionId=x%26y%3Dz");
    }

    #[test]
    fn other_addresses_are_refused_with_the_reason() {
        for (text, why) in [
            ("7777", "is not an address"),
            ("https://h", "asks for TLS"),
            ("ws://h:1", "must begin with http://"),
            ("http://h:1/chat", "must end after the port"),
            ("http://u:p@h:1", "must not hold a user name"),
        ] {
            let error = Address::parse(text).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}

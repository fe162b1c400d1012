//! HTTP for downloads: clients, and redirects that are followed with care. It must not follow one from
//! https to http, or more than three.

use std::net::IpAddr;
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::Context as _;
use reqwest::header::{ACCEPT_ENCODING, HeaderMap, HeaderValue, LOCATION};
use reqwest::{Client, Response, Url};

use crate::exit::{Exit, Stop};

/// Most redirects of a request.
const MAX_REDIRECTS: usize = 3;
/// How long connecting may take.
const CONNECT: Duration = Duration::from_secs(15);
/// How long nothing may come.
const SILENCE: Duration = Duration::from_secs(60);

/// The clients of one command.
#[derive(Debug, Default)]
pub(super) struct Web {
    /// This machine: no certificates, no proxy.
    loopback: OnceLock<Client>,
    /// http: no certificates.
    plain: OnceLock<Client>,
    tls: OnceLock<Client>,
}

/// An answer, and what the first address said before it sent on.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) response: Response,
    /// The headers of the first answer, where that was a redirect.
    pub(super) first: Option<HeaderMap>,
}

impl Web {
    /// Asks for an address and follows redirects.
    ///
    /// # Errors
    /// A [`reqwest::Error`] where the connection fails, a [`Stop`] for a redirect that is not followed.
    pub(super) async fn get(&self, url: &Url, headers: &HeaderMap) -> anyhow::Result<Answer> {
        let mut url = url.clone();
        let mut first = None;
        for hop in 0.. {
            let request = self.client(&url)?.get(url.clone()).headers(headers.clone());
            // Digests and lengths are those of the file, not of a packed form of it.
            let request = request.header(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
            let response = request.send().await?;
            if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
                return Ok(Answer { response, first });
            }
            let location = response.headers().get(LOCATION).and_then(|value| value.to_str().ok());
            url = next(&url, location, hop)?;
            if first.is_none() {
                first = Some(response.headers().clone());
            }
        }
        unreachable!("counting hops ends at their limit")
    }

    fn client(&self, url: &Url) -> anyhow::Result<Client> {
        let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
        let loopback = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
        let cell = match url.scheme() {
            "https" => &self.tls,
            _ if loopback => &self.loopback,
            _ => &self.plain,
        };
        if let Some(client) = cell.get() {
            return Ok(client.clone());
        }
        if rustls::crypto::CryptoProvider::get_default().is_none() {
            // An error says that another thread was first, with the same provider.
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
        let builder = Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT)
            .read_timeout(SILENCE)
            .user_agent(concat!("tns/", env!("CARGO_PKG_VERSION")));
        let builder = match url.scheme() {
            "https" => builder,
            _ if loopback => builder.no_proxy().tls_certs_only([]),
            _ => builder.tls_certs_only([]),
        };
        let client = builder.build().context("set up HTTP")?;
        Ok(cell.get_or_init(|| client).clone())
    }
}

/// Returns where a redirect leads.
fn next(from: &Url, location: Option<&str>, hop: usize) -> Result<Url, Stop> {
    let host = |url: &Url| url.host_str().unwrap_or_default().to_owned();
    let refused = |why: &str| Stop::new(Exit::Failed, format!("{} {why}", host(from)));
    if hop >= MAX_REDIRECTS {
        return Err(refused("sends on and on; it is not followed further"));
    }
    let to = location.and_then(|location| from.join(location).ok());
    let to = to.filter(|to| matches!(to.scheme(), "http" | "https") && to.has_host());
    match to {
        None => Err(refused("sends on to nowhere")),
        Some(to) if from.scheme() == "https" && to.scheme() == "http" => Err(refused(&format!(
            "sends on from https to {} without it, where anybody could change the file; it is not followed",
            host(&to)
        ))),
        Some(to) => Ok(to),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_are_followed_with_care() {
        let from = Url::parse("https://h/a/b").unwrap();
        let to = |location: &str| next(&from, Some(location), 0).map(String::from);
        assert_eq!(to("c").unwrap(), "https://h/a/c");
        assert_eq!(to("https://cdn/x?sig=1").unwrap(), "https://cdn/x?sig=1");
        assert!(to("http://h/a/b").unwrap_err().to_string().contains("not followed"));
        for nowhere in ["file:///etc/passwd", "ftp://h/x", "https://", "data:text/plain,x"] {
            assert!(to(nowhere).is_err(), "{nowhere}");
        }
        assert!(next(&from, None, 0).is_err());
        assert!(next(&from, Some("/x"), MAX_REDIRECTS - 1).is_ok());
        assert!(next(&from, Some("/x"), MAX_REDIRECTS).unwrap_err().to_string().contains("on and on"));
        let plain = Url::parse("http://h/").unwrap();
        assert_eq!(next(&plain, Some("http://g/"), 0).unwrap().as_str(), "http://g/");
    }
}

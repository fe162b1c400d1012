//! A download into a `.part` file: it goes on where it broke off if the file behind the address is still the
//! same, and its digest is computed while it comes.

use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use reqwest::header::{CONTENT_RANGE, ETAG, HeaderMap, HeaderValue, IF_RANGE, LAST_MODIFIED, RANGE};
use reqwest::{Response, StatusCode, Url};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncSeekExt as _, AsyncWriteExt as _};

use super::web::Web;
use super::{place, source};
use crate::exit::{Exit, Stop};

/// Largest model, in bytes: 256 GiB.
const MAX_BYTES: u64 = 256 << 30;
/// Tries in a row that bring nothing.
const FRUITLESS: u32 = 4;
/// Tries in all, whatever they bring.
const TRIES: u32 = 200;
/// The pause before the first try again; each further one is twice as long.
const PAUSE: Duration = Duration::from_millis(250);
/// Bytes read at a time where a file is read again.
const BLOCK: usize = 1 << 20;

/// What is wanted.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    pub(super) url: Url,
    /// The digest that it must have.
    pub(super) sha256: Option<String>,
    /// The size that it must have.
    pub(super) bytes: Option<u64>,
    /// The answer's headers may tell the digest, as Hugging Face's do.
    pub(super) linked: bool,
}

/// What came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Got {
    pub(super) sha256: String,
    pub(super) bytes: u64,
}

/// What is known of a `.part` file, kept beside it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
struct Begun {
    url: String,
    /// What the server calls this state of the file: a strong ETag, else a date.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    state: Option<String>,
    /// The size of the whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
}

/// Tells how far it is: bytes here, and of how many.
pub(super) type Progress<'a> = &'a dyn Fn(u64, Option<u64>);

/// A download that runs.
struct Download<'a> {
    web: &'a Web,
    wanted: Wanted,
    part: &'a Path,
    begun: Begun,
    file: tokio::fs::File,
    sum: Sha256,
    at: u64,
    progress: Progress<'a>,
}

/// How a try ended.
enum Tried {
    Whole,
    /// It broke; another one may help.
    Broke(String),
}

/// Gets a file into `part`, which the caller has locked.
///
/// # Errors
/// A [`Stop`] that says what to do; what came stays for the next time unless it is of no use.
pub(super) async fn get(
    web: &Web,
    wanted: Wanted,
    part: &Path,
    file: std::fs::File,
    progress: Progress<'_>,
) -> anyhow::Result<Got> {
    let begun = read_begun(part).filter(|begun| begun.url == wanted.url.as_str()).unwrap_or_default();
    let mut download = Download {
        web,
        begun,
        part,
        file: tokio::fs::File::from_std(file.try_clone().context("open the download")?),
        sum: Sha256::new(),
        at: 0,
        progress,
        wanted,
    };
    if download.begun.url.is_empty() || !download.can_go_on() {
        download.restart().await?;
    } else {
        let (sum, at) =
            tokio::task::spawn_blocking(move || sum_of(file)).await?.context("read the download")?;
        (download.sum, download.at) = (sum, at);
    }
    download.run().await
}

impl Download<'_> {
    async fn run(mut self) -> anyhow::Result<Got> {
        let mut fruitless = 0;
        for _ in 0..TRIES {
            let before = self.at;
            match self.attempt().await? {
                Tried::Whole => return self.finish().await,
                Tried::Broke(_) if self.at > before => fruitless = 0,
                Tried::Broke(why) => {
                    fruitless += 1;
                    if fruitless == FRUITLESS {
                        return Err(self.broken(&why).into());
                    }
                    tokio::time::sleep(PAUSE * 2_u32.pow(fruitless - 1)).await;
                }
            }
        }
        Err(self.broken("it breaks again and again").into())
    }

    fn host(&self) -> &str {
        self.wanted.url.host_str().unwrap_or_default()
    }

    fn broken(&self, why: &str) -> Stop {
        let kept = if self.at > 0 && self.can_go_on() {
            "; run the same again to go on where it broke off"
        } else {
            ""
        };
        Stop::new(Exit::Failed, format!("the download from {} broke: {why}{kept}", self.host()))
    }

    /// Whether a later try would notice that the file behind the address is another one.
    fn can_go_on(&self) -> bool {
        self.begun.state.is_some() || self.wanted.sha256.is_some()
    }

    async fn restart(&mut self) -> anyhow::Result<()> {
        self.file.set_len(0).await.context("empty the download")?;
        self.file.rewind().await.context("empty the download")?;
        self.sum = Sha256::new();
        self.at = 0;
        self.begun = Begun { url: self.wanted.url.as_str().to_owned(), ..Begun::default() };
        write_begun(self.part, &self.begun).context("note the download")
    }

    /// Asks once, and takes what comes.
    async fn attempt(&mut self) -> anyhow::Result<Tried> {
        if self.at > 0 && !self.can_go_on() {
            self.restart().await?;
        }
        let mut headers = HeaderMap::new();
        if self.at > 0 {
            headers.insert(RANGE, HeaderValue::try_from(format!("bytes={}-", self.at))?);
            if let Some(state) = &self.begun.state {
                headers.insert(IF_RANGE, HeaderValue::try_from(state)?);
            }
        }
        let answer = match self.web.get(&self.wanted.url, &headers).await {
            Ok(answer) => answer,
            Err(error) => match error.downcast::<reqwest::Error>() {
                Ok(error) => return Ok(Tried::Broke(reason(&error))),
                Err(error) => return Err(error),
            },
        };
        if self.wanted.linked && self.wanted.sha256.is_none() {
            let headers = answer.first.as_ref().unwrap_or_else(|| answer.response.headers());
            let linked = headers.get("x-linked-etag").and_then(|value| value.to_str().ok());
            self.wanted.sha256 = linked.and_then(source::digest);
        }
        let response = answer.response;
        match response.status() {
            StatusCode::PARTIAL_CONTENT if self.continues(&response) => {}
            StatusCode::OK => {
                self.restart().await?;
                self.begun.state = state(response.headers());
                self.begun.bytes = response.content_length();
                write_begun(self.part, &self.begun).context("note the download")?;
            }
            // There is nothing behind what is here: all of it came, or the file is another one now.
            StatusCode::RANGE_NOT_SATISFIABLE if self.begun.bytes == Some(self.at) => {
                return Ok(Tried::Whole);
            }
            StatusCode::RANGE_NOT_SATISFIABLE | StatusCode::PARTIAL_CONTENT => {
                self.restart().await?;
                return Ok(Tried::Broke("the file changed in the meantime".to_owned()));
            }
            status => return self.refused(status),
        }
        self.check_room().await?;
        self.take(response).await
    }

    /// Whether an answer goes on with the same file at the same place.
    fn continues(&self, response: &Response) -> bool {
        let range = response.headers().get(CONTENT_RANGE).and_then(|value| value.to_str().ok());
        let Some((first, whole)) = range.and_then(read_range) else { return false };
        let same_state = match (&self.begun.state, state(response.headers())) {
            (Some(before), Some(now)) => *before == now,
            (Some(_) | None, None) | (None, Some(_)) => true,
        };
        let same_size = whole.is_none() || self.begun.bytes.is_none() || whole == self.begun.bytes;
        first == self.at && same_state && same_size
    }

    fn refused(&self, status: StatusCode) -> anyhow::Result<Tried> {
        let host = self.host();
        match status.as_u16() {
            404 | 410 => Err(Stop::new(Exit::NotFound, format!("{host} has no such file ({status})")).into()),
            401 | 403 => Err(Stop::new(
                Exit::Failed,
                format!("{host} does not give this file to everybody ({status}); get it in a browser, and pull the file"),
            )
            .into()),
            408 | 425 | 429 | 500.. => Ok(Tried::Broke(format!("{host} answers {status}"))),
            _ => Err(Stop::new(Exit::Failed, format!("{host} answers {status}")).into()),
        }
    }

    /// Refuses a file that is too large, or that the disk has no room for.
    async fn check_room(&self) -> anyhow::Result<()> {
        let Some(bytes) = self.begun.bytes.or(self.wanted.bytes) else { return Ok(()) };
        if bytes > MAX_BYTES {
            return Err(too_large(self.host()).into());
        }
        if self.wanted.bytes.is_some_and(|wanted| wanted != bytes) {
            return Err(Stop::new(
                Exit::Failed,
                format!("{} has another file there than it says", self.host()),
            )
            .into());
        }
        let (part, needed) = (self.part.to_owned(), bytes.saturating_sub(self.at));
        tokio::task::spawn_blocking(move || place::check_room(&part, needed)).await?
    }

    async fn take(&mut self, mut response: Response) -> anyhow::Result<Tried> {
        loop {
            (self.progress)(self.at, self.begun.bytes);
            let bytes = match response.chunk().await {
                Ok(Some(bytes)) => bytes,
                Ok(None) => break,
                Err(error) => {
                    self.file.flush().await.context("write the download")?;
                    return Ok(Tried::Broke(reason(&error)));
                }
            };
            self.at += bytes.len() as u64;
            if self.at > self.begun.bytes.unwrap_or(MAX_BYTES) {
                return Err(too_large(self.host()).into());
            }
            self.sum.update(&bytes);
            self.file.write_all(&bytes).await.context("write the download")?;
        }
        self.file.flush().await.context("write the download")?;
        match self.begun.bytes {
            Some(bytes) if self.at < bytes => Ok(Tried::Broke("it ended too soon".to_owned())),
            Some(_) | None => Ok(Tried::Whole),
        }
    }

    /// Compares the digest; a file with another one is of no use.
    async fn finish(mut self) -> anyhow::Result<Got> {
        self.file.sync_all().await.context("write the download")?;
        let sha256 = hex(&self.sum.finalize_reset());
        if let Some(wanted) = self.wanted.sha256.clone().filter(|wanted| *wanted != sha256) {
            self.restart().await?;
            return Err(Stop::new(
                Exit::Failed,
                format!("what came has not the checksum {wanted} but {sha256}; it was thrown away"),
            )
            .into());
        }
        Ok(Got { sha256, bytes: self.at })
    }
}

fn too_large(host: &str) -> Stop {
    Stop::new(Exit::Failed, format!("{host} sends more than it says, or than 256 GiB"))
}

/// Returns what the server calls this state of the file, where that tells every two states apart.
fn state(headers: &HeaderMap) -> Option<String> {
    let text =
        |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok()).map(str::to_owned);
    text(ETAG).filter(|tag| !tag.starts_with("W/")).or_else(|| text(LAST_MODIFIED))
}

/// Reads `bytes FIRST-LAST/WHOLE`.
fn read_range(text: &str) -> Option<(u64, Option<u64>)> {
    let (range, whole) = text.strip_prefix("bytes ")?.split_once('/')?;
    let first = range.split_once('-')?.0.trim().parse().ok()?;
    Some((first, whole.trim().parse().ok()))
}

/// Returns the innermost cause; the outer ones name the whole address, which may hold a key.
fn reason(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        return "no answer in time".to_owned();
    }
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

/// Returns bytes as hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the digest of what is there so far, and how much that is.
fn sum_of(mut file: std::fs::File) -> std::io::Result<(Sha256, u64)> {
    let mut sum = Sha256::new();
    let mut block = vec![0; BLOCK];
    let mut at = 0;
    file.seek(SeekFrom::Start(0))?;
    loop {
        let read = file.read(&mut block)?;
        if read == 0 {
            return Ok((sum, at));
        }
        sum.update(&block[..read]);
        at += read as u64;
    }
}

/// Returns where it is noted what a `.part` file is the begin of.
pub(super) fn note_of(part: &Path) -> PathBuf {
    part.with_added_extension("json")
}

fn read_begun(part: &Path) -> Option<Begun> {
    serde_json::from_slice(&std::fs::read(note_of(part)).ok()?).ok()
}

fn write_begun(part: &Path, begun: &Begun) -> anyhow::Result<()> {
    Ok(std::fs::write(note_of(part), serde_json::to_vec(begun)?)?)
}

#[cfg(test)]
mod tests;

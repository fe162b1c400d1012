//! Sessions as files: written and taken in as they come, whatever their size.

use std::io;
use std::time::Duration;

use futures_util::Stream;
use reqwest::{Body, Method, Response};
use tns_protocol::SessionId;
use tns_protocol::rest::{EXPORT_TYPES, SessionDetail};
use tokio::time::timeout;

use super::{CALL_TIMEOUT, Rest, accepted, answer, plain, root_cause};
use crate::ClientError;

/// Time for a whole file.
const FILE_TIMEOUT: Duration = Duration::from_secs(24 * 3_600);

/// How a session is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExportFormat {
    /// The log itself, which can be taken in again.
    Jsonl,
    /// A page for people.
    Markdown,
}

/// Where an imported session goes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ImportTarget {
    /// Its id; absent: the file's, or a fresh one where that is taken.
    pub id: Option<SessionId>,
    /// Give it a fresh id in any case; not together with `id`.
    pub fresh: bool,
    /// The folder that its tools work in; absent: the file's where the server has it.
    pub workspace: Option<String>,
}

/// A file that comes in pieces.
#[derive(Debug)]
pub struct Download {
    response: Response,
    url: String,
}

impl Download {
    /// Returns the next piece; `None`: that was all of it.
    ///
    /// # Errors
    /// [`ClientError::Unreachable`] when the file was cut, or nothing comes any more.
    pub async fn chunk(&mut self) -> Result<Option<Vec<u8>>, ClientError> {
        let silent = |_| {
            let seconds = CALL_TIMEOUT.as_secs();
            ClientError::Unreachable(format!("{} sent nothing for {seconds} seconds", self.url))
        };
        let chunk = timeout(CALL_TIMEOUT, self.response.chunk()).await.map_err(silent)?;
        let chunk = chunk.map_err(|error| ClientError::Unreachable(plain(root_cause(&error))))?;
        Ok(chunk.map(|bytes| bytes.to_vec()))
    }
}

impl Rest {
    /// GET `/api/sessions/{id}/export`: the session as a file, with `redact` without the secrets in it.
    ///
    /// # Errors
    /// As [`Self::session`].
    pub async fn export_session(
        &self,
        id: &SessionId,
        format: ExportFormat,
        redact: bool,
    ) -> Result<Download, ClientError> {
        let format = match format {
            ExportFormat::Jsonl => "jsonl",
            ExportFormat::Markdown => "markdown",
        };
        let query: Vec<_> =
            [("format", format)].into_iter().chain(redact.then_some(("redact", "1"))).collect();
        let url = self.url_of(&["api", "sessions", id.as_str(), "export"], &query);
        let request = self.http()?.request(Method::GET, url).timeout(FILE_TIMEOUT);
        let sent = timeout(CALL_TIMEOUT, request.send()).await;
        let response = sent.map_err(|_| self.silent())?.map_err(|error| self.failed(&error))?;
        Ok(Download { response: accepted(response).await?, url: self.url() })
    }

    /// POST `/api/sessions/import`: makes a session of an export in JSON Lines.
    ///
    /// # Errors
    /// As [`Self::health`]; `INVALID_MESSAGE` names the line of a damaged file, or says that the id is taken.
    pub async fn import_session(
        &self,
        file: impl Stream<Item = io::Result<Vec<u8>>> + Send + 'static,
        target: &ImportTarget,
    ) -> Result<SessionDetail, ClientError> {
        let query: Vec<_> = target
            .id
            .as_ref()
            .map(|id| ("id", id.as_str()))
            .into_iter()
            .chain(target.fresh.then_some(("new", "1")))
            .chain(target.workspace.as_deref().map(|folder| ("workspace", folder)))
            .collect();
        let url = self.url_of(&["api", "sessions", "import"], &query);
        let request = self
            .http()?
            .request(Method::POST, url)
            .timeout(FILE_TIMEOUT)
            .header("content-type", EXPORT_TYPES[0])
            .body(Body::wrap_stream(file));
        answer(request.send().await.map_err(|error| self.failed(&error))?).await
    }
}

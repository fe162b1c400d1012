//! Sessions as files over HTTP: written as they are read, a page at a time in memory, and taken in as they come, a line
//! at a time.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::{Body as HttpBody, BodyDataStream, Bytes};
use axum::extract::{FromRequest, Request, State};
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use futures_util::{StreamExt, stream};
use schemars::JsonSchema;
use serde::Deserialize;
use tns_protocol::rest::{EXPORT_TYPES, SessionDetail};
use tns_protocol::{ErrorCode, Seq, SessionId};
use tns_server_core::session::SessionHandle;
use tns_server_core::session::registry::RegistryError;
use tns_server_core::store::{EventPage, EventQuery, ImportKey, LOCAL_PRINCIPAL, NewImport, StoreError};
use tokio::time::timeout;

use super::sessions::{detail, folder_of, new_session_id};
use super::{Params, Path, session};
use crate::gateway::Gateway;
use crate::gateway::dispatch::checked_title;
use crate::gateway::error::ApiError;
use crate::transfer::{Entry, Fault, Header, Item, Lines, Markdown, Reader, TooLong};

/// How long a client may be silent while it sends a file.
const SILENCE: Duration = Duration::from_secs(60);
/// How long the rest of a refused file is read, so that its sender gets to reading the refusal.
const DRAIN: Duration = Duration::from_secs(10);

/// How a session is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Format {
    /// The log itself, which can be taken in again.
    #[default]
    Jsonl,
    /// A page for people.
    Markdown,
}

/// How the session is written.
#[derive(Debug, Deserialize, JsonSchema)]
pub(in crate::gateway) struct ExportParams {
    /// The log itself, or a page for people.
    #[serde(default)]
    format: Format,
    /// 1: take out what looks like a secret.
    redact: Option<u8>,
}

/// GET `/api/sessions/{id}/export?format=jsonl|markdown&redact=1`: the log up to where it ends now.
pub(in crate::gateway) async fn export(
    State(gateway): State<Arc<Gateway>>,
    Path(id): Path<String>,
    Params(params): Params<ExportParams>,
) -> Result<Response, ApiError> {
    let handle = session(&gateway, &id).await?;
    let record = handle.log().store.find_session(LOCAL_PRINCIPAL, &handle.identity().id).await?;
    let record = record.ok_or(StoreError::NoSession)?;
    let redacted = params.redact == Some(1);
    let header = Header::of(&record, redacted);
    let mut writer =
        Writer { handle, form: Form::new(params.format), after: 0, head: record.head_seq, redacted };
    // The first page is read before the answer begins, so that what fails at once fails in order.
    let mut first = writer.begin(&header)?;
    first.extend_from_slice(&writer.page().await?.unwrap_or_default());
    let rest = stream::unfold(writer, |mut writer| async move {
        let page = writer.page().await.transpose()?;
        if let Err(error) = &page {
            tracing::warn!(session = %writer.handle.identity().id, %error, "an export ends before its end");
        }
        Some((page, writer))
    });
    let body = stream::once(async { Ok(first) }).chain(rest).map(|page| page.map(Bytes::from));
    let (kind, end) = match params.format {
        Format::Jsonl => (EXPORT_TYPES[0], "jsonl"),
        Format::Markdown => ("text/markdown; charset=utf-8", "md"),
    };
    // Ids have no character that would end the quotes.
    let name = format!("attachment; filename=\"{}.{end}\"", record.id);
    Ok(([(CONTENT_TYPE, kind), (CONTENT_DISPOSITION, &name)], HttpBody::from_stream(body)).into_response())
}

/// What is written.
enum Form {
    Jsonl,
    Markdown(Markdown),
}

impl Form {
    fn new(format: Format) -> Self {
        match format {
            Format::Jsonl => Self::Jsonl,
            Format::Markdown => Self::Markdown(Markdown::default()),
        }
    }
}

/// Writes a log up to a place.
struct Writer {
    handle: SessionHandle,
    form: Form,
    after: Seq,
    head: Seq,
    redacted: bool,
}

/// An export could not go on; its reader sees that it was cut.
#[derive(Debug, thiserror::Error)]
enum WriteError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("event {0} can't be read; `tns doctor` looks at the store")]
    Gap(Seq),
    #[error("an event can't be written: {0}")]
    Json(#[from] serde_json::Error),
}

impl From<WriteError> for ApiError {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Store(error) => error.into(),
            WriteError::Gap(_) | WriteError::Json(_) => Self::of_code(ErrorCode::Internal, error.to_string()),
        }
    }
}

impl Writer {
    fn begin(&mut self, header: &Header) -> Result<Vec<u8>, WriteError> {
        match &mut self.form {
            Form::Jsonl => Ok(header.line()?),
            Form::Markdown(page) => Ok(page.begin(header).into_bytes()),
        }
    }

    /// Writes the next page; `None` behind the last one.
    async fn page(&mut self) -> Result<Option<Vec<u8>>, WriteError> {
        if self.after == self.head {
            return Ok(None);
        }
        let log = self.handle.log();
        let query = EventQuery { after: self.after, before: Some(self.head + 1), ..EventQuery::default() };
        let page: EventPage = log.store.events(log.session, query).await?;
        let more = page.more;
        let mut text = Vec::new();
        for entry in Entry::of_page(page, self.redacted) {
            // One that can't be read is left out of a page; a file that lacks it would pass for whole.
            if entry.seq() != self.after + 1 {
                return Err(WriteError::Gap(self.after + 1));
            }
            self.after = entry.seq();
            match &mut self.form {
                Form::Jsonl => text.extend(entry.line()?),
                Form::Markdown(page) => text.extend(page.entry(&entry).into_bytes()),
            }
        }
        if !more && self.after != self.head {
            return Err(WriteError::Gap(self.after + 1));
        }
        Ok(Some(text))
    }
}

/// Where the session goes.
#[derive(Debug, Deserialize, JsonSchema)]
pub(in crate::gateway) struct ImportParams {
    /// The session's id; absent: the file's, or a new one where that is taken.
    id: Option<SessionId>,
    /// 1: a new id in any case; not together with `id`.
    new: Option<u8>,
    /// The folder that its tools work in; absent: the file's where this machine has it, else the server's first root.
    workspace: Option<String>,
}

/// A file on its way.
pub(in crate::gateway) struct File(BodyDataStream);

impl<S: Send + Sync> FromRequest<S> for File {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Self, ApiError> {
        check_type(request.headers())?;
        Ok(Self(request.into_body().into_data_stream()))
    }
}

fn check_type(headers: &HeaderMap) -> Result<(), ApiError> {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    if EXPORT_TYPES.iter().any(|known| known.eq_ignore_ascii_case(kind)) {
        return Ok(());
    }
    let message = format!("Content-Type must be {}", EXPORT_TYPES.join(" or "));
    Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, ErrorCode::InvalidMessage, message))
}

/// POST `/api/sessions/import?id=&new=1&workspace=`: 201 with the session. It gets the id of the file; a fresh one where
/// that is taken, or with `new=1`; or the one that is named.
pub(in crate::gateway) async fn import(
    State(gateway): State<Arc<Gateway>>,
    Params(params): Params<ImportParams>,
    File(mut body): File,
) -> Result<(StatusCode, Json<SessionDetail>), ApiError> {
    match take_in(&gateway, params, &mut body).await {
        Ok(handle) => Ok((StatusCode::CREATED, Json(detail(&handle).await?))),
        Err(error) => {
            let drain = async { while let Some(Ok(_)) = body.next().await {} };
            // Who still sends then is not waited for.
            let _ = timeout(DRAIN, drain).await;
            Err(error)
        }
    }
}

async fn take_in(
    gateway: &Arc<Gateway>,
    params: ImportParams,
    body: &mut BodyDataStream,
) -> Result<SessionHandle, ApiError> {
    if params.id.is_some() && params.new == Some(1) {
        return Err(ApiError::invalid("name an id, or ask for a new one, not both"));
    }
    gateway.check_room()?;
    let mut file =
        Coming { body, reader: Reader::default(), lines: Lines::default(), ready: VecDeque::new() };
    let Some((Item::Header(header), _)) = file.next().await? else { return Err(Reader::empty().into()) };
    let new = NewImport {
        principal: LOCAL_PRINCIPAL.to_owned(),
        id: target(gateway, &params, &header).await?,
        title: checked_title(header.title.clone()).map_err(|why| file.reader.fault(why))?,
        workspace: workspace(gateway, params.workspace, &header).await?,
        created_at: header.created_at(),
    };
    let registry = &gateway.registry;
    let begun = registry.begin_import(new, header.begins()).await;
    let mut import = begun.map_err(|error| file.worded(error))?;
    let mut abandon = Abandon { gateway: gateway.clone(), key: Some(import.key()) };
    while let Some((item, size)) = file.next().await? {
        // Only the first line is a header.
        let Item::Event(event, score) = item else { continue };
        let added = registry.import_event(&mut import, *event, score, size).await;
        added.map_err(|error| file.worded(error))?;
    }
    file.reader.end()?;
    let made = registry.finish_import(import).await?;
    abandon.key = None;
    Ok(made)
}

/// Chooses the new session's id.
async fn target(gateway: &Gateway, params: &ImportParams, header: &Header) -> Result<SessionId, ApiError> {
    let taken = async |id: &SessionId| gateway.registry.is_taken(LOCAL_PRINCIPAL, id).await;
    match &params.id {
        Some(id) if taken(id).await? => Err(RegistryError::Exists(id.clone()).into()),
        Some(id) => Ok(id.clone()),
        None if params.new == Some(1) || taken(&header.id).await? => new_session_id(),
        None => Ok(header.id.clone()),
    }
}

/// Chooses the new session's folder: the named one, else the file's where this machine has it, else the first root.
async fn workspace(gateway: &Gateway, named: Option<String>, header: &Header) -> Result<PathBuf, ApiError> {
    match named {
        Some(folder) => folder_of(PathBuf::from(folder)).await,
        None => {
            Ok(folder_of(PathBuf::from(&header.workspace)).await.unwrap_or_else(|_| gateway.roots[0].clone()))
        }
    }
}

/// A file as it comes.
struct Coming<'a> {
    body: &'a mut BodyDataStream,
    reader: Reader,
    lines: Lines,
    /// Bytes that came and were not looked at yet.
    ready: VecDeque<Bytes>,
}

impl Coming<'_> {
    /// Reads the next line, and says how long it is.
    async fn next(&mut self) -> Result<Option<(Item, usize)>, ApiError> {
        loop {
            while let Some(bytes) = self.ready.pop_front() {
                let mut left = &bytes[..];
                let taken = self.lines.take(&mut left);
                let read = bytes.len() - left.len();
                if read < bytes.len() {
                    self.ready.push_front(bytes.slice(read..));
                }
                match taken {
                    Ok(None) => {}
                    Ok(Some(line)) => {
                        if let Some(item) = self.reader.line(&line)? {
                            return Ok(Some((item, line.len())));
                        }
                    }
                    Err(TooLong) => return Err(self.reader.too_long().into()),
                }
            }
            match timeout(SILENCE, self.body.next()).await {
                Ok(Some(Ok(bytes))) => self.ready.push_back(bytes),
                Ok(None) => {
                    let Some(line) = std::mem::take(&mut self.lines).rest() else { return Ok(None) };
                    return Ok(self.reader.line(&line)?.map(|item| (item, line.len())));
                }
                Ok(Some(Err(error))) => {
                    return Err(ApiError::invalid(format!("the file was not sent to its end: {error}")));
                }
                Err(_) => {
                    let message = format!("nothing came for {} s; send the file again", SILENCE.as_secs());
                    return Err(ApiError::new(StatusCode::REQUEST_TIMEOUT, ErrorCode::Limit, message));
                }
            }
        }
    }

    /// Names the line of what may not be taken in.
    fn worded(&self, error: RegistryError) -> ApiError {
        match error {
            RegistryError::NotTakenIn(what) => self.reader.fault(what).into(),
            other => other.into(),
        }
    }
}

impl From<Fault> for ApiError {
    fn from(fault: Fault) -> Self {
        Self::invalid(fault.to_string())
    }
}

/// Throws an import away that its request leaves unfinished.
struct Abandon {
    gateway: Arc<Gateway>,
    key: Option<ImportKey>,
}

impl Drop for Abandon {
    fn drop(&mut self) {
        let Some(key) = self.key else { return };
        let gateway = self.gateway.clone();
        self.gateway.goodbyes.spawn(async move {
            if let Err(error) = gateway.registry.abandon_import(key).await {
                tracing::warn!(%error, "an unfinished import stays until the next start");
            }
        });
    }
}

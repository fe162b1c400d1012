//! Where data is kept: the folder, the store in it, the server that holds it, and the port of a server.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use nix::sys::statvfs::statvfs;
use nix::unistd::{AccessFlags, access};
use tns_client::Rest;
use tns_server::{Inspection, Pages, StoreError, inspect_store};
use tokio::net::TcpListener;
use tokio::time::timeout;

use super::Check;
use crate::Context;
use crate::data_dir;
use crate::server::Holder;

const FOLDER: &str = "data folder";
const SPACE: &str = "free space";
const STORE: &str = "store";
const SERVER: &str = "server";

/// How long the pages of the store are looked at.
const STORE_LIMIT: Duration = Duration::from_secs(5);
/// How long who has the port may take to say who it is.
const PORT_LIMIT: Duration = Duration::from_secs(2);
/// Less than this, in bytes, and a day's work may not fit.
const LITTLE_SPACE: u64 = 200 << 20;
/// Less than this, in bytes, and the store may not open.
const NO_SPACE: u64 = 10 << 20;

/// Checks the data folder and all in it, then the port.
pub(super) async fn check(context: &Context, port: u16, checks: &mut Vec<Check>) {
    let holder = match data_dir::place(context.globals.data_dir.as_deref()) {
        Ok(path) => check_folder(&path, checks).await,
        Err(stop) => {
            checks.push(Check::fail(FOLDER, stop.to_string(), "or name one with --data-dir"));
            None
        }
    };
    check_port(port, holder.as_deref(), checks).await;
}

/// Returns the address of the server that holds the folder, if one does.
async fn check_folder(path: &Path, checks: &mut Vec<Check>) -> Option<String> {
    let shown = path.display();
    let metadata = match std::fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            checks.push(to_be_made(path));
            return None;
        }
        Err(error) => {
            let fix = "choose another with --data-dir";
            checks.push(Check::fail(FOLDER, format!("{shown} can't be opened: {error}"), fix));
            return None;
        }
    };
    let mode = metadata.permissions().mode() & 0o777;
    checks.push(if !metadata.is_dir() {
        Check::fail(FOLDER, format!("{shown} is not a folder"), "choose another with --data-dir")
    } else if metadata.uid() != nix::unistd::geteuid().as_raw() {
        Check::fail(FOLDER, format!("{shown} belongs to another user"), "choose another with --data-dir")
    } else if mode & 0o077 != 0 {
        let fix = format!("close it with `chmod 700 {shown}`");
        Check::fail(FOLDER, format!("{shown} is open to others (mode {mode:o})"), fix)
    } else if access(path, AccessFlags::W_OK | AccessFlags::X_OK).is_err() {
        let fix = format!("allow it with `chmod 700 {shown}`");
        Check::fail(FOLDER, format!("{shown} can't be written (mode {mode:o})"), fix)
    } else if let Some(open) = open_file(path) {
        let fix = format!("close it with `chmod 600 {}`", path.join(open).display());
        Check::warn(FOLDER, format!("{open} in {shown} has a mode wider than 600"), fix)
    } else {
        Check::ok(FOLDER, format!("{shown}, yours alone (mode {mode:o})"))
    });
    if !metadata.is_dir() {
        return None;
    }
    checks.extend(check_space(path));
    // Where nothing can be written, what the store says of itself would mislead.
    if access(path, AccessFlags::W_OK | AccessFlags::X_OK).is_ok() {
        checks.push(check_store(path).await);
    }
    match Holder::of(path).await {
        None => {
            checks.push(Check::ok(SERVER, "none holds the data folder; commands start their own"));
            None
        }
        Some(Holder { pid, url: Some(url), answers: true }) => {
            checks.push(Check::ok(
                SERVER,
                format!("{} holds the data folder and answers at {url}", process(pid)),
            ));
            Some(url)
        }
        Some(Holder { pid, url, .. }) => {
            let at =
                url.map_or_else(|| "does not say where".into(), |url| format!("does not answer at {url}"));
            let detail = format!("{} holds the data folder and {at}", process(pid));
            checks.push(Check::fail(SERVER, detail, "stop it, or choose another folder with --data-dir"));
            None
        }
    }
}

fn process(pid: Option<u32>) -> String {
    pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
}

/// The first file of ours that others could read.
fn open_file(path: &Path) -> Option<&'static str> {
    ["tns.db", "lock", "server.json"].into_iter().find(|name| {
        let metadata = std::fs::metadata(path.join(name));
        metadata.is_ok_and(|metadata| metadata.permissions().mode() & 0o077 != 0)
    })
}

/// A folder that is not there yet: the first folder above it that is must take it.
fn to_be_made(path: &Path) -> Check {
    let above = path.ancestors().skip(1).find(|above| above.exists()).unwrap_or(Path::new("/"));
    let shown = path.display();
    if above.is_dir() && access(above, AccessFlags::W_OK | AccessFlags::X_OK).is_ok() {
        Check::ok(FOLDER, format!("{shown} is not there yet; the first command makes it"))
    } else {
        let detail = format!("{shown} is not there and can't be made in {}", above.display());
        Check::fail(FOLDER, detail, "choose another with --data-dir")
    }
}

fn check_space(path: &Path) -> Option<Check> {
    let system = statvfs(path).ok()?;
    let free = system.blocks_available().saturating_mul(system.fragment_size());
    let detail = format!("{} MiB", free >> 20);
    let fix = "free some on that disk, or choose another folder with --data-dir";
    Some(match free {
        ..NO_SPACE => Check::fail(SPACE, detail, fix),
        NO_SPACE..LITTLE_SPACE => Check::warn(SPACE, detail, fix),
        _ => Check::ok(SPACE, detail),
    })
}

async fn check_store(path: &Path) -> Check {
    let folder = path.to_owned();
    let looked = tokio::task::spawn_blocking(move || inspect_store(&folder, STORE_LIMIT)).await;
    let database = path.join("tns.db");
    let away = format!("move {} away to begin with an empty one", database.display());
    match looked {
        Err(error) => Check::fail(STORE, format!("looking at it stopped: {error}"), away),
        Ok(Err(error @ StoreError::Busy)) => {
            Check::warn(STORE, error.to_string(), "look again when the other process is done")
        }
        Ok(Err(error @ (StoreError::Newer(_) | StoreError::Full))) => {
            Check::fail(STORE, error.to_string(), "or choose another folder with --data-dir")
        }
        Ok(Err(error)) => Check::fail(STORE, error.to_string(), away),
        Ok(Ok(None)) => Check::ok(STORE, "nothing is stored yet"),
        Ok(Ok(Some(Inspection { format, newest, pages }))) => match pages {
            Pages::Damaged(why) => Check::fail(STORE, format!("damaged: {why}"), away),
            Pages::NotAllSeen => {
                Check::ok(STORE, format!("format {format}; large, and well as far as was seen"))
            }
            Pages::Whole if format < newest => {
                Check::ok(STORE, format!("format {format}, whole; the next command makes it {newest}"))
            }
            Pages::Whole => Check::ok(STORE, format!("format {format}, whole")),
        },
    }
}

async fn check_port(port: u16, holder: Option<&str>, checks: &mut Vec<Check>) {
    let name = format!("port {port}");
    let mut taken = false;
    for address in [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)] {
        let bound = TcpListener::bind((address, port)).await;
        taken |= matches!(bound, Err(error) if error.kind() == io::ErrorKind::AddrInUse);
    }
    checks.push(if !taken {
        Check::ok(name, "free for `tns serve`")
    } else if holder.is_some_and(|url| url.ends_with(&format!(":{port}"))) {
        Check::ok(name, "the server of this data folder has it")
    } else {
        let fix = "choose another with `tns serve --port`, or 0 for a free one";
        let url = format!("http://127.0.0.1:{port}");
        let info = match Rest::new(&url) {
            Ok(rest) => timeout(PORT_LIMIT, async move { rest.info().await }).await.ok().and_then(Result::ok),
            Err(_) => None,
        };
        match info {
            Some(info) => {
                Check::warn(name, format!("a tns server {} of another data folder has it", info.version), fix)
            }
            None => Check::warn(name, "another program has it", fix),
        }
    });
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};

    use super::super::Status;
    use super::*;
    use crate::data_dir::DataDir;

    fn opens(path: &Path) -> bool {
        DataDir::open(Some(path)).is_ok()
    }

    async fn folder(path: &Path) -> Vec<Check> {
        let mut checks = Vec::new();
        check_folder(path, &mut checks).await;
        checks
    }

    #[tokio::test]
    async fn what_would_not_open_fails_and_what_would_does_not() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("data");
        assert_eq!(folder(&path).await[0].status, Status::Ok);
        assert!(!path.exists());
        for (mode, status) in [(0o700, Status::Ok), (0o755, Status::Fail), (0o770, Status::Fail)] {
            fs::create_dir_all(&path).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let found = folder(&path).await;
            assert_eq!(found[0].status, status, "{found:?}");
            assert_eq!(opens(&path), status == Status::Ok);
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        let found = folder(file.path()).await;
        assert_eq!((found.len(), found[0].status), (1, Status::Fail), "{found:?}");
        let found = folder(&file.path().join("below")).await;
        assert_eq!((found.len(), found[0].status), (1, Status::Fail), "{found:?}");
    }

    #[tokio::test]
    async fn a_file_that_others_can_read_is_named() {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), Permissions::from_mode(0o700)).unwrap();
        fs::write(dir.path().join("server.json"), "{}").unwrap();
        fs::set_permissions(dir.path().join("server.json"), Permissions::from_mode(0o644)).unwrap();
        let found = folder(dir.path()).await;
        assert_eq!(found[0].status, Status::Warn, "{found:?}");
        assert!(found[0].fix.as_deref().is_some_and(|fix| fix.contains("chmod 600")), "{found:?}");
    }

    #[tokio::test]
    async fn a_port_is_free_or_somebody_has_it() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut checks = Vec::new();
        let url = format!("http://127.0.0.1:{port}");
        check_port(port, Some(&url), &mut checks).await;
        // It hangs up on whoever asks who it is.
        let hang_up = async { while listener.accept().await.is_ok() {} };
        tokio::select! {
            () = check_port(port, None, &mut checks) => {}
            () = hang_up => {}
        }
        let found: Vec<_> = checks.iter().map(|check| check.status).collect();
        assert_eq!(found, [Status::Ok, Status::Warn], "{checks:?}");
    }
}

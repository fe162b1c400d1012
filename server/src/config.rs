//! What a server is started with. Filled by the program that starts it; this crate reads no environment.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::Duration;

use tns_server_core::session::Titles;
use tns_server_core::turn::TurnLimits;
use tns_server_engines::EngineConfig;
use tns_server_tools::ExecHelper;

/// The port of `tns serve` when none is named.
pub const DEFAULT_PORT: u16 = 7777;

/// What a server is started with.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// The data folder: exists, is the user's own, and nobody else may read it. One server at a time
    /// works in it; the lock is the caller's.
    pub data_dir: PathBuf,
    /// Where to listen: a loopback address. 127.0.0.1 brings ::1 along where there is one.
    pub bind: IpAddr,
    /// The port; 0: a free one.
    pub port: u16,
    /// The server's roots; the first is where sessions work that name no folder.
    pub roots: Vec<PathBuf>,
    /// Keys, addresses and the choice of the engine, each with what set it.
    pub engines: EngineConfig,
    /// Erase sessions whose log did not grow for so long and that nobody uses; `None`: keep them.
    pub retention: Option<Duration>,
    /// Stop when nothing happened for so long; `None`: never.
    pub idle_timeout: Option<Duration>,
    /// FULL_AUTO may be set although no sandbox holds the tools.
    pub unsandboxed: bool,
    /// Starts the helper that runs shell commands.
    pub exec_helper: ExecHelper,
    /// What a turn may use.
    pub limits: TurnLimits,
    /// Who writes the titles of sessions.
    pub titles: Titles,
    /// Most that all sessions may spend a day (UTC) together, in US dollars; `None`: no limit.
    pub spend_daily: Option<f64>,
    /// Most that each session may spend, in US dollars; `None`: no limit.
    pub spend_session: Option<f64>,
    /// Most time a shell command may take.
    pub shell_limit: Duration,
}

impl ServerConfig {
    /// Makes the configuration of a server on a free port of 127.0.0.1 with every default.
    pub fn new(data_dir: PathBuf, root: PathBuf, exec_helper: ExecHelper) -> Self {
        Self {
            data_dir,
            bind: IpAddr::V4(Ipv4Addr::LOCALHOST),
            port: 0,
            roots: vec![root],
            engines: EngineConfig::from_env(|_| None),
            retention: None,
            idle_timeout: None,
            unsandboxed: false,
            exec_helper,
            limits: TurnLimits::default(),
            titles: Titles::default(),
            spend_daily: None,
            spend_session: None,
            shell_limit: tns_server_tools::DEFAULT_SHELL_LIMIT,
        }
    }
}

//! Erases sessions that nobody has used for as long as the operator keeps them.

use std::sync::Arc;
use std::time::Duration;

use tns_protocol::Timestamp;
use tns_server_core::session::registry::RegistryError;

use crate::gateway::Gateway;

/// Time between two looks; the first is at the start.
const LOOK_EVERY: Duration = Duration::from_secs(3_600);
/// Sessions that are erased before others get a turn at the store.
const BATCH: usize = 100;
/// Why a session ends that was kept long enough.
pub(crate) const EXPIRED: &str = "expired";

/// Looks now and every hour, until it is dropped.
pub(crate) async fn run(gateway: Arc<Gateway>, keep: Duration) {
    loop {
        match erase(&gateway, keep).await {
            Ok(0) => {}
            Ok(erased) => tracing::info!(erased, "sessions that were kept long enough are erased"),
            Err(error) => {
                tracing::warn!(%error, "sessions that were kept long enough stay until the next look")
            }
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Erases what was not used for `keep` and is not in use. Returns how many sessions.
pub(crate) async fn erase(gateway: &Gateway, keep: Duration) -> Result<usize, RegistryError> {
    let kept = i64::try_from(keep.as_micros()).unwrap_or(i64::MAX);
    let before = Timestamp::from_micros(Timestamp::now().as_micros().saturating_sub(kept));
    let mut erased = 0;
    loop {
        let idle = gateway.deps.store.sessions_idle_since(before, BATCH).await?;
        let found = idle.len();
        let mut gone = 0;
        for record in idle {
            gone += usize::from(gateway.registry.erase_unused(record, EXPIRED).await?);
        }
        erased += gone;
        // Those in use come again with the next page, so a page without progress is the last.
        if found < BATCH || gone == 0 {
            return Ok(erased);
        }
    }
}

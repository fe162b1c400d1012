//! Shows what a running call writes, as it comes. It waits for the session in the tool's stead: a session that
//! takes nothing holds up what is shown, not the tool.

use std::convert::Infallible;
use std::time::Duration;

use tns_protocol::ToolCallId;

use super::calls::CallContext;
use crate::event::LiveEvent;
use crate::session::port::Outgoing;
use crate::tool::LivePieces;

/// Least time between two pieces of a call: what comes quickly is joined.
const BETWEEN_PIECES: Duration = Duration::from_millis(100);

/// Shows pieces until it is dropped.
pub(crate) async fn show(context: &CallContext, call: &ToolCallId, pieces: &LivePieces) -> Infallible {
    loop {
        pieces.written().await;
        let next = || pieces.next().map(|text| output(context, call, text));
        context.port.emit_when_room(next).await;
        tokio::time::sleep(BETWEEN_PIECES).await;
    }
}

/// Shows what is left of a call that has ended, before its result.
pub(crate) async fn show_last(context: &CallContext, call: &ToolCallId, pieces: LivePieces) {
    if let Some(text) = pieces.last() {
        context.port.emit(vec![output(context, call, text)]).await;
    }
}

fn output(context: &CallContext, call: &ToolCallId, text: String) -> Outgoing {
    Outgoing::Live(LiveEvent::ToolOutput { agent: context.agent.clone(), call: call.clone(), text })
}

#[cfg(test)]
mod tests;

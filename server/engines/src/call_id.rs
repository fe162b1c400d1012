//! Makes the ids of tool calls.

use tns_protocol::{InvalidId, ToolCallId};
use uuid::Uuid;

/// Makes an id that no other call has: at most 40 characters, which is what OpenAI takes back.
///
/// # Errors
/// Never in practice: the text is within the id's charset and length.
pub(crate) fn new_call_id() -> Result<ToolCallId, InvalidId> {
    ToolCallId::parse(format!("call_{}", Uuid::new_v4().simple()))
}

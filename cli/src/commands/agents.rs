//! `tns agents`: who answers in a session.

use std::fmt::Write as _;

use anyhow::Context as _;
use clap::Subcommand;
use serde::Serialize;
use tns_client::Reconnect;
use tns_protocol::agent::{AgentAdd, AgentInfo, AgentRemove};
use tns_protocol::{AgentId, ServerMessage, SessionId};

use crate::commands::exchange::Line;
use crate::exit::{Exit, Stop};
use crate::server::Attached;
use crate::{Context, logging, server, workspace};

/// Add, list and remove the agents of a session
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Add an agent and print its id
    Add(Add),
    /// List the agents, the one that answers first: id, provider, model, role
    List,
    /// Remove an agent; a session keeps at least one
    Rm {
        /// The agent's id
        #[arg(value_name = "ID")]
        id: String,
    },
}

#[derive(Debug, clap::Args)]
struct Add {
    /// What the agent is, such as reviewer
    #[arg(long)]
    role: String,
    /// Its name; the role when absent
    #[arg(long)]
    name: Option<String>,
    /// What it is to reach
    #[arg(long)]
    goal: Option<String>,
    /// Its field
    #[arg(long)]
    domain: Option<String>,
    /// Whose model it uses; the server's default when absent
    #[arg(long)]
    provider: Option<String>,
    /// Which model it uses
    #[arg(long)]
    model: Option<String>,
}

/// What `list --json` prints.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Listed<'a> {
    session_id: &'a SessionId,
    agents: &'a [AgentInfo],
}

/// What `rm --json` prints.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Removed {
    agent_id: AgentId,
}

pub(crate) fn run(args: Args, context: &Context) -> anyhow::Result<()> {
    logging::start(context, logging::Unasked::Nothing)?;
    server::with_interruptible(context, async |attached| match args.action {
        Action::Add(add) => run_add(context, attached, add).await,
        Action::List => list(context, attached).await,
        Action::Rm { id } => remove(context, attached, id).await,
    })
}

async fn run_add(context: &Context, attached: &Attached, args: Add) -> anyhow::Result<()> {
    let session = workspace::session(context, &attached.rest()?).await?;
    let mut line = Line::new(attached.connect(Reconnect::Never).await?);
    let Add { role, name, goal, domain, provider, model } = args;
    let request = AgentAdd { role, provider, model, goal, domain, name, roles: None };
    let added = add(&mut line, &session.id, &session.agents, request).await;
    line.client.close().await;
    let added = added?;
    if context.out.json {
        return context.out.json(&added);
    }
    context.out.data(&format!("{}\n", added.agent_id))
}

/// Adds an agent to a session that has `before`, and returns it as it is.
///
/// # Errors
/// The server's refusal with its words.
pub(super) async fn add(
    line: &mut Line,
    session: &SessionId,
    before: &[AgentInfo],
    request: AgentAdd,
) -> anyhow::Result<AgentInfo> {
    let name = request.name.clone().unwrap_or_else(|| request.role.clone());
    line.exchange(session, request.into(), |frame| match &frame.message {
        // Another client may add one at the same moment: its name tells it apart, or it is as good.
        ServerMessage::TeamUpdate(team) if frame.session_id.as_ref() == Some(session) => team
            .agents
            .iter()
            .find(|agent| agent.name == name && !before.iter().any(|known| known.agent_id == agent.agent_id))
            .cloned(),
        _ => None,
    })
    .await
}

async fn list(context: &Context, attached: &Attached) -> anyhow::Result<()> {
    let session = workspace::session(context, &attached.rest()?).await?;
    if context.out.json {
        return context.out.json(&Listed { session_id: &session.id, agents: &session.agents });
    }
    let mut text = String::new();
    for AgentInfo { agent_id, provider, model, role, .. } in &session.agents {
        // Writing into a String can't fail.
        let _ = writeln!(text, "{agent_id}\t{provider}\t{model}\t{role}");
    }
    context.out.data(&text)
}

async fn remove(context: &Context, attached: &Attached, id: String) -> anyhow::Result<()> {
    let unknown = || Stop::new(Exit::NotFound, format!("there is no agent {id} in this session"));
    let agent_id = AgentId::parse(id.as_str()).map_err(|_| unknown())?;
    let session = workspace::session(context, &attached.rest()?).await?;
    if !session.agents.iter().any(|agent| agent.agent_id == agent_id) {
        return Err(unknown().into());
    }
    let mut line = Line::new(attached.connect(Reconnect::Never).await?);
    let request = AgentRemove { agent_id: agent_id.clone() };
    let removed = line
        .exchange(&session.id, request.into(), |frame| match &frame.message {
            ServerMessage::TeamUpdate(team) if frame.session_id.as_ref() == Some(&session.id) => {
                team.agents.iter().all(|agent| agent.agent_id != agent_id).then_some(())
            }
            _ => None,
        })
        .await;
    line.client.close().await;
    removed.context("remove the agent")?;
    if context.out.json {
        return context.out.json(&Removed { agent_id });
    }
    context.out.data(&format!("{agent_id}\n"))
}

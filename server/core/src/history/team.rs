//! What an agent is told of changes in its team. Its prompt is fixed when it is added, so a change is a note. Pure.

use tns_protocol::AgentId;

use crate::agent::Agent;

/// The roster that an agent knows of.
pub(super) struct Told<'a> {
    reader: &'a AgentId,
    known: Option<Vec<Agent>>,
}

impl<'a> Told<'a> {
    /// Begins with the roster that `reader` knows; `None`: with what its prompt says.
    pub(super) fn new(reader: &'a AgentId, known: Option<&[Agent]>) -> Self {
        Self { reader, known: known.map(<[Agent]>::to_vec) }
    }

    /// Returns the roster that holds at this place, as far as the log has told.
    pub(super) fn roster(&self) -> Option<&[Agent]> {
        self.known.as_deref()
    }

    /// Takes the roster after a change and returns what is to be told of it.
    pub(super) fn changes(&mut self, now: &[Agent]) -> Vec<String> {
        let Some(me) = now.iter().find(|agent| agent.id == *self.reader) else {
            // Not a member yet, or no more.
            self.known = Some(now.to_vec());
            return Vec::new();
        };
        let known = self.known.replace(now.to_vec()).unwrap_or_else(|| {
            // The first change of the log. A session begins with one agent, named after its role; whoever else is
            // the reader has just been added, and its prompt names the others.
            if now[0].id == me.id {
                vec![Agent { name: me.role.clone(), goal: None, ..me.clone() }]
            } else {
                now.to_vec()
            }
        });
        let Some(before) = known.iter().find(|agent| agent.id == *self.reader) else {
            return Vec::new();
        };
        let mut told = Vec::new();
        if before.name != me.name {
            told.push(format!("You are called {} from now on.", me.name));
        }
        if let Some(goal) = me.goal.as_ref().filter(|_| before.goal != me.goal) {
            told.push(format!("Your goal from now on: {goal}"));
        }
        for agent in now.iter().filter(|agent| agent.id != *self.reader) {
            match known.iter().find(|other| other.id == agent.id) {
                None => told.push(format!("{} ({}) joined the team.", agent.name, agent.role)),
                Some(other) if other.name != agent.name => {
                    told.push(format!("{} of the team is now called {}.", other.name, agent.name));
                }
                Some(_) => {}
            }
        }
        let left = known.iter().filter(|agent| !now.iter().any(|other| other.id == agent.id));
        told.extend(left.map(|agent| format!("{} ({}) left the team.", agent.name, agent.role)));
        told
    }
}

//! What may be spent: limits in US dollars that are looked at before every model call.
//!
//! A server has one [`Ledger`]. It begins with what its store has of the day, counts a step when it ends, and
//! begins anew at midnight in UTC. Between the look and the end of a step an estimate is held for it, so that
//! sessions which run side by side see each other: over a limit goes at most the step that was let in last, and
//! what the others cost more than was estimated. It calls no provider and stores nothing.
//!
//! What it can't know: a step that a crash cuts is not counted, nor what a provider charges for a step that was
//! cancelled beyond what it had told by then.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tns_protocol::{Day, Timestamp};

use crate::engine::{Engine, Pricing, StepRequest, StepUsage};
use crate::store::{Store, StoreError};
use crate::tokens;
use crate::usage::Money;

/// Output tokens that are held for a step which runs; most steps write less.
const ESTIMATED_OUTPUT: u64 = 2_000;

/// The operator's limits, in US dollars; `None`: no limit. 0 lets only free models work.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct SpendLimits {
    /// Of the whole server, a day in UTC.
    pub daily: Option<f64>,
    /// Of each session.
    pub session: Option<f64>,
}

/// Tells the time.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// Counts what a server spends.
pub struct Ledger {
    limits: SpendLimits,
    clock: Clock,
    state: Mutex<State>,
}

struct State {
    day: Day,
    /// What ended steps of the day cost.
    spent: Money,
    /// What is held for steps that run.
    held: Money,
}

impl std::fmt::Debug for Ledger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ledger").field("limits", &self.limits).finish_non_exhaustive()
    }
}

/// A model call to come.
#[derive(Clone, Copy)]
pub(crate) struct StepToCome<'a> {
    pub(crate) engine: &'a dyn Engine,
    pub(crate) request: &'a StepRequest,
    pub(crate) session: SessionSpend,
}

/// What one session has spent, and its own limit.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct SessionSpend {
    pub(crate) spent: Money,
    /// In dollars.
    pub(crate) budget: Option<f64>,
}

/// Why a model is not called: one line that is fit for a visitor. It names no amount.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SpendRefusal {
    #[error(
        "the server's spending limit of the day is reached; it opens again at midnight UTC, or with a higher \
         --daily-cap"
    )]
    Daily,
    #[error("the session's spending limit is reached; begin another session, or set a higher --session-cap")]
    Session,
    #[error("the session's budget is spent; ask again with a higher --budget")]
    Budget,
    #[error(
        "no price is known for {provider} {model}, so it can't work under a spending limit; price it under \
         [prices] in the config, or remove the limit"
    )]
    Unpriced { provider: String, model: String },
}

/// Holds an estimate while a step runs; dropped, it lets go of it.
#[derive(Debug)]
pub(crate) struct Hold {
    ledger: Arc<Ledger>,
    amount: Money,
}

impl Ledger {
    /// Makes a ledger that goes on from what the store has of this day.
    ///
    /// # Errors
    /// The store's.
    pub async fn open(store: &dyn Store, limits: SpendLimits, clock: Clock) -> Result<Arc<Self>, StoreError> {
        let day = Day::of(clock());
        let rows = store.usage(day..=day).await?;
        let spent = rows.iter().fold(Money::ZERO, |sum, row| sum.plus(row.cost));
        let state = Mutex::new(State { day, spent, held: Money::ZERO });
        Ok(Arc::new(Self { limits, clock, state }))
    }

    /// Returns the limits.
    pub fn limits(&self) -> SpendLimits {
        self.limits
    }

    /// Returns the day, and what was spent on it so far.
    pub fn today(&self) -> (Day, Money) {
        let state = self.state();
        (state.day, state.spent)
    }

    /// Lets a step in, or says why not. A limit is reached when what was spent, and is held for the steps that
    /// run, makes up all of it.
    pub(crate) fn admit(self: &Arc<Self>, step: StepToCome<'_>) -> Result<Hold, SpendRefusal> {
        let StepToCome { engine, request, session } = step;
        let SpendLimits { daily, session: each } = self.limits;
        let limited = daily.is_some() || each.is_some() || session.budget.is_some();
        let pricing = engine.pricing();
        if pricing == Pricing::Free || !limited {
            return Ok(self.hold(Money::ZERO));
        }
        if pricing == Pricing::Unknown {
            let (provider, model) = (engine.provider().to_owned(), engine.model().to_owned());
            return Err(SpendRefusal::Unpriced { provider, model });
        }
        if is_reached(session.budget, session.spent) {
            return Err(SpendRefusal::Budget);
        }
        if is_reached(each, session.spent) {
            return Err(SpendRefusal::Session);
        }
        let amount = Money::from_dollars(engine.estimate(tokens::of_request(request), ESTIMATED_OUTPUT));
        let mut state = self.state();
        if is_reached(daily, state.spent.plus(state.held)) {
            return Err(SpendRefusal::Daily);
        }
        state.held = state.held.plus(amount);
        Ok(self.hold(amount))
    }

    fn hold(self: &Arc<Self>, amount: Money) -> Hold {
        Hold { ledger: self.clone(), amount }
    }

    /// Returns the state of this day.
    fn state(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let today = Day::of((self.clock)());
        // A clock that is set back does not bring a day back whose sum is gone.
        if today > state.day {
            state.day = today;
            state.spent = Money::ZERO;
        }
        state
    }
}

impl Hold {
    /// Counts what the step cost. Returns the day on which it counts.
    pub(crate) fn settle(self, usage: &StepUsage) -> Day {
        // The guard goes before `self`, which locks again when it is dropped.
        let mut state = self.ledger.state();
        state.spent = state.spent.plus(Money::of_step(usage));
        state.day
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if self.amount > Money::ZERO {
            let mut state = self.ledger.state();
            state.held = state.held.minus(self.amount);
        }
    }
}

fn is_reached(limit: Option<f64>, spent: Money) -> bool {
    limit.is_some_and(|limit| spent >= Money::from_dollars(limit))
}

#[cfg(test)]
mod tests;

//! One run: a server host and a clients' host, each a runtime with a clock of its own, one thread, one seed.
//!
//! Both clocks are paused and go on in turns, a window at a time: the server's host runs through it, then the
//! clients'. A window is short while something goes over the network and grows while nothing does, so that
//! minutes of silence cost nothing. When a server crashes its runtime is dropped where it stands.

mod plan;

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tns_protocol::SessionId;
use tns_server::{EngineLabel, ExecHelper, Parts, Pricing, RunningServer, Server, ServerConfig, TurnLimits};
use tns_server_core::memory::MemoryStore;
use tns_server_core::scripted::SCRIPTED;
use tns_server_core::store::{EventQuery, LOCAL_PRINCIPAL, SessionRecord, Store};
use tns_server_engines::{Catalogue, EngineConfig};
use tokio::runtime::Runtime;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::sleep_until;

use super::brain::{Brain, Nothing};
use super::chance::Chance;
use super::check::check;
use super::net::{Clock, Net};
use super::people::{Counts, Notebook, Person, auditor, follower, poster, strict};
use super::store::Disk;
use super::told::{Client, History, Kind, Told};
use super::trace::Trace;
pub(super) use plan::Plan;
use plan::{Fault, Role};

/// Where clients believe the server to be.
pub(super) const ADDRESS: &str = "127.0.0.1:7777";
pub(super) const URL: &str = "http://127.0.0.1:7777";
pub(super) const CHAT: &str = "ws://127.0.0.1:7777/chat";
const PORT: u16 = 7777;

/// Shortest and longest window, in milliseconds.
const WINDOWS: (u64, u64) = (8, 1_024);
/// How long all must be quiet before a run ends, in milliseconds.
const QUIET: u64 = 2_000;
/// How long after its last trouble a run may take to come to rest, in milliseconds.
const REST: u64 = 600_000;

/// What came of a run.
pub(super) struct Outcome {
    pub(super) faults: Vec<String>,
    pub(super) counts: Counts,
    pub(super) trace: Trace,
}

/// Runs a seed's plan to its end and checks what it left.
pub(super) fn run(plan: &Plan, keeps_lines: bool) -> Outcome {
    let trace = Trace::new(keeps_lines);
    let mut world = World::new(plan, trace.clone());
    let came_to_rest = world.go();
    let mut faults = std::mem::take(&mut world.faults);
    if !came_to_rest {
        faults.push(format!(
            "nothing is quiet {} s after the last trouble: {} {:?}",
            REST / 1_000,
            world.unrest(),
            world.net
        ));
    }
    if came_to_rest {
        faults.extend(world.audit());
    }
    let (histories, counts) = world.end();
    if came_to_rest {
        faults.extend(histories.iter().flat_map(check));
    }
    Outcome { faults, counts, trace }
}

/// A host's runtime and its clock.
struct Host {
    runtime: Runtime,
    clock: Clock,
}

impl Host {
    fn starting(at: u64) -> Self {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let clock = runtime.block_on(async move { Clock::starting(at) });
        Self { runtime, clock }
    }

    fn run_until(&self, at: u64) {
        let until = self.clock.instant(at);
        self.runtime.block_on(async move { sleep_until(until).await });
    }
}

/// A server's program on its host.
struct Program {
    host: Host,
    stop: Arc<Notify>,
    /// Takes connections; ends when the server has stopped in order.
    tasks: JoinSet<()>,
}

struct World {
    plan: Plan,
    net: Net,
    trace: Trace,
    chance: Chance,
    brain: Brain,
    store: Arc<MemoryStore>,
    workspace: PathBuf,
    server: Option<Program>,
    people: Host,
    tasks: JoinSet<()>,
    notes: Vec<Arc<Mutex<Notebook>>>,
    counts: Arc<Mutex<Counts>>,
    now: u64,
    /// When a server is started again.
    starts_at: Option<u64>,
    faults: Vec<String>,
}

impl World {
    fn new(plan: &Plan, trace: Trace) -> Self {
        let chance = Chance::new(plan.seed);
        let net = Net::new(chance.split(), trace.clone());
        let mut world = Self {
            brain: Brain::new(chance.split(), plan.long),
            plan: plan.clone(),
            net,
            trace,
            store: Arc::new(MemoryStore::new()),
            workspace: std::env::temp_dir(),
            server: None,
            people: Host::starting(0),
            tasks: JoinSet::new(),
            notes: Vec::new(),
            counts: Arc::default(),
            now: 0,
            starts_at: Some(0),
            faults: Vec::new(),
            chance,
        };
        for (number, role) in plan.people.iter().enumerate() {
            world.admit(number, role);
        }
        world
    }

    fn admit(&mut self, number: usize, role: &Role) {
        let notes = Arc::new(Mutex::new(Notebook {
            name: format!("client {number} ({:?})", role.works),
            kind: role.kind(),
            session: role.session,
            seen: Vec::new(),
            last: 0,
            is_live: false,
            is_done: role.works != plan::Works::Posts,
            acknowledged: Vec::new(),
            open: Vec::new(),
            faults: Vec::new(),
        }));
        self.notes.push(notes.clone());
        let person = Person {
            number,
            session: session(role.session),
            clock: self.people.clock,
            net: self.net.clone(),
            chance: self.chance.split(),
            trace: self.trace.clone(),
            notes,
            counts: self.counts.clone(),
            busy_until: self.plan.busy_until,
            brain: self.plan.long.then(|| self.brain.clone()),
        };
        let handle = self.people.runtime.handle();
        match role.works {
            plan::Works::Follows | plan::Works::FollowsFromEnd => {
                self.tasks.spawn_on(follower::live(person), handle);
            }
            plan::Works::Strict => {
                self.tasks.spawn_on(strict::live(person), handle);
            }
            plan::Works::Posts => {
                self.tasks.spawn_on(poster::live(person), handle);
            }
            plan::Works::Sleeps => {
                self.tasks.spawn_on(follower::sleep_in(person), handle);
            }
        }
    }

    fn count(&self, what: &'static str) {
        *self.counts.lock().unwrap().0.entry(what).or_default() += 1;
    }

    /// Goes on until all is quiet; `false`: it never is.
    fn go(&mut self) -> bool {
        let mut faults = self.plan.faults.clone();
        faults.reverse();
        let (mut window, mut traffic, mut quiet_since) = (WINDOWS.0, 0, None);
        loop {
            let mut until = self.now + window;
            let next = [faults.last().map(|(at, _)| *at), self.starts_at].into_iter().flatten().min();
            if let Some(next) = next {
                until = until.min(next.max(self.now));
            }
            if let Some(server) = &self.server {
                server.host.run_until(until);
            }
            self.people.run_until(until);
            self.now = until;
            let before = std::mem::replace(&mut traffic, self.net.tick(self.now));
            window = if traffic > before { WINDOWS.0 } else { (window * 2).min(WINDOWS.1) };
            self.look_after_the_server();
            while let Some((_, fault)) = faults.pop_if(|(at, _)| *at <= self.now) {
                self.befall(fault);
                window = WINDOWS.0;
            }
            if self.now < self.plan.busy_until || !faults.is_empty() {
                continue;
            }
            if self.now > self.plan.busy_until + REST {
                return false;
            }
            match (self.is_quiet(), quiet_since) {
                (false, _) => quiet_since = None,
                (true, None) => quiet_since = Some(self.now),
                (true, Some(since)) if self.now - since >= QUIET && self.net.is_idle(&self.sleepers()) => {
                    return true;
                }
                (true, Some(_)) => {}
            }
        }
    }

    fn look_after_the_server(&mut self) {
        if self.starts_at.is_some_and(|at| at <= self.now) {
            self.starts_at = None;
            self.start();
        }
        // Nobody takes connections any more: it has stopped in order.
        let stopped = self.server.as_mut().is_some_and(|server| server.tasks.try_join_next().is_some());
        if stopped {
            self.trace.add(self.now, format_args!("server: stopped"));
            self.net.refuse();
            self.server = None;
            self.starts_at.get_or_insert(self.now + 300);
        }
    }

    fn start(&mut self) {
        self.trace.add(self.now, format_args!("server: starts"));
        self.count("starts");
        let host = Host::starting(self.now);
        let helper = ExecHelper { program: PathBuf::from("/bin/false"), args: Vec::new() };
        let mut config = ServerConfig::new(self.workspace.clone(), self.workspace.clone(), helper);
        config.port = PORT;
        config.limits = TurnLimits { rounds: 4, ..TurnLimits::default() };
        let (store, chance, failing) = (self.store.clone(), self.chance.split(), self.plan.failing);
        let brain = self.brain.clone();
        let running: RunningServer = host.runtime.block_on(async move {
            let disk = Arc::new(Disk::open(store.clone(), chance, failing));
            let parts = Parts {
                store: disk,
                documents: store,
                knowledge: Arc::new(Nothing),
                tools: brain.tools(),
                engines: Arc::new(brain),
                engine: EngineLabel {
                    provider: SCRIPTED.into(),
                    model: "sim".into(),
                    reason: "a simulation".into(),
                    pricing: Pricing::Free,
                },
                catalogue: Arc::new(Catalogue::new(EngineConfig::from_env(|_| None))),
            };
            loop {
                match Server::start_unbound(config.clone(), parts_of(&parts)).await {
                    Ok(running) => break running,
                    // The store is busy: whoever starts servers tries again.
                    Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
                }
            }
        });
        for record in self.records() {
            let open = record.state.open_turns.iter().filter(|turn| !turn.waiting).count();
            if open > 0 {
                self.faults.push(format!("E5: {open} turns are open after a start"));
            }
        }
        self.net.listen(host.clock);
        let stop = Arc::new(Notify::new());
        let mut tasks = JoinSet::new();
        tasks.spawn_on(serve(running, self.net.clone(), stop.clone()), host.runtime.handle());
        self.server = Some(Program { host, stop, tasks });
    }

    fn befall(&mut self, fault: Fault) {
        self.trace.add(self.now, format_args!("fault: {fault:?}"));
        match fault {
            Fault::Crash { down, silent } => {
                let Some(server) = self.server.take() else { return };
                if silent {
                    self.count("hosts that vanished");
                    self.net.vanish();
                } else {
                    self.count("crashes");
                    self.net.refuse();
                }
                drop(server);
                self.starts_at = Some(self.now + down);
            }
            Fault::Stop => {
                let Some(server) = &self.server else { return };
                self.count("orderly stops");
                server.stop.notify_one();
            }
            Fault::Cut => {
                if let Some(link) = self.chance.pick(&self.net.open()) {
                    self.count("cuts");
                    self.net.cut(*link);
                }
            }
            Fault::Lose => {
                if let Some(link) = self.chance.pick(&self.net.open()) {
                    self.count("half-open");
                    self.net.lose(*link);
                }
            }
            Fault::Block { client, time } => {
                self.count("partitions");
                self.net.block(client, self.now + time);
            }
        }
    }

    fn records(&self) -> Vec<SessionRecord> {
        let sessions = (0..self.plan.sessions).map(session);
        let found = sessions.map(|id| ready(self.store.find_session(LOCAL_PRINCIPAL, &id)));
        found.filter_map(Result::unwrap).collect()
    }

    /// Whether every turn has ended and every client has everything.
    fn is_quiet(&self) -> bool {
        self.unrest().is_empty()
    }

    fn sleepers(&self) -> Vec<usize> {
        let people = self.plan.people.iter().enumerate();
        people.filter(|(_, role)| role.works == plan::Works::Sleeps).map(|(number, _)| number).collect()
    }

    fn unrest(&self) -> String {
        if self.server.is_none() {
            return "no server".to_owned();
        }
        let records = self.records();
        for record in &records {
            if !record.state.open_turns.is_empty() {
                return format!("{} has open turns: {:?}", record.id, record.state.open_turns);
            }
        }
        for notes in &self.notes {
            let notes = notes.lock().unwrap();
            let head = records
                .iter()
                .find(|record| record.id == session(notes.session))
                .map(|record| record.head_seq);
            let behind = notes.kind == Kind::Whole && Some(notes.last) != head;
            // Who has no place of the log yet is not told of a message that the server had already.
            let knows = notes.kind == Kind::Tail || notes.open.is_empty();
            if behind || !notes.is_done || !notes.is_live || !knows {
                let Notebook { name, last, is_done, is_live, open, .. } = &*notes;
                return format!(
                    "{name}: at {last} of {head:?}, done {is_done}, live {is_live}, open {open:?}"
                );
            }
        }
        String::new()
    }

    /// Lets an auditor look over every session.
    fn audit(&mut self) -> Vec<String> {
        let mut faults = Vec::new();
        for number in 0..self.plan.sessions {
            let log = self.log(number);
            let (net, clock) = (self.net.clone(), self.people.clock);
            let auditor = self.plan.people.len() + number;
            let mut tasks = JoinSet::new();
            let asks = auditor::audit(net, auditor, clock, session(number).to_string(), log);
            tasks.spawn_on(asks, self.people.runtime.handle());
            faults.extend(self.finish(tasks));
        }
        faults
    }

    /// Runs both hosts until the one task has ended.
    fn finish<T: Send + 'static>(&mut self, mut tasks: JoinSet<T>) -> T {
        loop {
            let until = self.now + WINDOWS.0;
            if let Some(server) = &self.server {
                server.host.run_until(until);
            }
            self.people.run_until(until);
            self.net.tick(until);
            self.now = until;
            if let Some(ended) = tasks.try_join_next() {
                return ended.unwrap();
            }
        }
    }

    fn log(&self, number: usize) -> Vec<Told> {
        let Some(record) = self.records().into_iter().find(|record| record.id == session(number)) else {
            return Vec::new();
        };
        let mut log = Vec::new();
        loop {
            let after = log.len() as u64;
            let page =
                ready(self.store.events(record.key, EventQuery { after, ..EventQuery::default() })).unwrap();
            log.extend(page.events.iter().map(Told::stored));
            if !page.more {
                return log;
            }
        }
    }

    /// Ends everything; returns what is left of each session.
    fn end(mut self) -> (Vec<History>, Counts) {
        let runs: Vec<(String, u32)> =
            self.brain.runs.lock().unwrap().iter().map(|(call, runs)| (call.to_string(), *runs)).collect();
        let mut histories = Vec::new();
        for number in 0..self.plan.sessions {
            let log = self.log(number);
            let of_session = |notes: &&Arc<Mutex<Notebook>>| notes.lock().unwrap().session == number;
            let clients = self.notes.iter().filter(of_session).map(|notes| {
                let notes = notes.lock().unwrap();
                Client { name: notes.name.clone(), kind: notes.kind, seen: notes.seen.clone() }
            });
            let clients = clients.collect();
            let told = self.notes.iter().filter(of_session);
            let acknowledged = told.flat_map(|notes| notes.lock().unwrap().acknowledged.clone()).collect();
            histories.push(History {
                log,
                clients,
                acknowledged,
                runs: Vec::new(),
                all_shown: !self.plan.long,
            });
        }
        // A call's name is the same in no two sessions.
        for (call, runs) in runs {
            let of = histories.iter().position(|history| history.names(&call)).unwrap_or(0);
            histories[of].runs.push((call, runs));
        }
        let mut counts = self.counts.lock().unwrap().clone();
        let events: usize = histories.iter().map(|history| history.log.len()).sum();
        let turns =
            histories.iter().flat_map(|history| &history.log).filter(|row| row.what.ends_turn()).count();
        let ran = histories.iter().map(|history| history.runs.len()).sum::<usize>();
        for (what, count) in [("durable events", events), ("turns", turns), ("tool runs", ran)] {
            counts.0.insert(what, count as u64);
        }
        counts.0.insert("simulated seconds", self.now / 1_000);
        self.tasks.abort_all();
        self.server = None;
        (histories, counts)
    }
}

/// The same parts once more.
fn parts_of(parts: &Parts) -> Parts {
    Parts {
        store: parts.store.clone(),
        documents: parts.documents.clone(),
        knowledge: parts.knowledge.clone(),
        engines: parts.engines.clone(),
        engine: parts.engine.clone(),
        catalogue: parts.catalogue.clone(),
        tools: parts.tools.clone(),
    }
}

async fn serve(running: RunningServer, net: Net, stop: Arc<Notify>) {
    loop {
        tokio::select! {
            biased;
            () = stop.notified() => return running.shutdown().await,
            end = net.accept() => running.serve_own(end),
        }
    }
}

fn session(number: usize) -> SessionId {
    SessionId::parse(format!("s{number}")).unwrap()
}

/// Takes the answer of a store in memory, which never waits.
fn ready<T>(answer: impl Future<Output = T>) -> T {
    let mut answer = std::pin::pin!(answer);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match answer.as_mut().poll(&mut context) {
        std::task::Poll::Ready(answer) => answer,
        std::task::Poll::Pending => panic!("a store in memory waits"),
    }
}

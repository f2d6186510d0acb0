//! A machine in simulated time: threads, memory, devices, and what goes wrong with them.
//!
//! Memory is a real budget, whose waits are polled by hand. The threads of the processor
//! are shared by the syntheses that run; a device computes one proof after the other, and
//! its further slots wait. Whatever is drawn comes from one seed.

mod stages;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, VecDeque};
use std::pin::Pin;
use std::time::Duration;

use cuzk_budget::{Budget, BudgetError, CancelToken, Reservation};
use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};

use super::Mutation;
use super::model::{Life, Model};
use crate::schedule::{
    Action, Circuit, DeviceIndex, DeviceSet, Event, JobId, Limits, PartId, Priority, Scheduler,
};

/// What hangs ends after this, long after everybody has given it up.
const HANG: f64 = 10_000.0;

/// A slow stage takes so many times as long.
const SLOW: f64 = 8.0;

/// Parts of one circuit.
#[derive(Clone, Debug)]
pub(super) struct Kind {
    /// Whether a synthesis takes all threads.
    pub(super) is_shared: bool,
    /// Seconds of a synthesis that is alone.
    pub(super) synthesis: f64,
    /// Seconds of a proof on a device of speed 1.
    pub(super) proof: f64,
    pub(super) bytes: u64,
    /// The devices that it fits.
    pub(super) devices: DeviceSet,
}

/// What a machine is like.
#[derive(Clone, Debug)]
pub(super) struct Spec {
    pub(super) limits: Limits,
    pub(super) kinds: Vec<Kind>,
    /// How many times as long proofs take, for each device.
    pub(super) slowness: Vec<f64>,
    /// When devices are lost.
    pub(super) deaths: Vec<Option<f64>>,
    pub(super) memory: u64,
    pub(super) kept: u64,
    /// How much durations vary, as a share.
    pub(super) jitter: f64,
    pub(super) failures_percent: u32,
    /// Of the durations, how many are [`SLOW`] times as long.
    pub(super) slow_percent: u32,
    pub(super) hangs_percent: u32,
    /// Proofs that a device makes together, which end at the same time; with more than one
    /// nothing hangs and no device dies.
    pub(super) batch: usize,
}

/// A job to come.
#[derive(Clone, Debug)]
pub(super) struct Arrival {
    pub(super) at: f64,
    pub(super) priority: Priority,
    pub(super) parts: usize,
    pub(super) kind: usize,
    pub(super) cancel_at: Option<f64>,
    /// When it comes again with another priority.
    pub(super) again: Option<(f64, Priority)>,
}

impl Arrival {
    pub(super) fn new(priority: Priority, parts: usize, kind: usize) -> Self {
        Self {
            at: 0.0,
            priority,
            parts,
            kind,
            cancel_at: None,
            again: None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Item {
    Submit(usize),
    Cancel(JobId),
    Raise(JobId, Priority),
    /// A stage ends, by the number of its run.
    End(u64),
}

/// A stage that runs.
struct Run {
    action: Action,
    ends: Event,
    /// Given up: its end is no event.
    is_stale: bool,
    memory: Option<Reservation>,
}

/// A synthesis, with the seconds alone that are left of it.
struct Synthesis {
    run: u64,
    is_shared: bool,
    left: f64,
}

/// Proofs that a device makes together.
#[derive(Default)]
struct Pass {
    /// Those that have not ended.
    running: usize,
    /// Their runs, their proofs, and the seconds that each takes.
    next: VecDeque<(u64, usize, f64)>,
}

type Waiting = Pin<Box<dyn Future<Output = Result<Reservation, BudgetError>> + Send>>;

/// When a part was on a device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Proof {
    pub(super) part: PartId,
    pub(super) device: DeviceIndex,
    /// When it was given the slot.
    pub(super) given: f64,
    /// When the device began with it.
    pub(super) begun: f64,
    pub(super) ended: f64,
}

pub(super) struct World {
    spec: Spec,
    rng: ChaCha8Rng,
    pub(super) scheduler: Scheduler,
    pub(super) model: Model,
    now: f64,
    items: BinaryHeap<Reverse<(Duration, u64, Item)>>,
    events: VecDeque<Event>,
    runs: BTreeMap<u64, Run>,
    numbers: u64,
    syntheses: Vec<Synthesis>,
    pub(super) budget: Budget,
    waits: Vec<(u64, PartId, Waiting)>,
    cancels: HashMap<JobId, CancelToken>,
    held: HashMap<PartId, Reservation>,
    arrivals: Vec<Arrival>,
    /// When each device has computed what it has.
    free_at: Vec<f64>,
    /// What each device makes together with others, and what waits for it.
    passes: Vec<Pass>,
    pub(super) proofs: Vec<Proof>,
    pub(super) completed: BTreeMap<JobId, f64>,
    pub(super) given_up: usize,
    /// The most parts that were under way to a device, beyond free slots.
    pub(super) lead_seen: usize,
}

fn time(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

impl World {
    pub(super) fn new(seed: u64, spec: Spec, mutation: Option<Mutation>) -> Self {
        let mut scheduler = Scheduler::new(spec.limits.clone());
        scheduler.mutation = mutation;
        scheduler.devices.mutation = mutation;
        let budget = Budget::new(spec.memory);
        budget.keep_for_highest(spec.kept);
        Self {
            rng: ChaCha8Rng::seed_from_u64(seed),
            model: Model::new(seed, spec.limits.clone()),
            scheduler,
            now: 0.0,
            items: BinaryHeap::new(),
            events: VecDeque::new(),
            runs: BTreeMap::new(),
            numbers: 0,
            syntheses: Vec::new(),
            budget,
            waits: Vec::new(),
            cancels: HashMap::new(),
            held: HashMap::new(),
            arrivals: Vec::new(),
            free_at: vec![0.0; spec.slowness.len()],
            passes: spec.slowness.iter().map(|_| Pass::default()).collect(),
            proofs: Vec::new(),
            completed: BTreeMap::new(),
            given_up: 0,
            lead_seen: 0,
            spec,
        }
    }

    /// Runs jobs, numbered from 1 in their order, until nothing is left.
    pub(super) fn run(&mut self, arrivals: Vec<Arrival>) {
        for (index, arrival) in arrivals.iter().enumerate() {
            self.put(arrival.at, Item::Submit(index));
            if let Some(at) = arrival.cancel_at {
                self.put(at, Item::Cancel(JobId(index as u64 + 1)));
            }
            if let Some((at, priority)) = arrival.again {
                self.put(at, Item::Raise(JobId(index as u64 + 1), priority));
            }
        }
        self.arrivals = arrivals;
        for round in 0.. {
            self.model.check(round < 50_000, "goes on for ever", &round);
            if !self.advance() {
                break;
            }
        }
        let left: Vec<_> = self.model.jobs.keys().collect();
        self.model.check(left.is_empty(), "never end", &left);
        let used_bytes = self.budget.usage().used_bytes;
        self.model
            .check(used_bytes == 0, "bytes are held", &used_bytes);
    }

    /// Lets time pass until something happens. `false` if nothing ever will.
    fn advance(&mut self) -> bool {
        let item = self.items.peek().map(|Reverse((at, ..))| *at);
        let synthesised = self.next_synthesised().map(|(at, _)| time(at));
        let deadline = self.scheduler.next_deadline();
        let Some(next) = [item, synthesised, deadline].into_iter().flatten().min() else {
            return false;
        };
        let now = next.max(time(self.now));
        self.pass(now.as_secs_f64());
        if item == Some(next) {
            let Reverse((.., item)) = self.items.pop().expect("it was looked at");
            self.happen(item);
        } else if synthesised == Some(next) {
            let (_, index) = self.next_synthesised().expect("it was looked at");
            let run = self.syntheses.remove(index).run;
            self.end(run);
        } else {
            self.events.push_back(Event::Tick);
        }
        self.settle();
        true
    }

    /// Takes in all events, and those that follow from them at once.
    fn settle(&mut self) {
        loop {
            while let Some(event) = self.events.pop_front() {
                self.step(event);
            }
            self.poll_waits();
            if self.events.is_empty() {
                return;
            }
        }
    }

    fn step(&mut self, event: Event) {
        let now = time(self.now);
        self.model.happen(event, now);
        let actions = self.scheduler.step(event, now);
        self.model.judge(&actions, &self.scheduler);
        for action in actions {
            self.start(action);
        }
        let jobs = (self.scheduler.jobs(), self.model.jobs.len());
        self.model.check(jobs.0 == jobs.1, "jobs are left", &jobs);
        if let Event::Completed(job) = event {
            self.completed.insert(job, self.now);
            self.held.retain(|part, _| part.job != job);
        }
        for (id, job) in &self.model.jobs {
            if job.life == Life::Ends {
                self.cancels[id].cancel();
                self.held.retain(|part, _| part.job != *id);
            }
        }
        self.check_aims();
    }

    /// No more parts are under way to a device than the true rates justify.
    fn check_aims(&mut self) {
        let parts = self.model.jobs.values().flat_map(|job| &job.parts);
        let between = parts.filter(|part| part.place.is_between()).count();
        let free = self.scheduler.aim(Circuit(0)).free_slots;
        self.lead_seen = self.lead_seen.max(between.saturating_sub(free));
        if self.spec.limits.dispatch == crate::config::Dispatch::Burst {
            return;
        }
        let slowest = match self.spec.slow_percent {
            0 => 1.0,
            _ => SLOW,
        };
        let most = (1.0 + self.spec.jitter) * slowest;
        for (index, kind) in self.spec.kinds.iter().enumerate() {
            let aim = self.scheduler.aim(Circuit(index));
            let rate: f64 = self.spec.slowness.iter().map(|slow| 1.0 / slow).sum();
            let rate = rate / (kind.proof * (1.0 - self.spec.jitter));
            let justified = (kind.synthesis * most * rate * 1.001).ceil() as usize + 1;
            let is_justified = (1..=justified).contains(&aim.lead);
            self.model
                .check(is_justified, "is not justified", &(index, aim, justified));
        }
    }

    fn put(&mut self, at: f64, item: Item) {
        self.numbers += 1;
        self.items.push(Reverse((time(at), self.numbers, item)));
    }

    fn below(&mut self, bound: u32) -> u32 {
        self.rng.next_u32() % bound
    }

    fn fails(&mut self) -> bool {
        self.below(100) < self.spec.failures_percent
    }

    /// A duration about `seconds`; rarely one that never ends.
    fn takes(&mut self, seconds: f64) -> f64 {
        if self.below(100) < self.spec.hangs_percent {
            return HANG;
        }
        let unit = f64::from(self.rng.next_u32()) / f64::from(u32::MAX);
        let is_slow = self.below(100) < self.spec.slow_percent;
        let seconds = if is_slow { SLOW * seconds } else { seconds };
        seconds * (1.0 + self.spec.jitter * (2.0 * unit - 1.0))
    }

    fn happen(&mut self, item: Item) {
        match item {
            Item::Submit(index) => {
                let Arrival {
                    priority,
                    parts,
                    kind,
                    ..
                } = self.arrivals[index];
                let job = JobId(index as u64 + 1);
                self.cancels.insert(job, CancelToken::new());
                self.events.push_back(Event::Submit {
                    job,
                    priority,
                    parts,
                    circuit: Circuit(kind),
                    width: width(self.spec.kinds[kind].is_shared),
                });
                // Also of jobs that are over, which must change nothing.
                let any = JobId(1 + u64::from(self.below(index as u32 + 1)));
                if !self.model.jobs.contains_key(&any) && any != job {
                    let part = PartId { job: any, index: 0 };
                    self.events.push_back(Event::Proved(part));
                    self.events.push_back(Event::Cancel(any));
                }
            }
            Item::Cancel(job) => self.events.push_back(Event::Cancel(job)),
            Item::Raise(job, priority) => {
                self.events.push_back(Event::Raise { job, priority });
            }
            Item::End(run) => self.end(run),
        }
    }

    fn kind(&self, job: JobId) -> usize {
        self.arrivals[job.0 as usize - 1].kind
    }

    fn is_dead(&self, device: DeviceIndex) -> bool {
        self.spec.deaths[device.0].is_some_and(|at| at <= self.now)
    }

    /// Seconds in which a device had nothing to compute, from when it began with its proof
    /// number `from` until it ended its last.
    pub(super) fn idle_seconds(&self, device: DeviceIndex, from: usize) -> f64 {
        let of_device = self.proofs.iter().filter(|proof| proof.device == device);
        let mut of_device: Vec<&Proof> = of_device.collect();
        of_device.sort_by(|left, right| left.begun.total_cmp(&right.begun));
        let pairs = of_device[from.min(of_device.len())..].windows(2);
        pairs.map(|pair| pair[1].begun - pair[0].ended).sum()
    }
}

/// Threads that a synthesis can use: all there are, or one.
fn width(is_shared: bool) -> usize {
    match is_shared {
        true => usize::MAX,
        false => 1,
    }
}

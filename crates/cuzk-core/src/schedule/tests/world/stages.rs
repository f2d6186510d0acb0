//! The stages of a simulated machine: how long each takes, and what it ends with.

use std::task::{Context, Poll, Waker};

use cuzk_budget::{Consumer, Reservation, Wait};

use super::{HANG, Item, Proof, Run, Synthesis, World, time, width};
use crate::schedule::{Action, DeviceIndex, Event, JobId, PartId, Priority, Work};
use crate::stage::budget_priority;

impl World {
    pub(super) fn start(&mut self, action: Action) {
        match action {
            Action::Abort(job) => self.held.retain(|part, _| part.job != job),
            Action::GiveUp { job, part, .. } => {
                self.given_up += 1;
                let run = self
                    .runs
                    .values_mut()
                    .find(|run| !run.is_stale && of(run.action) == (job, part));
                run.expect("it runs").is_stale = true;
            }
            Action::Refuse(_) => {}
            Action::Reserve { part, priority } => self.reserve(part, priority),
            Action::Urge { part, priority } => self.urge(part, priority),
            Action::Synthesise(part) => self.synthesise(part),
            Action::Prove { part, device } => self.prove(part, device),
            Action::LoadKey(job) | Action::Complete(job) => {
                let ends = match (action, self.fails()) {
                    (_, true) => Event::JobFailed(job),
                    (Action::LoadKey(_), false) => Event::KeyReady(job),
                    (_, false) => Event::Completed(job),
                };
                let seconds = self.takes(0.01);
                self.start_run(action, ends, seconds, None);
                // Too late for it.
                if matches!(action, Action::Complete(_)) && self.fails() {
                    self.put(self.now, Item::Cancel(job));
                }
            }
            Action::Verify(part) => {
                let ends = match (self.fails(), self.below(2)) {
                    (false, _) => Event::Verified(part),
                    (true, 0) => Event::Rejected(part),
                    (true, _) => self.failure(part),
                };
                let seconds = self.takes(0.01);
                self.start_run(action, ends, seconds, None);
            }
            Action::Explain(part) => {
                let ends = self.failure(part);
                let seconds = self.takes(1.0);
                self.start_run(action, ends, seconds, None);
            }
        }
    }

    fn failure(&mut self, part: PartId) -> Event {
        let retry = self.below(4) != 0;
        Event::PartFailed { part, retry }
    }

    fn start_run(
        &mut self,
        action: Action,
        ends: Event,
        seconds: f64,
        memory: Option<Reservation>,
    ) -> u64 {
        let at = self.now + seconds;
        self.put(at, Item::End(self.numbers + 1));
        let run = self.numbers;
        self.runs.insert(
            run,
            Run {
                action,
                ends,
                is_stale: false,
                memory,
            },
        );
        run
    }

    fn reserve(&mut self, part: PartId, priority: Priority) {
        let kind = self.kind(part.job);
        let devices = self.spec.kinds[kind].devices;
        let is_left = (0..self.free_at.len())
            .map(DeviceIndex)
            .any(|device| devices.has(device) && !self.is_dead(device));
        if !is_left || (self.fails() && self.below(4) == 0) {
            self.events
                .push_back(Event::PartFailed { part, retry: false });
            return;
        }
        self.wait(part, priority);
    }

    /// Waits for memory.
    fn wait(&mut self, part: PartId, priority: Priority) {
        let wait = Wait::with_priority(budget_priority(priority));
        let wait = wait.cancelled_by(&self.cancels[&part.job]);
        let bytes = self.spec.kinds[self.kind(part.job)].bytes;
        let future = self.budget.reserve_async(Consumer("parts"), bytes, wait);
        self.numbers += 1;
        self.waits.push((self.numbers, part, Box::pin(future)));
    }

    /// Waits anew, if it has not been granted what it waits for.
    fn urge(&mut self, part: PartId, priority: Priority) {
        let waiting = self.waits.iter().position(|(_, of, _)| *of == part);
        if let Some(waiting) = waiting {
            drop(self.waits.remove(waiting));
            self.wait(part, priority);
        }
    }

    pub(super) fn poll_waits(&mut self) {
        let mut context = Context::from_waker(Waker::noop());
        let mut left = Vec::new();
        for (number, part, mut future) in std::mem::take(&mut self.waits) {
            match future.as_mut().poll(&mut context) {
                Poll::Pending => left.push((number, part, future)),
                Poll::Ready(Ok(memory)) => {
                    self.held.insert(part, memory);
                    self.events.push_back(Event::Reserved(part));
                }
                Poll::Ready(Err(_)) => {
                    self.events
                        .push_back(Event::PartFailed { part, retry: false });
                }
            }
        }
        self.waits = left;
    }

    fn synthesise(&mut self, part: PartId) {
        let memory = self.held.remove(&part);
        self.model.check(memory.is_some(), "has no memory", &part);
        let kind = self.spec.kinds[self.kind(part.job)].clone();
        let (outcome, is_other) = ((self.fails(), self.below(2)), self.fails());
        let seconds = self.takes(kind.synthesis);
        let width = width(kind.is_shared);
        let ends = match outcome {
            (true, 0) => Event::Outgrown(part),
            (true, _) => self.failure(part),
            (false, _) => Event::Synthesised {
                part,
                // Some are made in another way.
                work: (!is_other).then(|| Work {
                    width,
                    time: time(seconds) * width.min(self.spec.limits.threads) as u32,
                }),
                devices: kind.devices,
            },
        };
        let action = Action::Synthesise(part);
        if seconds == HANG {
            // It sleeps, and takes no thread from others.
            self.start_run(action, ends, HANG, memory);
            return;
        }
        self.numbers += 1;
        let run = self.numbers;
        self.syntheses.push(Synthesis {
            run,
            is_shared: kind.is_shared,
            left: seconds,
        });
        let is_stale = false;
        self.runs.insert(
            run,
            Run {
                action,
                ends,
                is_stale,
                memory,
            },
        );
    }

    /// What each synthesis advances in a second, as a share of what all threads do for it:
    /// those that are no segments have a thread each, the first of the others has all that
    /// are left, and those after it none.
    fn shares(&self) -> Vec<f64> {
        let threads = self.spec.limits.threads as f64;
        let lone = self.syntheses.iter().filter(|one| !one.is_shared).count() as f64;
        let mut free = (threads - lone).max(1.0);
        let shares = self.syntheses.iter().map(|synthesis| {
            if synthesis.is_shared {
                std::mem::take(&mut free) / threads
            } else {
                (threads / lone).min(1.0)
            }
        });
        shares.collect()
    }

    /// When the next synthesis ends, and which.
    pub(super) fn next_synthesised(&self) -> Option<(f64, usize)> {
        let syntheses = self.syntheses.iter().zip(self.shares()).enumerate();
        let at_work = syntheses.filter(|(_, (_, share))| *share > 0.0);
        let ends = at_work.map(|(index, (synthesis, share))| {
            let seconds = synthesis.left.max(0.0) / share;
            (self.now + seconds, index)
        });
        ends.min_by(|left, right| left.0.total_cmp(&right.0))
    }

    pub(super) fn pass(&mut self, now: f64) {
        let seconds = now - self.now;
        let shares = self.shares();
        for (synthesis, share) in self.syntheses.iter_mut().zip(shares) {
            synthesis.left -= share * seconds;
        }
        self.now = now;
    }

    fn prove(&mut self, part: PartId, device: DeviceIndex) {
        let memory = self.held.remove(&part);
        self.model.check(memory.is_some(), "has no memory", &part);
        let kind = self.spec.kinds[self.kind(part.job)].clone();
        let fits = kind.devices.has(device);
        self.model.check(fits, "does not fit", &(part, device));
        let (ends, seconds) = if self.is_dead(device) {
            (Event::PartFailed { part, retry: true }, 0.0)
        } else if self.fails() {
            let fails = self.failure(part);
            (fails, self.takes(kind.proof))
        } else {
            (Event::Proved(part), self.takes(kind.proof))
        };
        let action = Action::Prove { part, device };
        if self.spec.batch > 1 {
            self.prove_together(action, ends, seconds, memory);
            return;
        }
        let begun = self.now.max(self.free_at[device.0]);
        let ended = match seconds {
            HANG => self.now + HANG,
            seconds => begun + seconds * self.spec.slowness[device.0],
        };
        if seconds != HANG {
            self.free_at[device.0] = ended;
        }
        self.proofs.push(Proof {
            part,
            device,
            given: self.now,
            begun,
            ended,
        });
        self.start_run(action, ends, ended - self.now, memory);
    }

    fn prove_together(
        &mut self,
        action: Action,
        ends: Event,
        seconds: f64,
        memory: Option<Reservation>,
    ) {
        let Action::Prove { part, device } = action else {
            unreachable!("it is proved")
        };
        self.numbers += 1;
        let run = self.numbers;
        self.runs.insert(
            run,
            Run {
                action,
                ends,
                is_stale: false,
                memory,
            },
        );
        self.proofs.push(Proof {
            part,
            device,
            given: self.now,
            begun: f64::NAN,
            ended: f64::NAN,
        });
        let proof = self.proofs.len() - 1;
        self.passes[device.0].next.push_back((run, proof, seconds));
        if self.passes[device.0].running == 0 {
            self.begin_pass(device);
        }
    }

    /// Begins whatever waits for a device, as many as it makes together.
    fn begin_pass(&mut self, device: DeviceIndex) {
        let pass = &mut self.passes[device.0];
        let count = pass.next.len().min(self.spec.batch);
        let together: Vec<_> = pass.next.drain(..count).collect();
        pass.running = count;
        let seconds: f64 = together.iter().map(|(_, _, seconds)| seconds).sum();
        let ended = self.now + seconds * self.spec.slowness[device.0];
        for (run, proof, _) in together {
            let proof = &mut self.proofs[proof];
            (proof.begun, proof.ended) = (self.now, ended);
            self.put(ended, Item::End(run));
        }
    }

    pub(super) fn end(&mut self, run: u64) {
        let run = self.runs.remove(&run).expect("it runs");
        if let (Action::Prove { device, .. }, 2..) = (run.action, self.spec.batch) {
            self.passes[device.0].running -= 1;
            if self.passes[device.0].running == 0 {
                self.begin_pass(device);
            }
        }
        if run.is_stale {
            return;
        }
        if let Action::Prove { part, device } = run.action
            && self.is_dead(device)
        {
            self.events.push_back(Event::DeviceLost(device));
            self.events
                .push_back(Event::PartFailed { part, retry: true });
            return;
        }
        if let (Event::Synthesised { part, .. }, Some(memory)) = (run.ends, run.memory) {
            self.held.insert(part, memory);
        }
        self.events.push_back(run.ends);
    }
}

/// The job and the part that an action is about.
fn of(action: Action) -> (JobId, Option<usize>) {
    match action {
        Action::LoadKey(job) | Action::Complete(job) | Action::Abort(job) => (job, None),
        Action::Reserve { part, .. }
        | Action::Urge { part, .. }
        | Action::Synthesise(part)
        | Action::Prove { part, .. }
        | Action::Verify(part)
        | Action::Explain(part)
        | Action::Refuse(part) => (part.job, Some(part.index)),
        Action::GiveUp { job, part, .. } => (job, part),
    }
}

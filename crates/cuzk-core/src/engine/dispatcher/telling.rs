//! What the dispatcher tells of itself: what it aims at, and what waits for long.

use std::time::Instant;

use cuzk_budget::{Consumer, Shortage};

use super::Dispatcher;
use crate::schedule::Aim;
use crate::waits::MemoryWait;

impl Dispatcher {
    /// Tells what the scheduler aims at, where that has changed.
    pub(super) fn log_aims(&mut self) {
        if !tracing::enabled!(tracing::Level::DEBUG) {
            return;
        }
        for (circuit, (number, told)) in &mut self.circuits {
            let aim = self.scheduler.aim(*number);
            // Free slots come and go with every part.
            let steady = Aim {
                free_slots: 0,
                ..aim
            };
            if *told != Some(steady) {
                *told = Some(steady);
                let Aim {
                    lead,
                    free_slots,
                    synthesis_max,
                    parts_in_flight_max,
                } = aim;
                tracing::debug!(
                    %circuit,
                    lead,
                    free_slots,
                    synthesis_max,
                    parts_in_flight_max,
                    "parts that may be under way to a device"
                );
            }
        }
    }

    /// Warns of parts that have waited for memory for long.
    pub(super) fn tell_waits(&self) {
        let shared = &self.shared;
        let due = shared.waits.due(Instant::now());
        for MemoryWait {
            job,
            part,
            stage,
            asked_bytes,
            waited,
        } in due
        {
            let usage = shared.memory.budget().usage();
            let memory = Shortage {
                ledger: usage.ledger,
                consumer: Consumer(stage),
                asked_bytes,
                held_bytes: usage.used_bytes,
                idle_bytes: usage.idle_bytes,
                limit_bytes: usage.limit_bytes,
                waiters_ahead: 0,
                holders: usage.holders,
            };
            tracing::warn!(
                job,
                part,
                seconds = waited.as_secs(),
                %memory,
                page_locked_bytes = shared.memory.page_locked_bytes(),
                page_locked_limit_bytes = shared.memory.page_locked_limit_bytes(),
                waiters = usage.waiters,
                "waits for memory"
            );
        }
    }

    /// Warns of the stages that keep an engine from ending which is to end.
    pub(super) fn tell_stop(&mut self) {
        let now = Instant::now();
        let Some((at, after)) = self.stop_told.filter(|(at, _)| *at <= now) else {
            return;
        };
        let after = after.saturating_mul(2);
        self.stop_told = at.checked_add(after).map(|at| (at, after));
        for entry in self.jobs.values() {
            let job = &entry.job.label;
            if let Some((stage, since)) = entry.running {
                let seconds = (now - since).as_secs();
                tracing::warn!(job, stage, seconds, "the engine ends when this stage has");
            }
            for (part, of_part) in entry.parts.iter().enumerate() {
                if let Some((stage, since)) = of_part.running {
                    let seconds = (now - since).as_secs();
                    tracing::warn!(
                        job,
                        part,
                        stage,
                        seconds,
                        "the engine ends when this stage has"
                    );
                }
            }
        }
    }
}

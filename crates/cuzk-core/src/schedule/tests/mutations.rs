//! Faults that are put into the scheduler one at a time: each must be caught, or the
//! simulation sees nothing.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::scenarios;
use super::simulation::simulate;

macro_rules! mutations {
    ($($(#[$doc:meta])* $name:ident,)+) => {
        /// A fault of the scheduler, for the test of the tests.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(in crate::schedule) enum Mutation {
            $($(#[$doc])* $name,)+
        }

        impl Mutation {
            const ALL: &[Self] = &[$(Self::$name,)+];
        }
    };
}

mutations! {
    /// Jobs are served by arrival alone.
    IgnoresPriority,
    /// The last job goes first.
    ServesNewestFirst,
    /// The last part goes first.
    ServesLastPartFirst,
    /// The limit in flight does not count.
    ForgetsInFlightMax,
    /// The limit of syntheses does not count.
    ForgetsSynthesisMax,
    /// Several parts of a priority wait for memory at once.
    ReservesTogether,
    /// Parts of lower priority count against a part's limits.
    CountsLowerPriorities,
    /// A device is given one part more than it has slots.
    OverfillsSlots,
    /// A part that waits for one device holds up those that can go to another.
    HoldsUpAllBehind,
    /// A failed proof does not free its slot.
    LeaksSlots,
    /// A device gets parts that do not fit it.
    IgnoresFit,
    /// A device that is out of service gets parts.
    UsesLostDevices,
    /// A part waits behind others on a slow device though a fast one would prove it first.
    QueuesAnywhere,
    /// A part goes back to the device that failed it.
    RetriesWhereItFailed,
    /// The slower of two devices goes first.
    PrefersSlowDevices,
    /// The number of retries does not count.
    RetriesForEver,
    /// Nothing is tried again.
    NeverRetries,
    /// What can never work is tried again.
    RetriesAnything,
    /// A proof is not verified.
    SkipsVerification,
    /// A proof that does not verify is handed over.
    BelievesRejected,
    /// All explanations run at once.
    ExplainsAll,
    /// A part that outgrew its columns is forgotten.
    LosesOutgrown,
    /// A job is handed over without its last part.
    CompletesWithoutLast,
    /// A job ends while stages of it run.
    AbortsBusy,
    /// A job is cancelled while it is handed over.
    CancelsCompleting,
    /// Any number of parts is under way to the devices.
    AlwaysBursts,
    /// A part starts only when a slot is free.
    NeverLeads,
    /// What hangs is waited for.
    NeverGivesUp,
    /// A device that hangs stays in service.
    KeepsHungDevices,
    /// An overtaken job never moves up.
    NeverRaises,
    /// Parts of ending jobs count while anything of the job runs.
    CountsWhatEnds,
    /// Parts that wait for memory or a slot are never overtaken.
    ForgetsWaitsForSlots,
    /// An overtaken job moves up to the highest priority.
    RaisesToTheHighest,
    /// A caller cannot raise a job.
    ForgetsRaises,
    /// A caller that comes again with a lower priority lowers it.
    LowersPriorities,
    /// Parts that wait for memory when their job moves up go on with the old priority.
    NeverUrges,
}

fn is_caught(run: impl FnOnce()) -> bool {
    catch_unwind(AssertUnwindSafe(run)).is_err()
}

#[test]
fn every_fault_of_the_scheduler_is_caught() {
    let seeds_max = 2_000;
    let survivors = Mutation::ALL.iter().filter(|&&mutation| {
        let by_a_seed = || (0..seeds_max).any(|seed| is_caught(|| simulate(seed, Some(mutation))));
        let by_a_scenario = || scenarios::all(Some(mutation)).any(is_caught);
        !(by_a_seed() || by_a_scenario())
    });
    let survivors: Vec<_> = survivors.collect();
    assert!(survivors.is_empty(), "not caught: {survivors:?}");
}

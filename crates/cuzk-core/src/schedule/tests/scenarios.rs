//! Machines where nothing is drawn: what the scheduler is for, in seconds.

use std::time::Duration;

use super::Mutation;
use super::world::{Arrival, Kind, Proof, Spec, World};
use crate::config::Dispatch;
use crate::schedule::{DeviceIndex, DeviceSet, JobId, Limits, Priority, StageLimits};

/// Seconds of a proof.
const PROOF: f64 = 2.0;
/// Bytes of a part.
const PART: u64 = 10;

/// One device of two slots, eight threads, memory for everything, nothing that fails.
/// Kind 0 is synthesised by all threads in `synthesis` seconds, kind 1 by one of them,
/// kind 2 is a tenth of kind 0.
fn spec(synthesis: f64) -> Spec {
    let kind = |is_shared, scale, bytes| Kind {
        is_shared,
        synthesis: scale * synthesis,
        proof: scale * PROOF,
        bytes,
        devices: DeviceSet::ALL,
    };
    Spec {
        limits: Limits {
            dispatch: Dispatch::Reactive,
            threads: 8,
            synthesis_max: None,
            parts_in_flight_max: None,
            device_slots: vec![2],
            retries_max: 1,
            overtaken_max: None,
            stages: StageLimits::default(),
        },
        kinds: vec![
            kind(true, 1.0, PART),
            kind(false, 1.0, PART),
            kind(true, 0.1, 1),
        ],
        slowness: vec![1.0],
        deaths: vec![None],
        memory: 1000,
        kept: 0,
        jitter: 0.0,
        failures_percent: 0,
        slow_percent: 0,
        hangs_percent: 0,
        batch: 1,
    }
}

/// As many devices, each so many times as slow.
fn with_devices(mut spec: Spec, slowness: &[f64], slots: usize) -> Spec {
    spec.slowness = slowness.to_vec();
    spec.deaths = vec![None; slowness.len()];
    spec.limits.device_slots = vec![slots; slowness.len()];
    spec
}

fn run(spec: Spec, arrivals: Vec<Arrival>, mutation: Option<Mutation>) -> World {
    let mut world = World::new(0, spec, mutation);
    world.run(arrivals);
    world
}

fn jobs(count: usize, parts: usize, kind: usize) -> Vec<Arrival> {
    vec![Arrival::new(Priority::Normal, parts, kind); count]
}

fn proofs_of(world: &World, job: u64) -> Vec<Proof> {
    let of_job = |proof: &&Proof| proof.part.job == JobId(job);
    world.proofs.iter().filter(of_job).copied().collect()
}

/// All scenarios, for faults to be caught in.
pub(super) fn all(mutation: Option<Mutation>) -> impl Iterator<Item = impl FnOnce()> {
    let scenarios: [fn(Option<Mutation>); 15] = [
        equal_jobs_finish_one_after_the_other,
        an_urgent_part_has_the_next_slot,
        an_urgent_part_has_the_memory_that_comes_back_next,
        kept_memory_is_there_for_an_urgent_part,
        a_device_that_could_be_fed_never_waits,
        no_more_is_under_way_than_rates_justify,
        a_device_that_ends_proofs_in_bunches_is_fed_as_evenly,
        each_of_two_unequal_devices_has_its_share,
        each_of_many_unequal_devices_has_its_share,
        a_circuit_of_one_device_leaves_the_others_to_others,
        one_lost_of_many_devices_costs_the_time_of_its_part,
        a_lost_device_costs_the_time_of_its_parts,
        a_hung_device_costs_the_time_until_it_is_given_up,
        an_overtaken_job_moves_up,
        an_overtaken_part_moves_up,
    ];
    scenarios
        .into_iter()
        .map(move |scenario| move || scenario(mutation))
}

/// Three jobs of ten parts, each ends within a tenth of its share of the time.
fn equal_jobs_finish_one_after_the_other(mutation: Option<Mutation>) {
    for kind in [0, 1] {
        let world = run(spec(1.0), jobs(3, 10, kind), mutation);
        let ends: Vec<f64> = world.completed.values().copied().collect();
        let share = ends[2] / 3.0;
        for (index, end) in ends.iter().enumerate() {
            let want = share * (index + 1) as f64;
            assert!((end - want).abs() <= 0.1 * want, "{ends:?}");
        }
        let parts: Vec<_> = world.proofs.iter().map(|proof| proof.part).collect();
        assert!(
            parts.is_sorted(),
            "oldest first, lowest part first: {parts:?}"
        );
    }
}

/// A WinningPoSt comes while ten PoReps are proved: its own time, and that of one part.
fn an_urgent_part_has_the_next_slot(mutation: Option<Mutation>) {
    for slots in [1, 2] {
        let mut arrivals = jobs(10, 10, 0);
        let at = 51.3;
        arrivals.push(Arrival {
            at,
            ..Arrival::new(Priority::Critical, 1, 2)
        });
        let world = run(with_devices(spec(1.0), &[1.0], slots), arrivals, mutation);
        let proofs = proofs_of(&world, 11);
        assert_eq!(proofs.len(), 1);
        // Its key, and its synthesis beside two others.
        let own = 0.01 + 3.0 * 0.1;
        let given = proofs[0].given - at;
        assert!(given <= own + PROOF, "given its slot after {given} s");
    }
}

/// Nothing is free: it has what the next part gives back, though others wait for it.
fn an_urgent_part_has_the_memory_that_comes_back_next(mutation: Option<Mutation>) {
    let mut spec = spec(1.0);
    spec.memory = 2 * PART;
    let mut arrivals = jobs(10, 10, 0);
    let at = 51.3;
    arrivals.push(Arrival {
        at,
        ..Arrival::new(Priority::Critical, 1, 2)
    });
    let world = run(spec, arrivals, mutation);
    let proofs = proofs_of(&world, 11);
    let released = world.proofs.iter().map(|proof| proof.ended);
    let released = released
        .filter(|ended| *ended > at)
        .fold(f64::MAX, f64::min);
    let begun = proofs[0].begun;
    assert!(begun <= released + 0.01 + 0.3 + PROOF, "{begun} {released}");
}

fn kept_memory_is_there_for_an_urgent_part(mutation: Option<Mutation>) {
    let mut spec = spec(1.0);
    // The device is slow: whoever waits for memory waits long.
    spec.kinds[0].proof = 50.0;
    spec.limits.device_slots = vec![3];
    (spec.memory, spec.kept) = (2 * PART + 1, 1);
    let mut arrivals = jobs(2, 10, 0);
    arrivals.push(Arrival {
        at: 20.0,
        ..Arrival::new(Priority::Critical, 1, 2)
    });
    let world = run(spec, arrivals, mutation);
    let given = proofs_of(&world, 3)[0].given;
    assert!(given <= 20.0 + 0.01 + 0.3, "given its slot at {given}");
}

/// Syntheses that are faster than the device, alone or several at once: once their times
/// are known, the device computes without a gap.
fn a_device_that_could_be_fed_never_waits(mutation: Option<Mutation>) {
    for (kind, synthesis) in [
        (0, 0.1),
        (0, 1.0),
        (0, 1.9),
        (1, 0.3),
        (1, 2.0),
        (1, 7.0),
        (1, 13.0),
    ] {
        for slots in 1..=3 {
            for count in 1..=2 {
                // Two devices take twice as many, so the processor gives half of it.
                let synthesis = synthesis / count as f64;
                let spec = with_devices(spec(synthesis), &vec![1.0; count], slots);
                let world = run(spec, jobs(3, 20, kind), mutation);
                for device in (0..count).map(DeviceIndex) {
                    // The last ones are no longer followed by others.
                    let idle = world.idle_seconds(device, 8);
                    let at = (kind, synthesis, slots, count);
                    assert!(idle < 0.05 * PROOF, "{idle} s idle at {at:?}");
                }
            }
        }
    }
}

/// A slow device is not fed more than it takes, however fast parts are synthesised.
fn no_more_is_under_way_than_rates_justify(mutation: Option<Mutation>) {
    for (kind, synthesis, lead) in [
        (0, 0.1, 2),
        (0, 1.9, 2),
        (1, 0.1, 2),
        (1, 3.9, 3),
        (1, 7.9, 5),
    ] {
        let world = run(spec(synthesis), jobs(3, 20, kind), mutation);
        let seen = world.lead_seen;
        assert!(seen <= lead, "{seen} under way, {lead} are justified");
        // All that memory allows, which is what a burst is.
        let mut burst = spec(synthesis);
        burst.limits.dispatch = Dispatch::Burst;
        let seen = run(burst, jobs(3, 20, kind), mutation).lead_seen;
        assert!(seen >= 2 * lead, "a burst has {seen} under way");
    }
}

/// A device makes four proofs together, which end at the same time, and has as many slots
/// again: once rates are known it always has four, one bunch comes right after the other, and
/// no more is under way than the rate of all of them justifies.
fn a_device_that_ends_proofs_in_bunches_is_fed_as_evenly(mutation: Option<Mutation>) {
    for (kind, synthesis) in [(0, 0.1), (0, 1.0), (0, 1.8), (1, 2.0), (1, 7.0), (1, 13.0)] {
        for count in [1, 2] {
            let synthesis = synthesis / count as f64;
            let mut spec = with_devices(spec(synthesis), &vec![1.0; count], 8);
            spec.batch = 4;
            let world = run(spec, jobs(10, 20, kind), mutation);
            for device in (0..count).map(DeviceIndex) {
                let at = (kind, synthesis, device);
                let of_device = world.proofs.iter().filter(|proof| proof.device == device);
                let mut begun: Vec<f64> = of_device.map(|proof| proof.begun).collect();
                begun.sort_by(f64::total_cmp);
                let passes: Vec<_> = begun.chunk_by(|left, right| left == right).collect();
                // Little more than it takes fills its slots slowly.
                let whole = &passes[passes.len() * 2 / 3..passes.len() - 2];
                let is_whole = whole.iter().all(|pass| pass.len() == 4);
                assert!(!whole.is_empty() && is_whole, "{passes:?} at {at:?}");
                let pairs = whole.windows(2);
                let idle: f64 = pairs
                    .map(|pair| pair[1][0] - pair[0][0] - 4.0 * PROOF)
                    .sum();
                assert!(idle < 0.05 * PROOF, "{idle} s idle at {at:?}");
            }
        }
    }
}

/// One is four times as slow: it proves a fifth, and no part is proved twice.
fn each_of_two_unequal_devices_has_its_share(mutation: Option<Mutation>) {
    for slow in [0, 1] {
        let mut slowness = [1.0, 1.0];
        slowness[slow] = 4.0;
        let world = run(
            with_devices(spec(0.5), &slowness, 2),
            jobs(5, 10, 0),
            mutation,
        );
        let mut parts: Vec<_> = world.proofs.iter().map(|proof| proof.part).collect();
        parts.sort();
        parts.dedup();
        assert_eq!((parts.len(), world.proofs.len()), (50, 50));
        let by_slow = world.proofs.iter().filter(|proof| proof.device.0 == slow);
        let by_slow = by_slow.count();
        assert!((8..=12).contains(&by_slow), "the slow one has {by_slow}");
        // A lone part goes to the fast one, once both are known.
        let mut arrivals = jobs(5, 10, 0);
        arrivals.push(Arrival {
            at: 500.0,
            ..Arrival::new(Priority::Normal, 1, 0)
        });
        let world = run(with_devices(spec(0.5), &slowness, 2), arrivals, mutation);
        let device = proofs_of(&world, 6)[0].device;
        assert_eq!(device, DeviceIndex(1 - slow));
    }
}

/// As many devices, of four speeds.
fn slowness_of_devices(count: usize) -> Vec<f64> {
    let speeds = [1.0, 1.5, 2.0, 4.0];
    let of_all = speeds.iter().cycle().take(count);
    of_all.map(|speed| 1.0 / speed).collect()
}

/// Parts that such devices prove in a second, all together or without one.
fn parts_per_second(slowness: &[f64], without: Option<usize>) -> f64 {
    let each = slowness.iter().enumerate();
    let each = each.filter(|(device, _)| Some(*device) != without);
    each.map(|(_, slow)| 1.0 / (PROOF * slow)).sum()
}

/// A share of the parts by speed, give or take one, and all of them done as early as the
/// slowest one's last part allows. The shares of four and of eight are whole numbers: what
/// several slow ones round up is else the fast ones' loss.
fn each_of_many_unequal_devices_has_its_share(mutation: Option<Mutation>) {
    for (count, slots) in [(2, 1), (2, 2), (4, 1), (4, 2), (8, 1), (8, 2), (8, 3)] {
        let slowness = slowness_of_devices(count);
        // So fast that all devices have a part at once.
        let spec = with_devices(spec(0.02), &slowness, slots);
        let world = run(spec, jobs(12, 17, 0), mutation);
        let mut parts: Vec<_> = world.proofs.iter().map(|proof| proof.part).collect();
        parts.sort();
        parts.dedup();
        assert_eq!((parts.len(), world.proofs.len()), (204, 204));
        let ideal = 204.0 / parts_per_second(&slowness, None);
        for (device, slow) in slowness.iter().enumerate() {
            let of_device = world.proofs.iter();
            let of_device = of_device.filter(|proof| proof.device.0 == device);
            let (had, share) = (of_device.count() as f64, ideal / (PROOF * slow));
            let at = (count, slots, device);
            assert!((had - share).abs() <= 1.0, "{had} for {share} at {at:?}");
        }
        let end = world.completed.values().copied().fold(0.0, f64::max);
        let at = (count, slots);
        assert!(end <= ideal + PROOF, "{end} for {ideal} at {at:?}");
    }
}

/// One of many is lost in the middle of a part, the fastest or the slowest: the others need
/// no longer than for what was left, and one proof.
fn one_lost_of_many_devices_costs_the_time_of_its_part(mutation: Option<Mutation>) {
    for (count, slots) in [(2, 1), (2, 2), (4, 1), (4, 2), (8, 1), (8, 2)] {
        let slowness = slowness_of_devices(count);
        for lost in [0, count - 1] {
            let mut spec = with_devices(spec(0.05), &slowness, slots);
            let dies = 7.3;
            spec.deaths[lost] = Some(dies);
            let world = run(spec, jobs(10, 20, 0), mutation);
            assert_eq!(world.completed.len(), 10, "all jobs have their proof");
            let wasted = world.proofs.len() - 200;
            assert!(wasted <= slots, "{wasted} parts are proved again");
            let before = world.proofs.iter();
            let before = before.filter(|proof| proof.device.0 == lost && proof.ended <= dies);
            let by_others = dies * parts_per_second(&slowness, Some(lost));
            let left = 200.0 - before.count() as f64 - by_others;
            let ideal = dies + left / parts_per_second(&slowness, Some(lost));
            let end = world.completed.values().copied().fold(0.0, f64::max);
            let at = (count, slots, lost);
            assert!(end <= ideal + PROOF, "{end} for {ideal} at {at:?}");
        }
    }
}

/// A job of which every part fits the first device alone comes before one that any can
/// prove: neither device is without a part while the other one's are proved.
fn a_circuit_of_one_device_leaves_the_others_to_others(mutation: Option<Mutation>) {
    for slots in [1, 2] {
        let mut spec = with_devices(spec(0.3), &[1.0, 1.0], slots);
        spec.kinds[1] = spec.kinds[0].clone();
        spec.kinds[0].devices = [DeviceIndex(0)].into_iter().collect();
        let arrivals = [(0, 2), (0, 20), (1, 20), (1, 20)];
        let arrivals = arrivals.map(|(kind, parts)| Arrival::new(Priority::Normal, parts, kind));
        let world = run(spec, arrivals.to_vec(), mutation);
        for device in [0, 1].map(DeviceIndex) {
            let idle = world.idle_seconds(device, 4);
            assert!(
                idle < 0.5 * PROOF,
                "{device:?} idle for {idle} s of {slots}"
            );
        }
        let by_first = world.proofs.iter().filter(|proof| proof.device.0 == 0);
        let by_first = by_first.count();
        assert!(
            (30..=32).contains(&by_first),
            "{by_first} of 62 with {slots}"
        );
    }
}

/// The parts that it has go to the other one, and every job ends.
fn a_lost_device_costs_the_time_of_its_parts(mutation: Option<Mutation>) {
    let mut spec = with_devices(spec(0.5), &[1.0, 1.0], 2);
    spec.deaths[0] = Some(21.0);
    let world = run(spec, jobs(4, 10, 0), mutation);
    assert_eq!(world.completed.len(), 4, "all jobs have their proof");
    let later = world.proofs.iter().filter(|proof| proof.device.0 == 0);
    let later = later.filter(|proof| proof.given > 21.0 + 2.0 * PROOF);
    assert_eq!(later.count(), 0, "it gets no part any more");
    assert!(
        (40..=42).contains(&world.proofs.len()),
        "only its own are proved again"
    );
    // From then on one device proves what is left, and what was lost.
    let end = world.completed.values().copied().fold(0.0, f64::max);
    let ideal = 21.0 + (40.0 - 21.0) * PROOF + 2.0 * PROOF;
    assert!(
        end <= ideal + 3.0 * PROOF,
        "ended at {end}, {ideal} would do"
    );
}

/// As a lost one, but found out by the limit of the stage.
fn a_hung_device_costs_the_time_until_it_is_given_up(mutation: Option<Mutation>) {
    let mut spec = with_devices(spec(0.5), &[1.0, 1e9], 1);
    spec.limits.stages.prove_max = Some(Duration::from_secs(60));
    let world = run(spec, jobs(2, 10, 0), mutation);
    assert_eq!(world.completed.len(), 2, "all jobs have their proof");
    assert_eq!((world.given_up, world.proofs.len()), (1, 21));
    let on_other = world.proofs.iter().filter(|proof| proof.device.0 == 1);
    assert_eq!(on_other.count(), 1, "it gets no part any more");
}

/// When a low job of so many parts that comes at `at` has ended, among jobs of a higher
/// priority that come as fast as they are proved.
fn end_of_a_low_job(
    at: f64,
    parts: usize,
    slots: usize,
    overtaken_max: Option<u64>,
    mutation: Option<Mutation>,
) -> f64 {
    let high = |index| Arrival {
        at: f64::from(index) * PROOF * 0.9,
        ..Arrival::new(Priority::High, 1, 0)
    };
    let mut arrivals: Vec<Arrival> = (0..200).map(high).collect();
    let before = arrivals.iter().filter(|high| high.at < at).count();
    let low = Arrival {
        at,
        ..Arrival::new(Priority::Low, parts, 0)
    };
    arrivals.insert(before, low);
    let mut spec = with_devices(spec(0.5), &[1.0], slots);
    spec.limits.overtaken_max = overtaken_max.map(Duration::from_secs);
    let world = run(spec, arrivals, mutation);
    world.completed[&JobId(before as u64 + 1)]
}

/// The device never has a moment for it. Without the limit it is last, with it its turn
/// comes after two of them.
fn an_overtaken_job_moves_up(mutation: Option<Mutation>) {
    let end = end_of_a_low_job(20.0, 3, 2, None, None);
    assert!(end > 300.0, "it starves without the limit");
    let end = end_of_a_low_job(20.0, 3, 2, Some(40), mutation);
    // Twice the limit, what was before it then, and its own three parts.
    assert!(end <= 20.0 + 2.0 * 40.0 + 12.0 * PROOF, "ended at {end}");
}

/// The same for a part that has started, and then sees every slot go to another.
fn an_overtaken_part_moves_up(mutation: Option<Mutation>) {
    let end = end_of_a_low_job(1.0, 1, 1, None, None);
    assert!(end > 300.0, "it starves without the limit");
    let end = end_of_a_low_job(1.0, 1, 1, Some(40), mutation);
    assert!(end <= 1.0 + 2.0 * 40.0 + 6.0 * PROOF, "ended at {end}");
}

macro_rules! tests {
    ($($name:ident => $scenario:ident,)+) => {
        $(#[test]
        fn $name() {
            $scenario(None);
        })+
    };
}

tests! {
    order => equal_jobs_finish_one_after_the_other,
    urgent_slot => an_urgent_part_has_the_next_slot,
    urgent_memory => an_urgent_part_has_the_memory_that_comes_back_next,
    urgent_kept => kept_memory_is_there_for_an_urgent_part,
    fed => a_device_that_could_be_fed_never_waits,
    justified => no_more_is_under_way_than_rates_justify,
    bunches => a_device_that_ends_proofs_in_bunches_is_fed_as_evenly,
    unequal => each_of_two_unequal_devices_has_its_share,
    many_unequal => each_of_many_unequal_devices_has_its_share,
    of_one_device => a_circuit_of_one_device_leaves_the_others_to_others,
    many_lost => one_lost_of_many_devices_costs_the_time_of_its_part,
    lost => a_lost_device_costs_the_time_of_its_parts,
    hung => a_hung_device_costs_the_time_until_it_is_given_up,
    overtaken => an_overtaken_job_moves_up,
    overtaken_part => an_overtaken_part_moves_up,
}

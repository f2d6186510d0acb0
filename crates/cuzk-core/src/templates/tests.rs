//! What is told of templates that nobody uses, and what becomes of those that are doubted.

use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use bellpepper_core::{ConstraintSystem, SynthesisError};
use cuzk_budget::{Priority, Wait};
use cuzk_synth::{Cut, Extend, Pass, survey};

use super::*;
use crate::shapes::circuit_shape;

const LIMIT_BYTES: u64 = 1 << 20;

/// Two blocks of so many rows.
fn template(rows: usize) -> Template {
    let cut = Cut {
        depth: 0,
        name: "block ",
        apart: None,
    };
    let synthesize = |pass: &mut Pass<'_>| {
        for block in 0..2 {
            let mut space = pass.namespace(|| format!("block {block}"));
            let missing = || Err(SynthesisError::AssignmentMissing);
            let x = space.alloc(|| "x", missing)?;
            for _ in 0..rows {
                space.enforce(|| "row", |lc| lc + x, |lc| lc + x, |lc| lc + x);
            }
        }
        Ok(())
    };
    survey(cut, Extend::Whole, false, LIMIT_BYTES as usize, synthesize)
        .expect("a blank circuit needs no witness")
        .expect("it repeats")
}

fn circuit() -> CircuitId {
    "blocks".into()
}

/// Surveys the circuit as the next part would.
fn store(templates: &Templates, rows: usize) -> InUse {
    let Found::Unknown(surveying) = templates.find(&circuit()) else {
        panic!("it is known");
    };
    let template = template(rows);
    let seen = Seen {
        blocks: template.blocks(),
        is_uniform: template.is_uniform(),
        digest: template.digest(),
    };
    assert!(templates.keep_seen(&circuit(), seen));
    let shape = Arc::new(circuit_shape(&template.sizes(), &template.densities()));
    let held = surveying.memory(None, LIMIT_BYTES / 2);
    surveying.cut(template, shape, held.expect("there is room"))
}

#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Whatever became of the part that used it: who waits for all memory is woken, and has it.
#[test]
fn who_waits_for_memory_is_told_when_a_template_is_used_no_more() {
    let budget = Budget::new(LIMIT_BYTES);
    let templates = Templates::new(budget.clone());
    let first = store(&templates, 3);
    let Found::Cut(second) = templates.find(&circuit()) else {
        panic!("it is stored");
    };
    let wait = Wait::with_priority(Priority::NORMAL);
    let mut all = pin!(budget.reserve_async(Consumer("all"), LIMIT_BYTES, wait));
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    let mut context = Context::from_waker(&waker);
    for (used, count) in [(first, 1), (second, 2)] {
        assert!(all.as_mut().poll(&mut context).is_pending());
        drop(used);
        assert_eq!(woken.0.load(Ordering::Relaxed), count);
    }
    let granted = all.as_mut().poll(&mut context);
    assert!(matches!(granted, Poll::Ready(Ok(_))), "it made room");
}

fn is_whole(templates: &Templates) -> bool {
    matches!(templates.find(&circuit()), Found::Whole(Obstacle::Doubted))
}

/// Doubts are of bad parts and devices, as long as surveys find the same.
#[test]
fn doubts_end_when_the_same_rows_are_found_again() {
    let templates = Templates::new(Budget::new(LIMIT_BYTES));
    for _ in 0..5 {
        drop(store(&templates, 3));
        assert_eq!(templates.doubt(&circuit()), Some(1));
        assert_eq!(templates.doubt(&circuit()), None, "once a template");
        assert!(is_whole(&templates), "the next part");
    }
    // Nor are the rows forgotten when they are reclaimed.
    drop(store(&templates, 3));
    assert!(templates.reclaim(u64::MAX) > 0);
    assert_eq!(templates.doubt(&circuit()), Some(1));
    assert!(is_whole(&templates), "the next part");
    drop(store(&templates, 3));
    assert_eq!(templates.doubt(&circuit()), Some(1));
}

#[test]
fn a_circuit_of_which_two_surveys_find_other_rows_is_whole_once_doubted_again() {
    let templates = Templates::new(Budget::new(LIMIT_BYTES));
    drop(store(&templates, 3));
    assert_eq!(templates.doubt(&circuit()), Some(1));
    assert!(is_whole(&templates), "the next part");
    drop(store(&templates, 4));
    assert_eq!(templates.doubt(&circuit()), Some(2));
    for _ in 0..3 {
        assert!(is_whole(&templates), "all parts");
    }
}

//! What is told of templates that nobody uses.

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

//! Groth16's prover over columns, densities and a key.

use std::time::Instant;

use blstrs::{G1Affine, G2Affine, Scalar};

use crate::backend::Proved;
use crate::column::{CColumn, ColumnLayout, Columns};
use crate::cpu::h::{CSource, Transforms, quotient};
use crate::cpu::msm::{Density, Point, msm};
use crate::cpu::ntt::Domain;
use crate::cpu::source::PointSource;
use crate::error::BackendError;
use crate::groth16::{Statement, Sums, assemble, check, mismatch};
use crate::key::Section;
use crate::phase::{Phase, PhaseLane};
use crate::watch::{Intermediate, Watch, show_scalars, show_sums};

/// Proves on the current rayon pool. The columns must hold what
/// [`Columns`] says, the third one as `c_source` says; afterwards `a`, `b` and `c`
/// hold nothing of use. `watch` is shown the intermediates.
///
/// # Errors
/// If the parts of the request do not fit together, found before any work, or if a
/// section of the key cannot be read.
pub fn prove<S: PointSource>(
    columns: &mut Columns,
    statement: Statement<'_>,
    key: &S,
    c_source: CSource,
    transforms: Transforms,
    watch: Option<&dyn Watch>,
) -> Result<Proved, BackendError> {
    let layout = ColumnLayout {
        rows: statement.shape.sizes.domain(),
        aux: statement.shape.sizes.aux,
        c: CColumn::Scratch,
    };
    check(columns, &layout, &statement, |section| key.count(section))?;
    let Statement {
        inputs,
        shape,
        r,
        s,
    } = statement;
    let vk = key.vk();
    let mut phases = Phases::start();
    let watched_inputs = watch.map(|watch| show_columns(watch, columns, inputs));
    let inputs = watched_inputs.as_deref().unwrap_or(inputs);

    let len = shape.sizes.domain();
    let coefficients = columns.a.scalars_mut();
    {
        let domain = Domain::new(len).ok_or(BackendError::Mismatch {
            what: "constraints beyond the largest domain",
            have: shape.sizes.constraints,
            want: 1 << 32,
        })?;
        let c = columns.c.as_mut().ok_or(mismatch("columns", 3, 4))?;
        quotient(
            &domain,
            coefficients,
            columns.b.scalars_mut(),
            c.scalars_mut(),
            c_source,
            transforms,
        );
    }
    if let Some(watch) = watch {
        let used = &mut coefficients[..len - 1];
        show_scalars(watch, Intermediate::Quotient, 0, used);
    }
    phases.end("ntt", PhaseLane::Compute);

    let points = key.g1(Section::H)?;
    phases.end("key_h", PhaseLane::Key);
    let h = msm::<G1Affine>(&points, &coefficients[..len - 1], Density::Full);
    drop(points);
    phases.end("msm_h", PhaseLane::Compute);

    let aux = columns.aux.scalars();
    let points = key.g1(Section::L)?;
    phases.end("key_l", PhaseLane::Key);
    let l = msm::<G1Affine>(&points, aux, Density::Full);
    drop(points);
    phases.end("msm_l", PhaseLane::Compute);

    let points = key.g1(Section::A)?;
    phases.end("key_a", PhaseLane::Key);
    let a = query(
        &points,
        (inputs, Density::Full),
        (aux, Density::Set(&shape.a_aux)),
    );
    drop(points);
    phases.end("msm_a", PhaseLane::Compute);

    let b_inputs = (inputs, Density::Set(&shape.b_inputs));
    let b_aux = (aux, Density::Set(&shape.b_aux));
    let points = key.g1(Section::BG1)?;
    phases.end("key_b_g1", PhaseLane::Key);
    let b_g1 = query::<G1Affine>(&points, b_inputs, b_aux);
    drop(points);
    phases.end("msm_b_g1", PhaseLane::Compute);

    let points = key.g2()?;
    phases.end("key_b_g2", PhaseLane::Key);
    let b_g2 = query::<G2Affine>(&points, b_inputs, b_aux);
    drop(points);
    phases.end("msm_b_g2", PhaseLane::Compute);

    let mut sums = Sums {
        h,
        l,
        a,
        b_g1,
        b_g2,
    };
    if let Some(watch) = watch {
        show_sums(watch, &mut sums);
    }
    let proof = assemble(vk, &sums, r, s);
    phases.end("finish", PhaseLane::Host);
    Ok(Proved {
        proof,
        phases: phases.ended,
        tier: None,
    })
}

/// Shows the columns and the assignment; the inputs as they are afterwards.
fn show_columns(watch: &dyn Watch, columns: &mut Columns, inputs: &[Scalar]) -> Vec<Scalar> {
    show_scalars(watch, Intermediate::A, 0, columns.a.scalars_mut());
    show_scalars(watch, Intermediate::B, 0, columns.b.scalars_mut());
    let mut inputs = inputs.to_vec();
    show_scalars(watch, Intermediate::Assignment, 0, &mut inputs);
    let aux = columns.aux.scalars_mut();
    show_scalars(watch, Intermediate::Assignment, inputs.len(), aux);
    inputs
}

/// A query over inputs and auxiliary variables, whose points stand in this order.
fn query<P: Point>(
    points: &[P],
    inputs: (&[Scalar], Density<'_>),
    aux: (&[Scalar], Density<'_>),
) -> P::Curve {
    let (of_inputs, of_aux) = points.split_at(inputs.1.points(inputs.0.len()));
    msm(of_inputs, inputs.0, inputs.1) + msm(of_aux, aux.0, aux.1)
}

/// A stopwatch with laps.
struct Phases {
    since: Instant,
    ended: Vec<Phase>,
}

impl Phases {
    fn start() -> Self {
        Self {
            since: Instant::now(),
            ended: Vec::with_capacity(12),
        }
    }

    /// Ends a phase and begins the next.
    fn end(&mut self, name: &'static str, lane: PhaseLane) {
        let now = Instant::now();
        self.ended.push(Phase::new(name, lane, self.since, now));
        self.since = now;
    }
}

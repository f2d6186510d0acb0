//! The four passes over one circuit agree with each other and with a naive reading
//! of its constraints.

use bellpepper_core::{ConstraintSystem, LinearCombination, SynthesisError, Variable};
use blstrs::Scalar;
use cuzk_synth::*;
use ff::Field;
use proptest::prelude::*;

/// A circuit as data: products of two earlier variables, with coefficients that may
/// be zero, inputs allocated late and variables that nothing uses.
#[derive(Clone, Debug)]
struct Products {
    seeds: Vec<u64>,
    rows: Vec<Row>,
}

#[derive(Clone, Debug)]
struct Row {
    left: usize,
    right: usize,
    left_coefficient: u64,
    right_coefficient: u64,
    public: bool,
    /// Added to the product, so that the row does not hold.
    error: u64,
}

fn variable_term(
    lc: LinearCombination<Scalar>,
    coefficient: u64,
    variable: Variable,
) -> LinearCombination<Scalar> {
    lc + (Scalar::from(coefficient), variable)
}

impl Products {
    fn synthesize(&self, pass: &mut Pass<'_>) -> Result<(), SynthesisError> {
        let mut variables = Vec::new();
        let mut values = Vec::new();
        for (index, &seed) in self.seeds.iter().enumerate() {
            let value = Scalar::from(seed);
            values.push(value);
            variables.push(pass.alloc(|| format!("seed {index}"), || Ok(value))?);
        }
        for (index, row) in self.rows.iter().enumerate() {
            let mut space = pass.namespace(|| format!("row {index}"));
            let (left, right) = (row.left % variables.len(), row.right % variables.len());
            let value = Scalar::from(row.left_coefficient)
                * values[left]
                * Scalar::from(row.right_coefficient)
                * values[right]
                + Scalar::from(row.error);
            let product = if row.public {
                space.alloc_input(|| "product", || Ok(value))?
            } else {
                space.alloc(|| "product", || Ok(value))?
            };
            space.enforce(
                || "multiply",
                |lc| variable_term(lc, row.left_coefficient, variables[left]),
                |lc| variable_term(lc, row.right_coefficient, variables[right]),
                |lc| lc + product,
            );
            values.push(value);
            variables.push(product);
        }
        Ok(())
    }
}

fn rows(errors: bool) -> impl Strategy<Value = Row> {
    // Coefficients 0, 1 and others: 0 must not make a variable dense.
    let error = if errors { 0..2u64 } else { 0..1 };
    (
        any::<usize>(),
        any::<usize>(),
        0..4u64,
        0..4u64,
        any::<bool>(),
        error,
    )
        .prop_map(
            |(left, right, left_coefficient, right_coefficient, public, error)| Row {
                left,
                right,
                left_coefficient,
                right_coefficient,
                public,
                error,
            },
        )
}

/// Up to 80 rows: more than one word of a density, and quick to shrink.
fn products(errors: bool) -> impl Strategy<Value = Products> {
    (
        prop::collection::vec(0..3u64, 1..80),
        prop::collection::vec(rows(errors), 0..80),
    )
        .prop_map(|(seeds, rows)| Products { seeds, rows })
}

/// Columns of given lengths, filled with what a pool might have left in them.
fn dirty(len: usize) -> Vec<Scalar> {
    vec![Scalar::from(77); len]
}

proptest! {
    #[test]
    fn passes_agree(circuit in products(false), slack in 0..3usize) {
        let counted = count(|pass| circuit.synthesize(pass)).expect("a count needs no witness");
        let (grown, assigned) =
            assign_growing(true, |pass| circuit.synthesize(pass)).expect("a good witness");
        prop_assert_eq!(counted.sizes, assigned.sizes);
        prop_assert_eq!(&counted.densities, &assigned.densities);
        for row in 0..grown.a.len() {
            prop_assert_eq!(grown.a[row] * grown.b[row], grown.c[row]);
        }

        let Sizes { aux, constraints, .. } = counted.sizes;
        let (mut a, mut b, mut c) =
            (dirty(constraints + slack), dirty(constraints + slack), dirty(constraints + slack));
        let mut aux_column = dirty(aux + slack);
        let columns = AssignColumns {
            a: &mut a, b: &mut b, c: Some(&mut c), aux: &mut aux_column,
        };
        let exact = assign(columns, |pass| circuit.synthesize(pass)).expect("room enough");
        prop_assert_eq!(&exact, &assigned);
        for (column, grown) in [(&a, &grown.a), (&b, &grown.b), (&c, &grown.c), (&aux_column, &grown.aux)] {
            prop_assert_eq!(&column[..grown.len()], &grown[..]);
            prop_assert!(column[grown.len()..].iter().all(|value| *value == Scalar::ZERO));
        }
        let explained = explain(|pass| circuit.synthesize(pass)).expect("a good witness");
        prop_assert_eq!(explained, Explained::Satisfied { constraints });
    }

    /// The QAP at tau, weighted with a witness, is the interpolation of the columns.
    #[test]
    fn the_qap_interpolates_the_columns(circuit in products(false), tau in 2..u64::MAX) {
        let sizes = count(|pass| circuit.synthesize(pass)).expect("a count needs no witness").sizes;
        let tau = Scalar::from(tau);
        let qap = qap(&sizes, tau, |pass| circuit.synthesize(pass)).expect("not a root of unity");
        let (grown, assigned) =
            assign_growing(true, |pass| circuit.synthesize(pass)).expect("a good witness");
        let weigh = |inputs: &[Scalar], aux: &[Scalar]| {
            let inputs = inputs.iter().zip(&assigned.inputs);
            inputs.chain(aux.iter().zip(&grown.aux)).map(|(x, y)| *x * y).sum::<Scalar>()
        };
        for (inputs, aux, column) in [
            (&qap.inputs.a, &qap.aux.a, &grown.a),
            (&qap.inputs.b, &qap.aux.b, &grown.b),
            (&qap.inputs.c, &qap.aux.c, &grown.c),
        ] {
            prop_assert_eq!(weigh(inputs, aux), interpolate(column, tau));
        }
    }

    #[test]
    fn the_first_row_that_fails_is_named(circuit in products(true)) {
        let explained = explain(|pass| circuit.synthesize(pass)).expect("values are there");
        match circuit.rows.iter().position(|row| row.error != 0) {
            None => {
 let satisfied = matches!(explained, Explained::Satisfied { .. });
 prop_assert!(satisfied);
 }
            Some(row) => {
                let name = format!("row {row}/multiply");
                prop_assert_eq!(explained, Explained::Unsatisfied(FailedConstraint { row, name }));
            }
        }
    }
}

/// The polynomial through `column` on its domain, at `tau`, by the definition.
fn interpolate(column: &[Scalar], tau: Scalar) -> Scalar {
    use ff::PrimeField;
    let domain = column.len().next_power_of_two();
    let mut root = Scalar::ROOT_OF_UNITY;
    for _ in domain.trailing_zeros()..Scalar::S {
        root = root.square();
    }
    let points: Vec<Scalar> = std::iter::successors(Some(Scalar::ONE), |x| Some(*x * root))
        .take(domain)
        .collect();
    let mut sum = Scalar::ZERO;
    for (i, value) in column.iter().enumerate() {
        let mut term = *value;
        for (j, point) in points.iter().enumerate() {
            if i != j {
                term *= (tau - point) * (points[i] - point).invert().expect("distinct points");
            }
        }
        sum += term;
    }
    sum
}

fn squares() -> Products {
    let row = Row {
        left: 0,
        right: 0,
        left_coefficient: 1,
        right_coefficient: 1,
        public: false,
        error: 0,
    };
    Products {
        seeds: vec![3],
        rows: vec![row; 5],
    }
}

#[test]
fn a_short_column_tells_the_true_sizes() {
    let circuit = squares();
    let sizes = count(|pass| circuit.synthesize(pass))
        .expect("counts")
        .sizes;
    assert_eq!(
        sizes,
        Sizes {
            inputs: 1,
            aux: 6,
            constraints: 6
        }
    );
    for (rows, aux, column, have) in [
        (5, 6, ColumnName::A, 5),
        (6, 5, ColumnName::Aux, 5),
        (0, 0, ColumnName::Aux, 0),
    ] {
        let (mut a, mut b, mut aux) = (dirty(rows), dirty(rows), dirty(aux));
        let columns = AssignColumns {
            a: &mut a,
            b: &mut b,
            c: None,
            aux: &mut aux,
        };
        let error = assign(columns, |pass| circuit.synthesize(pass)).expect_err("too short");
        match error {
            SynthError::HintTooSmall {
                column: found,
                have: held,
                want,
            } => {
                assert_eq!((found, held, want), (column, have, sizes));
            }
            other => panic!("{other}"),
        }
    }
}

#[test]
fn a_missing_value_is_the_circuits_error() {
    let error = assign_growing(false, |pass| {
        pass.alloc(|| "secret", || Err(SynthesisError::AssignmentMissing))
            .map(drop)
    })
    .expect_err("no value");
    assert_eq!(
        error.to_string(),
        "the circuit could not be synthesised: an assignment for a variable could not be computed"
    );
}

#[test]
fn unused_and_zero_coefficient_variables_are_not_dense() {
    let counted = count(|pass| {
        let unused = pass.alloc(|| "unused", || Ok(Scalar::ONE))?;
        let zeroed = pass.alloc(|| "zeroed", || Ok(Scalar::ONE))?;
        let used = pass.alloc(|| "used", || Ok(Scalar::ONE))?;
        let _ = unused;
        pass.enforce(
            || "row",
            |lc| lc + (Scalar::ZERO, zeroed) + used,
            |lc| lc + (Scalar::ZERO, used) + Pass::one(),
            |lc| lc + used - used,
        );
        Ok(())
    })
    .expect("counts");
    let dense = |bits: &DensityBits| {
        (0..bits.len())
            .filter(|&i| bits.contains(i))
            .collect::<Vec<_>>()
    };
    assert_eq!(dense(&counted.densities.a_aux), [2]);
    assert_eq!(dense(&counted.densities.b_aux), [] as [usize; 0]);
    assert_eq!(dense(&counted.densities.b_inputs), [0]);
    // One of the row, and one of the input row; `used - used` leaves nothing in C.
    assert_eq!(counted.nonzeros, [2, 1, 0]);
}

#[test]
fn another_number_of_rows_than_counted_is_refused() {
    let circuit = squares();
    let mut sizes = count(|pass| circuit.synthesize(pass))
        .expect("counts")
        .sizes;
    sizes.constraints += 1;
    let error = qap(&sizes, Scalar::from(5), |pass| circuit.synthesize(pass)).expect_err("differs");
    assert!(
        matches!(error, SynthError::NotDeterministic { have: 6, want: 7 }),
        "{error}"
    );
}

#[test]
fn hints_survive_the_process_and_refuse_what_they_do_not_know() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("deep/hints.json");
    let sizes = Sizes {
        inputs: 1,
        aux: 2,
        constraints: 3,
    };
    let hint = Hint {
        sizes,
        densities: "00ff".to_owned(),
    };
    let mut store = HintStore::open(&path).expect("no file is no hints");
    assert_eq!(store.find("squares"), None);
    assert!(store.keep("squares", hint.clone()) && !store.keep("squares", hint.clone()));
    let cut = |survey_bytes| Some(CutHint::Repeats { survey_bytes });
    let uncut = CutHint::Uncut("it does not".to_owned());
    assert!(store.keep_cut("squares", cut(18)) && !store.keep_cut("squares", cut(18)));
    assert!(store.keep_cut("cubes", Some(uncut.clone())));
    assert!(store.keep_cut("other", cut(2)) && store.keep_cut("other", None));
    store.save().expect("a writable directory");
    let again = HintStore::open(&path).expect("what was written is read");
    assert_eq!(again.find("squares"), Some(&hint));
    assert_eq!(again.find_cut("squares"), cut(18).as_ref());
    assert_eq!(again.find_cut("cubes"), Some(&uncut));
    assert_eq!(again.find_cut("other"), None);
    // As written before there were cuts.
    std::fs::write(&path, "{\"version\":1,\"shapes\":{}}").expect("writable");
    assert!(HintStore::open(&path).is_ok());
    // As written when more was kept of a circuit that repeats.
    let blocks = "{\"blocks\":{\"count\":18,\"is_uniform\":true,\"digest\":\"ff00\"}}";
    let cuts = format!("{{\"squares\":{blocks},\"cubes\":{{\"uncut\":\"it does not\"}}}}");
    let text = format!("{{\"version\":1,\"shapes\":{{}},\"cuts\":{cuts}}}");
    std::fs::write(&path, text).expect("writable");
    let again = HintStore::open(&path).expect("a file of this version");
    assert_eq!(again.find_cut("squares"), None);
    assert_eq!(again.find_cut("cubes"), Some(&uncut));
    let names: Vec<_> = std::fs::read_dir(path.parent().expect("has one"))
        .expect("readable")
        .map(|entry| entry.expect("readable").file_name())
        .collect();
    assert_eq!(names, ["hints.json"], "no partial file is left");

    let later = "is of version 2, this program reads version 1";
    for (text, want) in [
        ("{\"version\":1,\"shapes\":{", "EOF while parsing"),
        ("{\"shapes\":{}}", "missing field `version`"),
        ("{\"version\":2,\"shapes\":{}}", later),
        (
            "{\"version\":0,\"shapes\":{}}",
            "is of version 0, this program reads version 1",
        ),
        // A later version may keep other things in other places.
        ("{\"more\":1,\"shapes\":[],\"version\":2}", later),
        (
            "{\"version\":1,\"shapes\":{},\"more\":1}",
            "unknown field `more`",
        ),
    ] {
        std::fs::write(&path, text).expect("writable");
        let error = HintStore::open(&path)
            .expect_err("not a hint file")
            .to_string();
        assert!(error.contains(want), "{error}");
        assert_eq!(std::fs::read_to_string(&path).expect("still there"), text);
    }

    // A later program writes the file while this one has what it was before.
    let text = "{\"more\":1,\"version\":2}";
    std::fs::write(&path, text).expect("writable");
    let error = store.save().expect_err("not to be replaced").to_string();
    assert!(error.contains(later), "{error}");
    assert_eq!(std::fs::read_to_string(&path).expect("still there"), text);
}

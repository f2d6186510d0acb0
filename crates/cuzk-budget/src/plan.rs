//! A plan: what each consumer will hold, before anything is allocated.

use std::fmt;

use crate::byte_count::ByteCount;
use crate::usage::Consumer;

/// One number of a line's arithmetic and what it counts, such as
/// `4 parts` or `32 bytes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Factor {
    /// The number.
    pub count: u64,
    /// What it counts.
    pub unit: &'static str,
}

impl Factor {
    /// `count` of `unit`.
    pub const fn new(count: u64, unit: &'static str) -> Self {
        Self { count, unit }
    }
}

/// A ledger's limit and one named line for each consumer under it.
///
/// ```
/// use cuzk_budget::{Consumer, Factor, Plan};
///
/// let mut plan = Plan::new("host memory", 1 << 30);
/// let factors = [
///     Factor::new(3, "columns"),
///     Factor::new(1 << 20, "scalars"),
///     Factor::new(32, "bytes"),
/// ];
/// plan.add(Consumer("columns"), &factors)?;
/// plan.check()?;
/// println!("{plan}");
/// # Ok::<(), cuzk_budget::PlanError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Plan {
    ledger: String,
    limit_bytes: u64,
    lines: Vec<Line>,
}

#[derive(Clone, Debug)]
struct Line {
    consumer: Consumer,
    factors: Vec<Factor>,
    bytes: u64,
}

/// Why a plan does not hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// A line's product, or the sum, does not fit in 64 bits.
    #[error("the bytes of `{consumer}` ({arithmetic}) overflow the plan of {ledger}")]
    Overflow {
        /// Name of the ledger.
        ledger: String,
        /// Whose line it is.
        consumer: Consumer,
        /// The arithmetic as the table prints it.
        arithmetic: String,
    },
    /// The lines together are more than the limit.
    #[error(
        "the plan of {ledger} needs {} of {}; most of it is `{largest}` with {}",
        ByteCount(*planned_bytes),
        ByteCount(*limit_bytes),
        ByteCount(*largest_bytes)
    )]
    TooLarge {
        /// Name of the ledger.
        ledger: String,
        /// Sum of the lines.
        planned_bytes: u64,
        /// Bytes that may be held at most.
        limit_bytes: u64,
        /// Consumer of the largest line.
        largest: Consumer,
        /// Bytes of the largest line.
        largest_bytes: u64,
    },
}

impl Plan {
    /// An empty plan.
    pub fn new(ledger: impl Into<String>, limit_bytes: u64) -> Self {
        Self {
            ledger: ledger.into(),
            limit_bytes,
            lines: Vec::new(),
        }
    }

    /// Adds a line whose bytes are the product of `factors`, and returns them.
    ///
    /// # Errors
    /// [`PlanError::Overflow`]; the plan stays as it is then.
    pub fn add(&mut self, consumer: Consumer, factors: &[Factor]) -> Result<u64, PlanError> {
        let bytes = factors
            .iter()
            .try_fold(1_u64, |product, factor| product.checked_mul(factor.count))
            .filter(|bytes| self.planned_bytes().checked_add(*bytes).is_some())
            .ok_or_else(|| PlanError::Overflow {
                ledger: self.ledger.clone(),
                consumer,
                arithmetic: arithmetic(factors),
            })?;
        self.lines.push(Line {
            consumer,
            factors: factors.to_vec(),
            bytes,
        });
        Ok(bytes)
    }

    /// Sum of the lines.
    pub fn planned_bytes(&self) -> u64 {
        // `add` keeps the sum within 64 bits.
        self.lines.iter().map(|line| line.bytes).sum()
    }

    /// Bytes that may be held at most.
    pub fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }

    /// Whether the lines fit under the limit.
    ///
    /// # Errors
    /// [`PlanError::TooLarge`] with the largest line.
    pub fn check(&self) -> Result<(), PlanError> {
        let planned_bytes = self.planned_bytes();
        match self.lines.iter().max_by_key(|line| line.bytes) {
            Some(largest) if planned_bytes > self.limit_bytes => Err(PlanError::TooLarge {
                ledger: self.ledger.clone(),
                planned_bytes,
                limit_bytes: self.limit_bytes,
                largest: largest.consumer,
                largest_bytes: largest.bytes,
            }),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Plan {
    /// One row a line: consumer, arithmetic, bytes, GiB; then the sum, the
    /// limit, and what is left or lacking.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rows: Vec<(&str, String, u64)> = self
            .lines
            .iter()
            .map(|line| (line.consumer.0, arithmetic(&line.factors), line.bytes))
            .collect();
        let planned_bytes = self.planned_bytes();
        let (rest, rest_bytes) = match self.limit_bytes.checked_sub(planned_bytes) {
            Some(left) => ("left", left),
            None => ("lacking", planned_bytes - self.limit_bytes),
        };
        rows.push(("planned", String::new(), planned_bytes));
        rows.push(("limit", String::new(), self.limit_bytes));
        rows.push((rest, String::new(), rest_bytes));

        let name_width = rows.iter().map(|row| row.0.len()).max().unwrap_or(0);
        let sum_width = rows.iter().map(|row| row.1.len()).max().unwrap_or(0);
        let bytes_width = rows
            .iter()
            .map(|row| grouped(row.2).len())
            .max()
            .unwrap_or(0);
        writeln!(f, "{}", self.ledger)?;
        for (name, sum, bytes) in rows {
            let gibibytes = bytes as f64 / f64::from(1 << 30);
            writeln!(
                f,
                "  {name:name_width$}  {sum:sum_width$}  {:>bytes_width$} B  {gibibytes:>9.3} GiB",
                grouped(bytes)
            )?;
        }
        Ok(())
    }
}

fn arithmetic(factors: &[Factor]) -> String {
    let parts: Vec<String> = factors
        .iter()
        .map(|factor| format!("{} {}", grouped(factor.count), factor.unit))
        .collect();
    parts.join(" x ")
}

/// Decimal digits in groups of three.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

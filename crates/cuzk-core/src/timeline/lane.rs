//! Where a span lies: the rows of a waterfall, from waiting to the device.

use std::fmt;
use std::str::FromStr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// What was busy, or who waited for what. The order is the order in which lanes are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lane {
    /// `queue`: parts wait for their turn.
    Queue,
    /// `memory`: parts wait for columns and bytes.
    Memory,
    /// `keys`: keys are opened and checked.
    Keys,
    /// `synthesis`: parts are synthesised, each from its first thread's begin to its last
    /// one's end.
    Synthesis,
    /// `core N`: one of the threads that synthesise. Numbers are given anew with every
    /// piece of work, the lowest free one first, so that there are as many as work at once.
    Core(usize),
    /// `copy`: memory is page-locked for a proof.
    Copy,
    /// `ready`: parts are synthesised and no backend has a place for them.
    Ready,
    /// `cpu WORK` or `device N WORK`: what a backend does.
    Unit(Unit, Work),
    /// `host`: threads of the host work for a unit that is not named.
    Host,
    /// `check`: proofs are verified, and what does not verify is explained.
    Check,
    /// `failed`: a backend had a part and gave no proof for it.
    Failed,
}

/// What computes proofs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Unit {
    /// `cpu`: the processor.
    Cpu,
    /// `device N`: a device, by its number.
    Device(usize),
}

/// What a unit does for a part, each beside the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Work {
    /// `wait`: the part has been handed over and nothing is done for it yet.
    Wait,
    /// `upload`: its columns are copied.
    Upload,
    /// `key`: its key is brought.
    Key,
    /// `compute`: kernels run. What a unit computes at the same time counts once.
    Compute,
    /// `host`: threads of the host add up and assemble.
    Host,
}

impl Work {
    const ALL: [Self; 5] = [
        Self::Wait,
        Self::Upload,
        Self::Key,
        Self::Compute,
        Self::Host,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Wait => "wait",
            Self::Upload => "upload",
            Self::Key => "key",
            Self::Compute => "compute",
            Self::Host => "host",
        }
    }
}

impl Lane {
    const PLAIN: [(Self, &'static str); 9] = [
        (Self::Queue, "queue"),
        (Self::Memory, "memory"),
        (Self::Keys, "keys"),
        (Self::Synthesis, "synthesis"),
        (Self::Copy, "copy"),
        (Self::Ready, "ready"),
        (Self::Host, "host"),
        (Self::Check, "check"),
        (Self::Failed, "failed"),
    ];

    /// The lane of one of the engine's own stages.
    pub(super) fn of_stage(stage: &str) -> Self {
        match stage {
            "queue" => Self::Queue,
            "reserve" => Self::Memory,
            "key" | "points" => Self::Keys,
            "pin" => Self::Copy,
            "ready" => Self::Ready,
            "synthesis" | "survey" => Self::Synthesis,
            "prove" => Self::Failed,
            _ => Self::Check,
        }
    }

    /// Whether spans here are waits and not work.
    pub fn is_wait(self) -> bool {
        matches!(
            self,
            Self::Queue | Self::Memory | Self::Ready | Self::Unit(_, Work::Wait)
        )
    }

    /// Whether spans here are a backend's work: what clients are told as proving.
    pub fn is_proving(self) -> bool {
        match self {
            Self::Unit(_, work) => work != Work::Wait,
            other => other == Self::Failed,
        }
    }

    /// Whether what lies here takes turns: a unit copies, brings and computes one thing
    /// after the other.
    pub(super) fn is_exclusive(self) -> bool {
        matches!(
            self,
            Self::Unit(_, Work::Upload | Work::Key | Work::Compute)
        )
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("cpu"),
            Self::Device(ordinal) => write!(f, "device {ordinal}"),
        }
    }
}

impl fmt::Display for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Core(number) => write!(f, "core {number}"),
            Self::Unit(unit, work) => write!(f, "{unit} {}", work.name()),
            plain => {
                let known = Self::PLAIN.iter().find(|(lane, _)| lane == plain);
                f.write_str(known.map_or("", |(_, name)| name))
            }
        }
    }
}

impl FromStr for Lane {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let words: Vec<&str> = text.split(' ').collect();
        let number = |word: &str| word.parse::<usize>().ok();
        let work = |word: &str| Work::ALL.into_iter().find(|work| work.name() == word);
        let plain = Self::PLAIN.iter().find(|(_, name)| *name == text);
        let lane = match words[..] {
            ["core", count] => number(count).map(Self::Core),
            ["cpu", what] => work(what).map(|work| Self::Unit(Unit::Cpu, work)),
            ["device", ordinal, what] => number(ordinal)
                .zip(work(what))
                .map(|(ordinal, work)| Self::Unit(Unit::Device(ordinal), work)),
            _ => plain.map(|(lane, _)| *lane),
        };
        lane.ok_or_else(|| {
            let plain = Self::PLAIN.map(|(_, name)| name).join(", ");
            let works = Work::ALL.map(Work::name).join(", ");
            format!(
                "no lane {text:?}: want {plain}, \"core N\", or \"cpu\" or \"device N\" with one of {works}"
            )
        })
    }
}

impl Serialize for Lane {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Lane {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_are_read_as_they_are_written() {
        let units = [Unit::Cpu, Unit::Device(0), Unit::Device(17)];
        let works = units
            .into_iter()
            .flat_map(|unit| Work::ALL.map(|work| Lane::Unit(unit, work)));
        let plain = Lane::PLAIN.map(|(lane, _)| lane);
        for lane in works.chain(plain).chain([0, 3].map(Lane::Core)) {
            assert_eq!(lane.to_string().parse(), Ok(lane));
        }
        let of_device = Lane::Unit(Unit::Device(0), Work::Compute);
        assert_eq!(of_device.to_string(), "device 0 compute");
        for wrong in [
            "",
            "device",
            "device 0",
            "device x key",
            "gpu 0 key",
            "core -1",
            "Queue",
        ] {
            let error = wrong.parse::<Lane>().expect_err("no lane");
            assert!(
                error.starts_with(&format!("no lane {wrong:?}: want queue, ")),
                "{error}"
            );
        }
    }
}

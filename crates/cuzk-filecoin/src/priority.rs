//! How urgent a request is: the engine's priorities, by kind and by the wire's names.

use cuzk_core::schedule::Priority;

use crate::sizes::ProofKind;

const ALL: [Priority; 4] = [
    Priority::Low,
    Priority::Normal,
    Priority::High,
    Priority::Critical,
];

impl ProofKind {
    /// The priority of a request of this kind whose client named none.
    pub const fn default_priority(self) -> Priority {
        match self {
            Self::WinningPost => Priority::Critical,
            Self::WindowPost => Priority::High,
            Self::PoRep | Self::SnapDeals => Priority::Normal,
        }
    }
}

/// The name on the wire, without its prefix: `NORMAL`.
pub(crate) const fn wire_name(priority: Priority) -> &'static str {
    match priority {
        Priority::Low => "LOW",
        Priority::Normal => "NORMAL",
        Priority::High => "HIGH",
        Priority::Critical => "CRITICAL",
    }
}

/// The priority that has this name on the wire.
pub(crate) fn from_wire_name(name: &str) -> Option<Priority> {
    ALL.into_iter()
        .find(|&priority| wire_name(priority) == name)
}

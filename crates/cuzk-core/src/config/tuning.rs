//! Every optimisation is a switch here, so that one binary runs every ablation.

/// The switches. Each default is what measurements say, or, until there is one,
/// the plainer way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// Take c as the product of a and b: six transforms instead of seven, and no
    /// evaluation of C.
    pub c_from_ab: bool,
    /// How the columns of a part get their length.
    pub sizing: Sizing,
    /// How the columns of a part whose circuit repeats are filled.
    pub synthesis: Synthesis,
    /// Where the points of a key are kept between proofs.
    pub key_tier: KeyTier,
    /// When the parts of jobs start.
    pub dispatch: Dispatch,
    /// How columns reach page-locked memory.
    pub placement: Placement,
    /// What happens where page-locked memory is refused.
    pub placement_refused: PlacementRefused,
    /// Whether the memory of columns is asked on huge pages.
    pub huge_pages: HugePages,
    /// Where proofs are made on a device, begin one when its first column is there, and not
    /// when all are.
    pub early_start: bool,
    /// Bits of the windows of multiplications on a device; by their size if `None`.
    pub window_bits: Option<u32>,
    /// Where proofs are made on a device, sort scalars into zeros, ones and the rest on
    /// the processor.
    pub split_on_cpu: bool,
    /// Where proofs are made on a device, make the sum over `b_g2` on the processor. The
    /// section of a key that stays on the device is brought there all the same.
    pub b_g2_on_cpu: bool,
    /// Proofs of one key that go through it together where a device has it streamed, each
    /// piece brought once for all of them; 1 for each alone. Twice as many `device.slots`
    /// let the next ones upload meanwhile.
    pub key_batch: usize,
    /// Make every proof on the device and on the processor, and compare what they
    /// compute step by step.
    pub twin: bool,
}

/// Where proofs are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DevicePolicy {
    /// On the processor.
    Cpu,
    /// On a device; where there is none, on the processor, with a warning.
    PreferGpu,
    /// On a device, or not at all.
    RequireGpu,
}

/// How the columns of a part reach page-locked memory, from which a device reads at
/// full speed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// `direct` for a backend that uploads, which keeps the rate of a plain page-locked
    /// copy where others lose a fifth to nine tenths of it
    /// (`bench/records/h200-16c/placements.json`); `heap` for one that does not.
    Auto,
    /// They do not: a device reads ordinary memory.
    Heap,
    /// Ordinary memory is page-locked for the one proof, and unlocked when the columns
    /// are read. Known to cost more than it saves, and kept to be measured.
    Register,
    /// Ordinary memory is copied through a ring of page-locked chunks, beside the
    /// upload.
    Staged,
    /// They are synthesised into page-locked buffers of a pool.
    Direct,
}

/// What happens where page-locked memory is refused: its share of the limit is in
/// use, there is no driver, or the driver refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlacementRefused {
    /// A part waits for what others use. What no wait can bring is an error.
    Wait,
    /// A part takes ordinary memory, and its reply, a warning and a counter say so.
    FallBack,
    /// It is an error, also where a wait would bring it.
    Fail,
}

/// Whether the memory of columns is asked on huge pages. That is advice to the kernel, which
/// gives ordinary ones where it has no others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HugePages {
    /// Page-locked memory is; of ordinary memory the allocator and the kernel decide.
    Auto,
    /// All of it, ordinary memory mapped buffer by buffer.
    Always,
    /// None of it, mapped in the same way, also where the kernel would give huge pages by
    /// itself.
    Never,
}

/// How the columns of a part get their length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sizing {
    /// From the shape's hint, or before there is one from the key's counts: columns
    /// are taken once and written in place.
    Exact,
    /// Columns grow on the heap as the circuit writes and are copied afterwards: the
    /// way without hints, kept to measure what hints are worth. Circuits that repeat are
    /// synthesised whole then.
    Growing,
}

/// How the columns of a part whose circuit repeats are filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Synthesis {
    /// In segments, by several threads, from values of variables and stored rows, once
    /// the circuit is checked to repeat: less than half of the time of the whole on one
    /// core (`bench/records/epyc-2c/synth.json`).
    Segments,
    /// The whole circuit by one thread, every linear combination built and evaluated: the
    /// way of circuits that do not repeat.
    Whole,
}

/// When the parts of jobs start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dispatch {
    /// When their turn on a device is foreseeable: no more parts are under way to the
    /// devices than those finish in the time of a synthesis, as measured, and one.
    Reactive,
    /// As many at once as memory allows: they finish and copy at the same time. Known to
    /// leave devices idle in between, and kept to be measured.
    Burst,
}

/// Where the points of a key are kept between proofs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyTier {
    /// Resident as long as the points of all keys take at most a quarter of the budget,
    /// otherwise in the file.
    Auto,
    /// In memory, decoded, counted in the budget; an error if there is no room.
    Resident,
    /// In the file, from which each section is read and decoded when a proof uses it.
    File,
}

/// The words of a configuration value: how it is read and shown.
macro_rules! words {
    ($type:ty { $($variant:ident = $word:literal),+ }) => {
        impl $type {
            pub(super) fn parse(word: &str) -> Result<Self, String> {
                match word {
                    $($word => Ok(Self::$variant),)+
                    other => {
                        let words = [$($word),+].join(", ");
                        Err(format!("want one of {words}, have {other:?}"))
                    }
                }
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self {
                    $(Self::$variant => f.write_str($word),)+
                }
            }
        }
    };
}
pub(super) use words;

words!(Dispatch { Reactive = "reactive", Burst = "burst" });
words!(Sizing { Exact = "exact", Growing = "growing" });
words!(Synthesis { Segments = "segments", Whole = "whole" });
words!(Placement {
    Auto = "auto",
    Heap = "heap",
    Register = "register",
    Staged = "staged",
    Direct = "direct"
});
words!(DevicePolicy {
    Cpu = "cpu",
    PreferGpu = "prefer-gpu",
    RequireGpu = "require-gpu"
});
words!(PlacementRefused { Wait = "wait", FallBack = "fall-back", Fail = "fail" });
words!(HugePages { Auto = "auto", Always = "always", Never = "never" });
words!(KeyTier { Auto = "auto", Resident = "resident", File = "file" });

//! Configuration: one file, overrides on the command line, and for every value
//! where it came from. It is parsed once into checked types; nothing below reads a
//! file or the environment.

mod acts;
mod device;
mod keys;
mod load;
mod serve;
mod tuning;
mod value;
mod watchdog;

use std::path::PathBuf;
use std::time::Duration;

use cuzk_budget::LimitRule;

pub use acts::{Acts, WithoutEffect};
pub use device::{DeviceChoice, DeviceName};
pub use keys::KEYS;
pub use load::{ConfigError, Loaded, Origin, load};
pub use serve::{Preload, ServeConfig};
pub use tuning::{
    DevicePolicy, Dispatch, HugePages, KeyTier, Placement, PlacementRefused, Sizing, Synthesis,
    Tuning,
};
pub use value::Value;
pub use watchdog::Watchdog;

/// How much of a key file is checked when it is opened: `counts`, `curve` and `subgroup`
/// are [`cuzk_gpu::PointCheck`]'s `None`, `OnCurve` and `Subgroup`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PointCheck {
    /// Section counts against the file's size only.
    Counts,
    /// Also that every point is well encoded and on the curve.
    Curve,
    /// Also that every point is in the prime-order subgroup; slow.
    Subgroup,
}

tuning::words!(PointCheck { Counts = "counts", Curve = "curve", Subgroup = "subgroup" });

/// On which of the host's memory nodes page-locked memory is to lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numa {
    /// On that of the devices, by turns where they have several. On a host of one node, or
    /// one that does not show those of its devices, where the kernel puts it.
    Auto,
    /// Where the kernel puts it.
    Off,
}

tuning::words!(Numa { Auto = "auto", Off = "off" });

/// The effective configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Bytes that columns, keys and working memory may take together.
    pub memory_limit: LimitRule,
    /// Bytes of these that may be page-locked; a share is a share of the limit, and
    /// automatic is half of it.
    pub page_locked_limit: LimitRule,
    /// On which of the host's memory nodes the page-locked bytes are to lie.
    pub numa: Numa,
    /// Threads for arithmetic; 0 takes one a core.
    pub threads: usize,
    /// Bytes of the limit that only parts of the highest priority are given; automatic is
    /// what a part takes of the largest urgent circuit that is warmed.
    pub critical_reserve: LimitRule,
    /// Parts that may be synthesised at the same time; `None` derives it from the threads
    /// and from how a circuit is synthesised.
    pub synthesis_max: Option<usize>,
    /// Parts that may have been started and not yet proved; `None` derives it from the
    /// slots of the devices and `synthesis_max`.
    pub parts_in_flight_max: Option<usize>,
    /// How long later jobs of a higher priority may overtake a job before it moves up;
    /// `None` is for ever.
    pub overtaken_max: Option<Duration>,
    /// How long stages may take.
    pub watchdog: Watchdog,
    /// Jobs that may wait or run at the same time.
    pub jobs_max: usize,
    /// Spans that the engine keeps of all jobs.
    pub spans_max: usize,
    /// Where proofs are made.
    pub device_policy: DevicePolicy,
    /// The devices that proofs are made on.
    pub devices: DeviceChoice,
    /// Bytes of each device's memory to take at the start; automatic is all that is free.
    pub device_memory_limit: LimitRule,
    /// Proofs that have a place on each device at the same time, 1 to 8.
    pub device_slots: usize,
    /// Bytes of page-locked memory for keys that have no room on a device, for each.
    pub device_host_keys_bytes: u64,
    /// Directory of the key files.
    pub params_directory: PathBuf,
    /// How much of a key is checked when it is opened.
    pub params_check: PointCheck,
    /// Whether a key that the published list names must have the listed digest.
    pub params_digest: bool,
    /// Whether generated, insecure keys are accepted.
    pub allow_test_params: bool,
    /// File of the capacity hints; `None` keeps them in memory.
    pub hints_file: Option<PathBuf>,
    /// How the engine is served.
    pub serve: ServeConfig,
    /// The switches.
    pub tuning: Tuning,
}

impl Config {
    /// The defaults, with keys in `params_directory`.
    pub fn new(params_directory: PathBuf) -> Self {
        Self {
            memory_limit: LimitRule::Automatic,
            page_locked_limit: LimitRule::Automatic,
            numa: Numa::Auto,
            threads: 0,
            critical_reserve: LimitRule::Automatic,
            synthesis_max: None,
            parts_in_flight_max: None,
            overtaken_max: Some(Duration::from_secs(1800)),
            watchdog: Watchdog::new(),
            jobs_max: 64,
            spans_max: 1 << 16,
            device_policy: DevicePolicy::PreferGpu,
            devices: DeviceChoice::first(),
            device_memory_limit: LimitRule::Automatic,
            device_slots: 2,
            device_host_keys_bytes: 0,
            params_directory,
            params_check: PointCheck::Curve,
            params_digest: true,
            allow_test_params: false,
            hints_file: None,
            serve: ServeConfig::new(),
            tuning: Tuning {
                c_from_ab: true,
                sizing: Sizing::Exact,
                synthesis: Synthesis::Segments,
                key_tier: KeyTier::Auto,
                dispatch: Dispatch::Reactive,
                placement: Placement::Auto,
                placement_refused: PlacementRefused::Wait,
                huge_pages: HugePages::Auto,
                key_batch: 1,
                early_start: true,
                window_bits: None,
                split_on_cpu: false,
                b_g2_on_cpu: false,
                twin: false,
            },
        }
    }
}

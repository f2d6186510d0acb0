//! The table of configuration keys: the file format is this table.

use cuzk_gpu::{DEVICE_SLOTS_MAX, DEVICE_WINDOW_BITS};

use super::acts::Acts;
use super::device::DeviceChoice;
use super::serve::{MESSAGE_BYTES_LIMIT, Preload};
use super::tuning::{
    DevicePolicy, Dispatch, HugePages, KeyTier, Placement, PlacementRefused, Sizing, Synthesis,
};
use super::value::{
    at_least_one, auto_or_parts, seconds, seconds_max, show_address, show_auto, show_limit,
    show_seconds_max, show_text,
};
use super::{Config, Numa, PointCheck, Value};

/// One configuration key.
pub struct Key {
    /// Section and name (`memory.limit`).
    pub name: &'static str,
    /// What it does, in one line.
    pub what: &'static str,
    /// Where it acts.
    pub acts: Acts,
    /// Sets it from a value; the error says what was wanted.
    pub(super) set: fn(&mut Config, &Value) -> Result<(), String>,
    /// Its value, as the file would have it.
    pub(super) show: fn(&Config) -> String,
}

/// More threads than any machine has cores: a typing error.
const THREADS_MAX: usize = 4096;

/// Spans that take less than half a gigabyte.
const SPANS_LIMIT: usize = 1 << 22;

/// Every key, in the order of the file.
pub const KEYS: &[Key] = &[
    Key {
        name: "memory.limit",
        what: "bytes for columns, keys and working memory: \"auto\", \"80%\" or \"16GiB\"",
        acts: Acts::Everywhere,
        set: |config, value| {
            config.memory_limit = value.limit()?;
            Ok(())
        },
        show: |config| show_limit(config.memory_limit),
    },
    Key {
        name: "memory.page_locked",
        what: "bytes of these that may be page-locked: \"auto\" (half), a share of the limit or bytes",
        acts: Acts::OnDevices,
        set: |config, value| {
            config.page_locked_limit = value.limit()?;
            Ok(())
        },
        show: |config| show_limit(config.page_locked_limit),
    },
    Key {
        name: "memory.numa",
        what: "where page-locked memory lies on a host of several memory nodes: auto (on those of the devices) or off",
        acts: Acts::OnDevices,
        set: |config, value| {
            config.numa = Numa::parse(value.word()?)?;
            Ok(())
        },
        show: |config| format!("{:?}", config.numa.to_string()),
    },
    Key {
        name: "memory.critical_reserve",
        what: "bytes of the limit for parts of the highest priority alone: \"auto\" (a part of the largest urgent \
               circuit in serve.warm), a share or bytes",
        acts: Acts::Everywhere,
        set: |config, value| {
            config.critical_reserve = value.limit()?;
            Ok(())
        },
        show: |config| show_limit(config.critical_reserve),
    },
    Key {
        name: "engine.threads",
        what: "threads for arithmetic, 0 for one a core",
        acts: Acts::Everywhere,
        set: |config, value| {
            config.threads = match value.count()? {
                count if count > THREADS_MAX => {
                    return Err(format!("want at most {THREADS_MAX}, have {count}"));
                }
                count => count,
            };
            Ok(())
        },
        show: |config| config.threads.to_string(),
    },
    Key {
        name: "engine.synthesis_max",
        what: "parts synthesised at the same time: \"auto\" or a count",
        acts: Acts::Everywhere,
        set: |config, value| {
            config.synthesis_max = auto_or_parts(value)?;
            Ok(())
        },
        show: |config| show_auto(config.synthesis_max),
    },
    Key {
        name: "engine.parts_in_flight_max",
        what: "parts started and not yet proved: \"auto\" or a count",
        acts: Acts::Everywhere,
        set: |config, value| {
            config.parts_in_flight_max = auto_or_parts(value)?;
            Ok(())
        },
        show: |config| show_auto(config.parts_in_flight_max),
    },
    Key {
        name: "engine.overtaken_seconds_max",
        what: "how long jobs of a higher priority may overtake a job before it moves up one class; 0 for ever",
        acts: Acts::Everywhere,
        set: |config, value| {
            config.overtaken_max = seconds_max(value)?;
            Ok(())
        },
        show: |config| show_seconds_max(config.overtaken_max),
    },
    Key {
        name: "engine.jobs_max",
        what: "jobs waiting or running; one more is refused",
        acts: Acts::Everywhere,
        set: |config, value| {
            config.jobs_max = at_least_one(value)?;
            Ok(())
        },
        show: |config| config.jobs_max.to_string(),
    },
    Key {
        name: "engine.spans_max",
        what: "spans of the timeline that are kept, about 110 bytes each; older ones are dropped and counted",
        acts: Acts::Everywhere,
        set: |config, value| {
            config.spans_max = match value.count()? {
                count @ 1..=SPANS_LIMIT => count,
                count => return Err(format!("want 1 to {SPANS_LIMIT}, have {count}")),
            };
            Ok(())
        },
        show: |config| config.spans_max.to_string(),
    },
    Key {
        name: "watchdog.synthesis_seconds_max",
        what: "how long a synthesis may take before its job is given up; 0 for ever",
        acts: Acts::Everywhere,
        set: |config, value| {
            config.watchdog.synthesis_max = seconds_max(value)?;
            Ok(())
        },
        show: |config| show_seconds_max(config.watchdog.synthesis_max),
    },
    Key {
        name: "watchdog.prove_seconds_max",
        what: "how long a device may have a proof before it is put out of service; 0 for ever",
        acts: Acts::Everywhere,
        set: |config, value| {
            config.watchdog.prove_max = seconds_max(value)?;
            Ok(())
        },
        show: |config| show_seconds_max(config.watchdog.prove_max),
    },
    Key {
        name: "watchdog.other_seconds_max",
        what: "the same for loading a key, verifying, explaining and completing; 0 for ever",
        acts: Acts::Everywhere,
        set: |config, value| {
            config.watchdog.other_max = seconds_max(value)?;
            Ok(())
        },
        show: |config| show_seconds_max(config.watchdog.other_max),
    },
    Key {
        name: "watchdog.told_after_seconds",
        what: "after how long a warning says who waits for memory, or which stages keep an engine \
               from ending; 0 for never",
        acts: Acts::Everywhere,
        set: |config, value| {
            config.watchdog.told_after = seconds_max(value)?;
            Ok(())
        },
        show: |config| show_seconds_max(config.watchdog.told_after),
    },
    Key {
        name: "device.policy",
        what: "where proofs are made: cpu, prefer-gpu or require-gpu",
        acts: Acts::Everywhere,
        set: |config, value| {
            config.device_policy = DevicePolicy::parse(value.word()?)?;
            Ok(())
        },
        show: |config| format!("{:?}", config.device_policy.to_string()),
    },
    Key {
        name: "device.index",
        what: "devices that prove, of those that CUDA_VISIBLE_DEVICES leaves: a number, the beginning of a \
               UUID (\"GPU-2591\"), or several (\"0,1\")",
        acts: Acts::OnDevices,
        set: |config, value| {
            config.devices = DeviceChoice::read(value)?;
            Ok(())
        },
        show: |config| config.devices.show(),
    },
    Key {
        name: "device.memory",
        what: "bytes of each device's memory to take at the start: \"auto\" (all that is free), a share or bytes",
        acts: Acts::OnDevices,
        set: |config, value| {
            config.device_memory_limit = value.limit()?;
            Ok(())
        },
        show: |config| show_limit(config.device_memory_limit),
    },
    Key {
        name: "device.slots",
        what: "proofs with a place on each device at the same time, 1 to 8: while one is computed, the next is uploaded",
        acts: Acts::OnDevices,
        set: |config, value| {
            config.device_slots = match value.count()? {
                count @ 1..=DEVICE_SLOTS_MAX => count,
                count => return Err(format!("want 1 to {DEVICE_SLOTS_MAX}, have {count}")),
            };
            Ok(())
        },
        show: |config| config.device_slots.to_string(),
    },
    Key {
        name: "device.host_keys",
        what: "bytes of page-locked memory for decoded keys that have no room on a device, for each; 0 for none",
        acts: Acts::OnDevices,
        set: |config, value| {
            config.device_host_keys_bytes = value.bytes()? as u64;
            Ok(())
        },
        show: |config| config.device_host_keys_bytes.to_string(),
    },
    Key {
        name: "params.directory",
        what: "directory of the key files",
        acts: Acts::Everywhere,
        set: |config, value| {
            config.params_directory = value.path()?;
            Ok(())
        },
        show: |config| show_text(&config.params_directory.display().to_string()),
    },
    Key {
        name: "params.check",
        what: "what is checked of a key when it is opened: counts, curve or subgroup",
        acts: Acts::Everywhere,
        set: |config, value| {
            config.params_check = PointCheck::parse(value.word()?)?;
            Ok(())
        },
        show: |config| format!("{:?}", config.params_check.to_string()),
    },
    Key {
        name: "params.digest",
        what: "whether a key on the published list must have the published digest",
        acts: Acts::Everywhere,
        set: |config, value| {
            config.params_digest = value.bool()?;
            Ok(())
        },
        show: |config| config.params_digest.to_string(),
    },
    Key {
        name: "params.allow_test",
        what: "whether generated, insecure keys are accepted",
        acts: Acts::Everywhere,
        set: |config, value| {
            config.allow_test_params = value.bool()?;
            Ok(())
        },
        show: |config| config.allow_test_params.to_string(),
    },
    Key {
        name: "hints.file",
        what: "file of the capacity hints; \"\" keeps them in memory",
        acts: Acts::Everywhere,
        set: |config, value| {
            let word = value.word()?;
            config.hints_file = (!word.is_empty()).then(|| word.into());
            Ok(())
        },
        show: |config| {
            let path = config
                .hints_file
                .as_ref()
                .map(|path| path.display().to_string());
            show_text(&path.unwrap_or_default())
        },
    },
    Key {
        name: "serve.listen",
        what: "address for requests over TCP, unencrypted; \"\" for none",
        acts: Acts::Everywhere,
        set: |config, value| {
            config.serve.listen = value.address()?;
            Ok(())
        },
        show: |config| show_address(config.serve.listen),
    },
    Key {
        name: "serve.socket",
        what: "unix socket for requests; \"\" for none",
        acts: Acts::Everywhere,
        set: |config, value| {
            let word = value.word()?;
            config.serve.socket = (!word.is_empty()).then(|| word.into());
            Ok(())
        },
        show: |config| {
            let path = config.serve.socket.as_ref();
            let path = path.map(|path| path.display().to_string());
            format!("{:?}", path.unwrap_or_default())
        },
    },
    Key {
        name: "serve.socket_mode",
        what: "permission bits of the socket, octal in quotes",
        acts: Acts::Everywhere,
        set: |config, value| {
            config.serve.socket_mode = value.mode()?;
            Ok(())
        },
        show: |config| format!("\"{:04o}\"", config.serve.socket_mode),
    },
    Key {
        name: "serve.metrics_listen",
        what: "address of the metrics page; \"\" for none",
        acts: Acts::Everywhere,
        set: |config, value| {
            config.serve.metrics_listen = value.address()?;
            Ok(())
        },
        show: |config| show_address(config.serve.metrics_listen),
    },
    Key {
        name: "serve.preload",
        what: "keys loaded before the server is ready: present or none",
        acts: Acts::Everywhere,
        set: |config, value| {
            config.serve.preload = Preload::parse(value.word()?)?;
            Ok(())
        },
        show: |config| format!("{:?}", config.serve.preload.to_string()),
    },
    Key {
        name: "serve.warm",
        what: "circuits whose columns are allocated before the server is ready (\"porep-32g,snap-32g\")",
        acts: Acts::Everywhere,
        set: |config, value| {
            let ids = value.word()?.split(',').map(str::trim);
            let mut warm: Vec<String> = Vec::new();
            for id in ids.filter(|id| !id.is_empty()) {
                // A circuit is warmed once, however often it is named.
                if !warm.iter().any(|known| known == id) {
                    warm.push(id.to_owned());
                }
            }
            config.serve.warm = warm;
            Ok(())
        },
        show: |config| show_text(&config.serve.warm.join(",")),
    },
    Key {
        name: "serve.message_bytes_max",
        what: "bytes of the longest request; a longer one is refused unread",
        acts: Acts::Everywhere,
        set: |config, value| {
            config.serve.message_bytes_max = match value.bytes()? {
                bytes @ 1..=MESSAGE_BYTES_LIMIT => bytes,
                bytes => return Err(format!("want 1 to {MESSAGE_BYTES_LIMIT}, have {bytes}")),
            };
            Ok(())
        },
        show: |config| config.serve.message_bytes_max.to_string(),
    },
    Key {
        name: "serve.requests_bytes_max",
        what: "bytes of all requests that are read, wait or run; one more is refused",
        acts: Acts::Everywhere,
        set: |config, value| {
            config.serve.requests_bytes_max = match value.bytes()? {
                0 => return Err("want at least 1, have 0".to_owned()),
                bytes => bytes as u64,
            };
            Ok(())
        },
        show: |config| config.serve.requests_bytes_max.to_string(),
    },
    Key {
        name: "serve.results_kept_max",
        what: "proofs of finished jobs that are kept, and as many ends of jobs without one",
        acts: Acts::Everywhere,
        set: |config, value| {
            config.serve.results_kept_max = at_least_one(value)?;
            Ok(())
        },
        show: |config| config.serve.results_kept_max.to_string(),
    },
    Key {
        name: "serve.results_kept_seconds",
        what: "how long the end of a finished job is kept; with 0 those who wait for it have it, and nobody later",
        acts: Acts::Everywhere,
        set: |config, value| {
            config.serve.results_kept = seconds(value)?;
            Ok(())
        },
        show: |config| config.serve.results_kept.as_secs().to_string(),
    },
    Key {
        name: "serve.drain_seconds",
        what: "time for running jobs to finish when the server is told to end",
        acts: Acts::Everywhere,
        set: |config, value| {
            config.serve.drain_max = seconds(value)?;
            Ok(())
        },
        show: |config| config.serve.drain_max.as_secs().to_string(),
    },
    Key {
        name: "tuning.c_from_ab",
        what: "take c as a times b: six transforms instead of seven",
        acts: Acts::Everywhere,
        set: |config, value| {
            config.tuning.c_from_ab = value.bool()?;
            Ok(())
        },
        show: |config| config.tuning.c_from_ab.to_string(),
    },
    Key {
        name: "tuning.sizing",
        what: "how columns get their length: exact or growing",
        acts: Acts::Everywhere,
        set: |config, value| {
            config.tuning.sizing = Sizing::parse(value.word()?)?;
            Ok(())
        },
        show: |config| format!("{:?}", config.tuning.sizing.to_string()),
    },
    Key {
        name: "tuning.synthesis",
        what: "how circuits that repeat are synthesised: segments or whole",
        acts: Acts::Everywhere,
        set: |config, value| {
            config.tuning.synthesis = Synthesis::parse(value.word()?)?;
            Ok(())
        },
        show: |config| format!("{:?}", config.tuning.synthesis.to_string()),
    },
    Key {
        name: "tuning.key_tier",
        what: "where key points are kept between proofs: auto (in memory, up to a quarter of it), resident or file",
        acts: Acts::OnProcessor,
        set: |config, value| {
            config.tuning.key_tier = KeyTier::parse(value.word()?)?;
            Ok(())
        },
        show: |config| format!("{:?}", config.tuning.key_tier.to_string()),
    },
    Key {
        name: "tuning.dispatch",
        what: "when parts start: reactive (when a device will soon have a place for them) or burst",
        acts: Acts::Everywhere,
        set: |config, value| {
            config.tuning.dispatch = Dispatch::parse(value.word()?)?;
            Ok(())
        },
        show: |config| format!("{:?}", config.tuning.dispatch.to_string()),
    },
    Key {
        name: "tuning.placement",
        what: "how columns reach page-locked memory: auto, heap, register, staged or direct",
        acts: Acts::Everywhere,
        set: |config, value| {
            config.tuning.placement = Placement::parse(value.word()?)?;
            Ok(())
        },
        show: |config| format!("{:?}", config.tuning.placement.to_string()),
    },
    Key {
        name: "tuning.placement_refused",
        what: "where page-locked memory is refused: wait, fall-back or fail",
        acts: Acts::PageLocked,
        set: |config, value| {
            config.tuning.placement_refused = PlacementRefused::parse(value.word()?)?;
            Ok(())
        },
        show: |config| format!("{:?}", config.tuning.placement_refused.to_string()),
    },
    Key {
        name: "tuning.huge_pages",
        what: "whether columns lie in huge pages: auto (page-locked ones do, where there are any), always or never",
        acts: Acts::Everywhere,
        set: |config, value| {
            config.tuning.huge_pages = HugePages::parse(value.word()?)?;
            Ok(())
        },
        show: |config| format!("{:?}", config.tuning.huge_pages.to_string()),
    },
    Key {
        name: "tuning.key_batch",
        what: "proofs of one key that share each pass of it where it is streamed, 1 to 8; wants twice as many slots",
        acts: Acts::OnDevices,
        set: |config, value| {
            config.tuning.key_batch = match value.count()? {
                count @ 1..=DEVICE_SLOTS_MAX => count,
                count => return Err(format!("want 1 to {DEVICE_SLOTS_MAX}, have {count}")),
            };
            Ok(())
        },
        show: |config| config.tuning.key_batch.to_string(),
    },
    Key {
        name: "tuning.early_start",
        what: "on a device, begin a proof when its first column is there, not when all are",
        acts: Acts::OnDevices,
        set: |config, value| {
            config.tuning.early_start = value.bool()?;
            Ok(())
        },
        show: |config| config.tuning.early_start.to_string(),
    },
    Key {
        name: "tuning.window_bits",
        what: "bits of the windows of a device's multiplications: \"auto\" (by their size) or 10 to 20",
        acts: Acts::OnDevices,
        set: |config, value| {
            let wanted = auto_or_parts(value)?;
            let bits = wanted.and_then(|bits| u32::try_from(bits).ok());
            let bits = bits.filter(|bits| DEVICE_WINDOW_BITS.contains(bits));
            if let (Some(wanted), None) = (wanted, bits) {
                return Err(format!("want \"auto\" or 10 to 20, have {wanted}"));
            }
            config.tuning.window_bits = bits;
            Ok(())
        },
        show: |config| show_auto(config.tuning.window_bits.map(|bits| bits as usize)),
    },
    Key {
        name: "tuning.split_on_cpu",
        what: "where proofs are made on a device, sort scalars into zeros, ones and the rest on the processor",
        acts: Acts::OnDevices,
        set: |config, value| {
            config.tuning.split_on_cpu = value.bool()?;
            Ok(())
        },
        show: |config| config.tuning.split_on_cpu.to_string(),
    },
    Key {
        name: "tuning.b_g2_on_cpu",
        what: "where proofs are made on a device, make the sum over the key's b_g2 on the processor",
        acts: Acts::OnDevices,
        set: |config, value| {
            config.tuning.b_g2_on_cpu = value.bool()?;
            Ok(())
        },
        show: |config| config.tuning.b_g2_on_cpu.to_string(),
    },
    Key {
        name: "tuning.twin",
        what: "prove on the device and on the processor and compare every step; to find faults",
        acts: Acts::OnDevices,
        set: |config, value| {
            config.tuning.twin = value.bool()?;
            Ok(())
        },
        show: |config| config.tuning.twin.to_string(),
    },
];

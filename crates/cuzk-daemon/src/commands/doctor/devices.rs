//! What `cuzk doctor` says of devices: which there are, whether this program can use
//! them, and which the configuration names.

use std::fmt;

use cuzk_core::config::DevicePolicy;
use cuzk_core::{ByteCount, Config, DeviceReport};
use serde::Serialize;

#[derive(Serialize)]
pub(super) struct Devices {
    device_policy: String,
    is_device_required: bool,
    #[serde(skip)]
    is_device_wanted: bool,
    /// The devices that the configuration names.
    device_index: String,
    /// Why some of them cannot be used.
    choice_problems: Vec<String>,
    devices: Vec<DeviceLine>,
    device_problem: Option<String>,
}

/// A device, and whether this program can use it.
#[derive(Serialize)]
struct DeviceLine {
    index: usize,
    name: String,
    uuid: String,
    capability: String,
    memory_bytes: u64,
    /// Node of the host's memory that it is connected to, where the host shows one.
    numa_node: Option<u32>,
    problem: Option<String>,
    /// Whether proofs are made on it by this configuration.
    is_chosen: bool,
}

impl Devices {
    /// `found` is what the driver shows, or why it shows nothing.
    pub(super) fn new(config: &Config, found: Result<Vec<DeviceReport>, String>) -> Self {
        let policy = config.device_policy;
        let device_problem = found.as_ref().err().cloned();
        let is_shown = device_problem.is_none();
        let shown = found.unwrap_or_default();
        let choice = config.devices.find(&shown);
        let chosen = choice.iter().flatten().map(|device| device.ordinal);
        let chosen: Vec<usize> = match policy {
            DevicePolicy::Cpu => Vec::new(),
            // All of them or none.
            DevicePolicy::RequireGpu if choice.iter().any(Result::is_err) => Vec::new(),
            DevicePolicy::PreferGpu | DevicePolicy::RequireGpu => chosen.collect(),
        };
        let problems = choice.iter().filter_map(|device| device.as_ref().err());
        Self {
            device_policy: policy.to_string(),
            is_device_required: policy == DevicePolicy::RequireGpu,
            is_device_wanted: policy != DevicePolicy::Cpu,
            device_index: config.devices.to_string(),
            choice_problems: match policy {
                DevicePolicy::PreferGpu | DevicePolicy::RequireGpu if is_shown => {
                    problems.cloned().collect()
                }
                // They were not looked for, or nobody could say which there are.
                _ => Vec::new(),
            },
            devices: shown
                .iter()
                .map(|device| DeviceLine::new(device, &chosen))
                .collect(),
            device_problem,
        }
    }

    /// Why nothing can be proved, where a device is required and none can be used.
    pub(super) fn refusal(&self) -> Option<String> {
        if !self.is_device_required || self.is_any_chosen() {
            return None;
        }
        let why = match &self.device_problem {
            Some(problem) => problem.clone(),
            None => self.choice_problems.join("; "),
        };
        Some(format!(
            "device.policy is \"require-gpu\": {why}: {}",
            self.without()
        ))
    }

    fn is_any_chosen(&self) -> bool {
        self.devices.iter().any(|device| device.is_chosen)
    }

    /// What follows where no device is used.
    fn without(&self) -> &'static str {
        match (self.is_device_required, self.is_device_wanted) {
            (true, _) => "nothing can be proved by this policy",
            (false, true) => "proofs are made on the processor",
            (false, false) => "proofs are made on the processor, as the policy says",
        }
    }
}

impl DeviceLine {
    fn new(report: &DeviceReport, chosen: &[usize]) -> Self {
        let (major, minor) = report.capability;
        Self {
            index: report.ordinal,
            name: report.name.clone(),
            uuid: report.uuid.clone(),
            capability: format!("{major}.{minor}"),
            memory_bytes: report.memory_bytes,
            numa_node: report.numa_node,
            problem: report.unusable.clone(),
            is_chosen: chosen.contains(&report.ordinal),
        }
    }

    fn verdict(&self) -> &str {
        match (&self.problem, self.is_chosen) {
            (Some(problem), _) => problem,
            (None, true) => "this program can use it, and this configuration does",
            (None, false) => "this program can use it, and this configuration does not",
        }
    }
}

impl fmt::Display for Devices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "device.policy: {}", self.device_policy)?;
        writeln!(f, "device.index: {}", self.device_index)?;
        for problem in &self.choice_problems {
            writeln!(f, "  {problem}")?;
        }
        if !self.is_any_chosen() {
            writeln!(f, "  no device is used: {}", self.without())?;
        }
        if let Some(problem) = &self.device_problem {
            return writeln!(f, "devices: none, {problem}");
        }
        if self.devices.is_empty() {
            return writeln!(f, "devices: the driver shows none");
        }
        for device in &self.devices {
            write!(
                f,
                "device {}: {}, {}, compute capability {}, {}",
                device.index,
                device.name,
                device.uuid,
                device.capability,
                ByteCount(device.memory_bytes)
            )?;
            if let Some(node) = device.numa_node {
                write!(f, ", NUMA node {node}")?;
            }
            writeln!(f, "\n  {}", device.verdict())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use cuzk_core::config::{Value, load};

    use super::*;

    fn checked(policy: &str, index: &str, found: Result<Vec<DeviceReport>, String>) -> Devices {
        let set = |key: &str, value: &str| ("--set", key.to_owned(), Value::from_argument(value));
        let overrides = [set("device.policy", policy), set("device.index", index)];
        let loaded = load(Config::new("keys".into()), None, &overrides).expect("good values");
        Devices::new(&loaded.config, found)
    }

    fn told(policy: &str, index: &str, found: Result<Vec<DeviceReport>, String>) -> String {
        let devices = checked(policy, index, found);
        format!("--- {policy}, {index}\n{devices}")
    }

    #[test]
    fn a_required_device_that_is_none_is_a_refusal() {
        let none = || Err("no driver".to_owned());
        assert_eq!(
            checked("require-gpu", "0", none()).refusal().as_deref(),
            Some(
                "device.policy is \"require-gpu\": no driver: nothing can be proved by this policy"
            )
        );
        let shown = checked("require-gpu", "0", Ok(Vec::new())).refusal();
        let shown = shown.expect("no device is there");
        assert!(
            shown.contains("device 0: the driver shows no device"),
            "{shown}"
        );
        for policy in ["cpu", "prefer-gpu"] {
            assert_eq!(checked(policy, "0", none()).refusal(), None, "{policy}");
        }
    }

    #[test]
    fn each_device_is_told_with_what_becomes_of_it() {
        let device = |ordinal, numa_node, unusable: Option<&str>| DeviceReport {
            ordinal,
            name: "Card".to_owned(),
            uuid: format!("GPU-25a{ordinal}"),
            capability: (9, 0),
            memory_bytes: 80 << 30,
            numa_node,
            unusable: unusable.map(str::to_owned),
        };
        let devices = || {
            let old = "this program has code for sm_90, the device is sm_61";
            Ok(vec![
                device(0, Some(0), None),
                device(1, None, Some(old)),
                device(2, Some(1), None),
            ])
        };
        let told = [
            told("prefer-gpu", "0", devices()),
            told("prefer-gpu", "GPU-25A2,1", devices()),
            told("require-gpu", "0,1", devices()),
            told("require-gpu", "GPU-25a", devices()),
            told("prefer-gpu", "7", devices()),
            told("cpu", "0", devices()),
            told("prefer-gpu", "0", Ok(Vec::new())),
            told("require-gpu", "0", Err("no driver".to_owned())),
            told("cpu", "0", Err("no driver".to_owned())),
        ];
        insta::assert_snapshot!(told.join("\n"));
    }
}

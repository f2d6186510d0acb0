//! Which devices prove: by number or by identity.

use std::fmt;

use cuzk_gpu::DeviceReport;

use super::Value;

/// How identities begin, as the driver's tools print them.
const UUID_PREFIX: &str = "gpu-";

/// Devices by what the configuration calls them, in that order; at least one. They are
/// among those that the driver shows: it leaves out what `CUDA_VISIBLE_DEVICES` does not
/// name, and counts the rest from 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceChoice(Vec<DeviceName>);

/// What a configuration calls a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceName {
    /// Its number, as the driver counts those that are visible.
    Index(usize),
    /// The beginning of its identity, in lower case (`gpu-259100ba`).
    Uuid(String),
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Index(index) => write!(f, "{index}"),
            Self::Uuid(uuid) => {
                let rest = uuid.strip_prefix(UUID_PREFIX).unwrap_or(uuid);
                write!(f, "GPU-{rest}")
            }
        }
    }
}

impl fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, name) in self.0.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            write!(f, "{comma}{name}")?;
        }
        Ok(())
    }
}

impl DeviceName {
    fn parse(text: &str) -> Option<Self> {
        if let Ok(index) = text.parse() {
            return Some(Self::Index(index));
        }
        let uuid = text.to_ascii_lowercase();
        let rest = uuid.strip_prefix(UUID_PREFIX)?;
        let is_hex = |byte: u8| byte.is_ascii_hexdigit() || byte == b'-';
        let is_uuid = !rest.is_empty() && rest.bytes().all(is_hex);
        is_uuid.then_some(Self::Uuid(uuid))
    }

    fn is(&self, device: &DeviceReport) -> bool {
        match self {
            Self::Index(index) => device.ordinal == *index,
            Self::Uuid(uuid) => device.uuid.to_ascii_lowercase().starts_with(uuid),
        }
    }

    /// The one device of this name.
    fn find<'a>(&self, devices: &'a [DeviceReport]) -> Result<&'a DeviceReport, String> {
        let mut named = devices.iter().filter(|device| self.is(device));
        match (named.next(), named.next()) {
            (Some(device), None) => Ok(device),
            (None, _) => {
                let shown = match devices.len() {
                    0 => "no device".to_owned(),
                    1 => "one device, 0".to_owned(),
                    count => format!("{count} devices, 0 to {}", count - 1),
                };
                Err(format!("device {self}: the driver shows {shown}"))
            }
            (Some(one), Some(other)) => Err(format!(
                "device {self}: {} and {} begin so",
                one.uuid, other.uuid
            )),
        }
    }
}

impl DeviceChoice {
    /// The first device alone.
    pub fn first() -> Self {
        Self(vec![DeviceName::Index(0)])
    }

    /// A number, or names with commas between them; none twice.
    pub(super) fn read(value: &Value) -> Result<Self, String> {
        match value {
            Value::Text(names) => Self::parse(names),
            Value::Integer(index) => match usize::try_from(*index) {
                Ok(index) => Ok(Self(vec![DeviceName::Index(index)])),
                Err(_) => Err(wrong(value)),
            },
            Value::Bool(_) => Err(wrong(value)),
        }
    }

    fn parse(text: &str) -> Result<Self, String> {
        let mut names: Vec<DeviceName> = Vec::new();
        for word in text.split(',').map(str::trim) {
            let name = DeviceName::parse(word).ok_or_else(|| wrong(&format_args!("{word:?}")))?;
            if names.contains(&name) {
                return Err(format!("device {name} is named twice"));
            }
            names.push(name);
        }
        Ok(Self(names))
    }

    /// As the file would have it: a number where that is enough.
    pub(super) fn show(&self) -> String {
        match self.0.as_slice() {
            [DeviceName::Index(index)] => index.to_string(),
            _ => format!("\"{self}\""),
        }
    }

    /// The devices that are meant, in the order of their names: for each its report, or
    /// why it cannot be used.
    pub fn find<'a>(&self, devices: &'a [DeviceReport]) -> Vec<Result<&'a DeviceReport, String>> {
        let mut found: Vec<usize> = Vec::new();
        let mut find = |name: &DeviceName| {
            let device = name.find(devices)?;
            if found.contains(&device.ordinal) {
                return Err(format!(
                    "device {name}: it is device {}, which is named twice",
                    device.ordinal
                ));
            }
            found.push(device.ordinal);
            match &device.unusable {
                Some(reason) => Err(format!("device {name} ({}): {reason}", device.name)),
                None => Ok(device),
            }
        };
        self.0.iter().map(&mut find).collect()
    }
}

fn wrong(have: &dyn fmt::Display) -> String {
    format!("want numbers or the beginnings of UUIDs (\"GPU-2591\"), have {have}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(ordinal: usize, uuid: &str) -> DeviceReport {
        DeviceReport {
            ordinal,
            name: "Card".to_owned(),
            uuid: uuid.to_owned(),
            capability: (9, 0),
            memory_bytes: 1 << 30,
            numa_node: None,
            unusable: None,
        }
    }

    fn found(text: &str, devices: &[DeviceReport]) -> Vec<Result<usize, String>> {
        let choice = DeviceChoice::parse(text).expect("good names");
        let found = choice.find(devices).into_iter();
        found
            .map(|device| device.map(|device| device.ordinal))
            .collect()
    }

    #[test]
    fn names_are_numbers_or_beginnings_of_identities() {
        for (text, shown) in [
            ("0", "0"),
            ("7", "7"),
            ("0,2", "\"0,2\""),
            (" 2 , 0", "\"2,0\""),
            ("GPU-259100BA", "\"GPU-259100ba\""),
            ("gpu-2591,1", "\"GPU-2591,1\""),
        ] {
            let choice = DeviceChoice::parse(text).expect("a good choice");
            assert_eq!(choice.show(), shown);
            let again = DeviceChoice::parse(&choice.to_string());
            assert_eq!(again, Ok(choice), "what is shown is read back");
        }
        for wrong in [
            "", ",", "0,", "-1", "GPU-", "GPU-xyz", "259100ba", "all", "1.5",
        ] {
            let error = DeviceChoice::parse(wrong).expect_err(wrong);
            assert!(error.starts_with("want numbers or"), "{error}");
        }
        assert_eq!(
            DeviceChoice::parse("GPU-1a, gpu-1A"),
            Err("device GPU-1a is named twice".to_owned())
        );
    }

    #[test]
    fn each_name_is_one_device_or_why_it_is_none() {
        let mut devices = [
            device(0, "GPU-259100ba-0001"),
            device(1, "GPU-259100ba-0002"),
            device(2, "GPU-77"),
        ];
        let error = |text: &str| Err(text.to_owned());
        assert_eq!(found("2,0", &devices), [Ok(2), Ok(0)]);
        assert_eq!(found("GPU-7", &devices), [Ok(2)]);
        assert_eq!(found("gpu-259100BA-0002", &devices), [Ok(1)]);
        assert_eq!(
            found("GPU-2591", &devices),
            [error(
                "device GPU-2591: GPU-259100ba-0001 and GPU-259100ba-0002 begin so"
            )]
        );
        assert_eq!(
            found("3,1", &devices),
            [error("device 3: the driver shows 3 devices, 0 to 2"), Ok(1)]
        );
        assert_eq!(
            found("GPU-1,GPU-77", &devices[..1]),
            [
                error("device GPU-1: the driver shows one device, 0"),
                error("device GPU-77: the driver shows one device, 0")
            ]
        );
        assert_eq!(
            found("2,GPU-7", &devices),
            [
                Ok(2),
                error("device GPU-7: it is device 2, which is named twice")
            ]
        );
        devices[1].unusable = Some("it is too old".to_owned());
        assert_eq!(
            found("1,0", &devices),
            [error("device 1 (Card): it is too old"), Ok(0)]
        );
        assert_eq!(
            found("0", &[]),
            [error("device 0: the driver shows no device")]
        );
    }
}

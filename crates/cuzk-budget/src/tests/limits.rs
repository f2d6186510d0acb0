//! Limits from given file contents.

use std::collections::HashMap;

use crate::{BoxUse, LimitRule, MemoryFiles, MemoryReading, page_locked_limit};

const MEMINFO: &str =
    "MemTotal:       16777216 kB\nMemFree:         1000 kB\nMemAvailable:    8388608 kB\n";
const GIB: u64 = 1 << 30;

fn reading(files: &[(&str, &str)]) -> MemoryReading {
    let files: HashMap<&str, &str> = files.iter().copied().collect();
    MemoryFiles::gather(|path| files.get(path).map(|text| (*text).to_owned()))
        .unwrap()
        .reading()
        .unwrap()
}

#[test]
fn rules_are_read_and_refused_with_the_text() {
    let parsed: Vec<String> = ["auto", "80%", " 100 % ", "0", "123", "12GiB", "3 MiB"]
        .iter()
        .map(|text| format!("{text}: {:?}", text.parse::<LimitRule>().unwrap()))
        .collect();
    insta::assert_snapshot!(parsed.join("\n"), @r"
    auto: Automatic
    80%: Percent(80)
     100 % : Percent(100)
    0: Bytes(0)
    123: Bytes(123)
    12GiB: Bytes(12884901888)
    3 MiB: Bytes(3145728)
    ");
    let refused: Vec<String> = [
        "",
        "-1",
        "12GB",
        "1.5GiB",
        "%",
        "101%",
        "999%",
        "17179869184GiB",
    ]
    .iter()
    .map(|text| text.parse::<LimitRule>().unwrap_err().to_string())
    .collect();
    insta::assert_snapshot!(refused.join("\n"), @r"
    `` is no memory limit: write `auto`, `80%`, or bytes such as `12GiB`
    `-1` is no memory limit: write `auto`, `80%`, or bytes such as `12GiB`
    `12GB` is no memory limit: write `auto`, `80%`, or bytes such as `12GiB`
    `1.5GiB` is no memory limit: write `auto`, `80%`, or bytes such as `12GiB`
    `%` is no memory limit: write `auto`, `80%`, or bytes such as `12GiB`
    101 % of the memory is more than there is
    `999%` is no memory limit: write `auto`, `80%`, or bytes such as `12GiB`
    `17179869184GiB` is no memory limit: write `auto`, `80%`, or bytes such as `12GiB`
    ");
}

#[test]
fn a_machine_without_groups_is_what_meminfo_says() {
    let reading = reading(&[("/proc/meminfo", MEMINFO)]);
    assert_eq!(
        reading,
        MemoryReading {
            total_bytes: 16 * GIB,
            available_bytes: 8 * GIB
        }
    );
    let limit = |rule: LimitRule| rule.limit_bytes(&reading).unwrap();
    assert_eq!(limit(LimitRule::Bytes(5)), 5);
    assert_eq!(limit(LimitRule::Percent(50)), 8 * GIB);
    assert_eq!(limit(LimitRule::Percent(0)), 0);
    // 5 % of 16 GiB is less than the least margin of 1 GiB.
    assert_eq!(limit(LimitRule::Automatic), 7 * GIB);
    let error = LimitRule::Percent(101).limit_bytes(&reading).unwrap_err();
    insta::assert_snapshot!(error, @"101 % of the memory is more than there is");
}

#[test]
fn the_margin_grows_with_the_machine_and_may_leave_nothing() {
    let large = MemoryReading {
        total_bytes: 1000 * GIB,
        available_bytes: 900 * GIB,
    };
    assert_eq!(LimitRule::Automatic.limit_bytes(&large).unwrap(), 850 * GIB);
    let small = MemoryReading {
        total_bytes: 2 * GIB,
        available_bytes: GIB,
    };
    let error = LimitRule::Automatic.limit_bytes(&small).unwrap_err();
    insta::assert_snapshot!(error, @"1.00 GiB (1073741824 bytes) of memory are available and 1.00 GiB (1073741824 bytes) are to stay free: give the limit in bytes");
    let endless = MemoryReading {
        total_bytes: u64::MAX,
        available_bytes: u64::MAX,
    };
    assert_eq!(LimitRule::Percent(100).limit_bytes(&endless), Ok(u64::MAX));
}

#[test]
fn version_2_groups_bind_at_every_level() {
    let group = "0::/service/prover\n";
    let own = [
        ("/proc/meminfo", MEMINFO),
        ("/proc/self/cgroup", group),
        ("/sys/fs/cgroup/service/prover/memory.max", "max\n"),
        (
            "/sys/fs/cgroup/service/prover/memory.current",
            "2147483648\n",
        ),
        ("/sys/fs/cgroup/service/memory.max", "6442450944\n"),
        ("/sys/fs/cgroup/service/memory.current", "4294967296\n"),
        (
            "/sys/fs/cgroup/service/memory.stat",
            "anon 1\nfile 2147483648\ninactive_file 1073741824\nactive_file 1073741824\n",
        ),
    ];
    // The parent allows 6 GiB, of which 4 are used, 1 of them idle cache.
    assert_eq!(
        reading(&own),
        MemoryReading {
            total_bytes: 6 * GIB,
            available_bytes: 3 * GIB
        }
    );
}

#[test]
fn a_container_sees_its_group_at_the_root() {
    let reading = reading(&[
        ("/proc/meminfo", MEMINFO),
        ("/proc/self/cgroup", "0::/\n"),
        ("/sys/fs/cgroup/memory.max", "4294967296"),
        ("/sys/fs/cgroup/memory.current", "5368709120"),
    ]);
    assert_eq!((reading.total_bytes, reading.available_bytes), (4 * GIB, 0));
}

#[test]
fn version_1_groups_bind_too() {
    let membership = "12:cpu,cpuacct:/x\n7:memory:/docker/abc\n1:name=systemd:/docker/abc\n";
    let reading = reading(&[
        ("/proc/meminfo", MEMINFO),
        ("/proc/self/cgroup", membership),
        (
            "/sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes",
            "3221225472\n",
        ),
        (
            "/sys/fs/cgroup/memory/docker/abc/memory.usage_in_bytes",
            "2147483648\n",
        ),
        (
            "/sys/fs/cgroup/memory/docker/abc/memory.stat",
            "inactive_file 5\ntotal_inactive_file 1073741824\n",
        ),
        // What an unlimited version 1 group says.
        (
            "/sys/fs/cgroup/memory/memory.limit_in_bytes",
            "9223372036854771712\n",
        ),
        ("/sys/fs/cgroup/memory/memory.usage_in_bytes", "1\n"),
    ]);
    assert_eq!(
        (reading.total_bytes, reading.available_bytes),
        (3 * GIB, 2 * GIB)
    );
}

#[test]
fn unreadable_files_are_named() {
    let mut messages = vec![MemoryFiles::gather(|_| None).unwrap_err().to_string()];
    let files = |meminfo: &str, limit: &str| MemoryFiles {
        meminfo: meminfo.to_owned(),
        groups: vec![crate::GroupFiles {
            directory: "/sys/fs/cgroup/x".to_owned(),
            limit: limit.to_owned(),
            usage: "many".to_owned(),
            stat: String::new(),
        }],
    };
    for files in [
        files("MemTotal: 1 kB\n", "max"),
        files("MemTotal: one kB\n", "max"),
        files("MemTotal: 18446744073709551615 kB\n", "max"),
        files(MEMINFO, "lots"),
        files(MEMINFO, "1"),
    ] {
        messages.push(files.reading().unwrap_err().to_string());
    }
    insta::assert_snapshot!(messages.join("\n"), @r"
    /proc/meminfo has no readable `MemTotal`
    /proc/meminfo has no readable `MemAvailable`
    /proc/meminfo has no readable `MemTotal`
    /proc/meminfo has no readable `MemTotal`
    /sys/fs/cgroup/x has no readable `memory limit`
    /sys/fs/cgroup/x has no readable `memory usage`
    ");
}

#[test]
fn a_dedicated_box_may_lock_nearly_all() {
    assert_eq!(BoxUse::default(), BoxUse::Shared);
    assert_eq!(page_locked_limit(BoxUse::Shared, 1000), 500);
    assert_eq!(page_locked_limit(BoxUse::Dedicated, 1000), 950);
    assert!(page_locked_limit(BoxUse::Dedicated, u64::MAX) > u64::MAX / 10 * 9);
}

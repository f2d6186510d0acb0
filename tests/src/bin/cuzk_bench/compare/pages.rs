//! What the kernel made of advice about pages.

use std::ops::Range;

/// When the kernel gives huge pages: `always`, `madvise` or `never`, or `none` where it has
/// no such choice.
pub(super) fn offered() -> String {
    let told = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
    let chosen = told.ok().and_then(|told| chosen(&told).map(str::to_owned));
    chosen.unwrap_or_else(|| "none".to_owned())
}

/// Of several words the one in brackets.
fn chosen(words: &str) -> Option<&str> {
    let mut words = words.split_whitespace();
    words.find_map(|word| word.strip_prefix('[')?.strip_suffix(']'))
}

/// Bytes on huge pages of the mappings that hold these addresses; none where the kernel does
/// not tell. What lies beside them in the same mapping counts too.
pub(super) fn huge_bytes(addresses: &[Range<usize>]) -> Option<u64> {
    Some(of(
        &std::fs::read_to_string("/proc/self/smaps").ok()?,
        addresses,
    ))
}

fn of(maps: &str, addresses: &[Range<usize>]) -> u64 {
    let mut is_held = false;
    let mut kib = 0;
    for line in maps.lines() {
        if let Some(mapping) = mapping(line) {
            let is_in =
                |range: &Range<usize>| range.start < mapping.end && mapping.start < range.end;
            is_held = addresses.iter().any(is_in);
        } else if let (true, Some(rest)) = (is_held, line.strip_prefix("AnonHugePages:")) {
            let count = rest.split_whitespace().next();
            kib += count.and_then(|count| count.parse().ok()).unwrap_or(0);
        }
    }
    kib << 10
}

/// The addresses of a line that begins a mapping.
fn mapping(line: &str) -> Option<Range<usize>> {
    let (start, end) = line.split_whitespace().next()?.split_once('-')?;
    let number = |text| usize::from_str_radix(text, 16).ok();
    Some(number(start)?..number(end)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
7f0000200000-7f0000600000 rw-p 00000000 00:00 0
Size:               4096 kB
AnonHugePages:      2048 kB
VmFlags: rd wr mr mw me ac hg
7f0000600000-7f0000700000 rw-p 00000000 00:00 0
AnonHugePages:         0 kB
7f0000800000-7f0000c00000 r--p 00000000 08:01 1234 /lib/libm-2.so
AnonHugePages:      4096 kB
";

    #[test]
    fn the_word_in_brackets_is_what_the_kernel_does() {
        assert_eq!(chosen("always [madvise] never\n"), Some("madvise"));
        assert_eq!(chosen("always madvise"), None);
    }

    #[test]
    fn mappings_count_that_hold_an_address() {
        let first = 0x7f00_0020_0000_usize;
        let one = |range: Range<usize>| of(MAPS, std::slice::from_ref(&range));
        assert_eq!(of(MAPS, &[]), 0);
        assert_eq!(one(first..first + 1), 2 << 20);
        // Two in one mapping, and one that begins where it ends.
        let two = [first..first + 8, first + 4096..first + 5000];
        assert_eq!(of(MAPS, &two), 2 << 20);
        assert_eq!(one(0x7f00_0060_0000..0x7f00_0060_0001), 0);
        // Across the end of one into the next.
        assert_eq!(one(0x7f00_005f_0000..0x7f00_0090_0000), 6 << 20);
    }
}

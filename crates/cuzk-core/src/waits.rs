//! Who waits for memory. Such a wait has no limit, since the jobs that it waits for have
//! them; so one that takes long is told instead, with what is asked, held and by whom.

use std::fmt;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use cuzk_budget::ByteCount;

use crate::lock::lock;

/// A part that waits for memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryWait {
    /// Its job, as log lines call it.
    pub job: String,
    /// Which of its parts, from 0.
    pub part: usize,
    /// The stage that waits: `reserve` or `explain`.
    pub stage: &'static str,
    /// Bytes that it asks for.
    pub asked_bytes: u64,
    /// For how long so far.
    pub waited: Duration,
}

impl fmt::Display for MemoryWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            job, part, stage, ..
        } = self;
        let (asked, seconds) = (ByteCount(self.asked_bytes), self.waited.as_secs());
        write!(
            f,
            "{job}: part {part}: {stage} asked {asked} {seconds} s ago"
        )
    }
}

/// All waits, and which of them are told when.
pub(crate) struct Waits {
    told_after: Option<Duration>,
    entries: Mutex<Vec<Entry>>,
}

struct Entry {
    number: u64,
    wait: MemoryWait,
    since: Instant,
    /// When it has waited for so long it is told, and then after twice that.
    told_after: Option<Duration>,
}

impl Waits {
    /// Waits that are told after so long; `None` for never.
    pub(crate) fn new(told_after: Option<Duration>) -> Self {
        Self {
            told_after,
            entries: Mutex::default(),
        }
    }

    /// After how long a wait is told.
    pub(crate) fn told_after(&self) -> Option<Duration> {
        self.told_after
    }

    /// A part waits until what this returns is dropped.
    pub(crate) fn enter(
        &self,
        job: &str,
        part: usize,
        stage: &'static str,
        asked_bytes: u64,
    ) -> Waiting<'_> {
        let mut entries = lock(&self.entries);
        let number = entries.last().map_or(0, |last| last.number + 1);
        entries.push(Entry {
            number,
            wait: MemoryWait {
                job: job.to_owned(),
                part,
                stage,
                asked_bytes,
                waited: Duration::ZERO,
            },
            since: Instant::now(),
            told_after: self.told_after,
        });
        Waiting {
            waits: self,
            number,
        }
    }

    /// All of them, the longest first.
    pub(crate) fn list(&self, now: Instant) -> Vec<MemoryWait> {
        let entries = lock(&self.entries);
        entries.iter().map(|entry| entry.at(now)).collect()
    }

    /// Those that are to be told now.
    pub(crate) fn due(&self, now: Instant) -> Vec<MemoryWait> {
        let mut entries = lock(&self.entries);
        let due = entries.iter_mut().filter_map(|entry| {
            let wait = entry.at(now);
            let told_after = entry.told_after.filter(|after| wait.waited >= *after)?;
            entry.told_after = told_after.max(wait.waited).checked_mul(2);
            Some(wait)
        });
        due.collect()
    }
}

impl Entry {
    fn at(&self, now: Instant) -> MemoryWait {
        MemoryWait {
            waited: now.saturating_duration_since(self.since),
            ..self.wait.clone()
        }
    }
}

/// One wait, until dropped.
pub(crate) struct Waiting<'a> {
    waits: &'a Waits,
    number: u64,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        lock(&self.waits.entries).retain(|entry| entry.number != self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_wait_is_told_ever_more_rarely_until_it_ends() {
        let second = Duration::from_secs(1);
        let waits = Waits::new(Some(60 * second));
        let start = Instant::now();
        let first = waits.enter("squares", 3, "reserve", 100);
        let _other = waits.enter("squares", 4, "explain", 7);
        let told = |seconds: u32| {
            // The waits began a moment after the start.
            let due = waits.due(start + seconds * second + second / 2);
            due.into_iter().map(|wait| wait.part).collect::<Vec<_>>()
        };
        assert_eq!(told(59), [0; 0]);
        assert_eq!(told(61), [3, 4]);
        assert_eq!([told(62), told(119)], [[0; 0], [0; 0]]);
        assert_eq!(told(130), [3, 4]);
        assert_eq!(told(255), [0; 0]);
        drop(first);
        assert_eq!(told(300), [4]);
        let list = waits.list(start);
        assert_eq!(list.len(), 1);
        assert_eq!(
            list[0].to_string(),
            "squares: part 4: explain asked 7 bytes 0 s ago"
        );
    }

    #[test]
    fn nothing_is_told_where_it_is_not_to_be() {
        let waits = Waits::new(None);
        let _wait = waits.enter("squares", 0, "reserve", 1);
        let later = Instant::now() + Duration::from_secs(1 << 30);
        assert_eq!(waits.due(later), []);
        assert_eq!(waits.list(later).len(), 1);
    }
}

//! When the allocator gives freed memory back to the system.

use std::str::FromStr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// When it does after a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trim {
    /// Not at all, as an engine is.
    Never,
    /// Before the job counts as done.
    Path,
    /// On a thread beside the next job.
    Worker,
}

impl FromStr for Trim {
    type Err = anyhow::Error;

    fn from_str(word: &str) -> Result<Self> {
        Ok(match word {
            "never" => Self::Never,
            "path" => Self::Path,
            "worker" => Self::Worker,
            other => bail!("bench.trim: want never, path or worker, have {other:?}"),
        })
    }
}

impl Trim {
    /// Lets a job run that is not timed, and one that is: the first leaves memory as each
    /// job of this setting does, whatever other settings did before, and what is trimmed
    /// after it beside the next job falls to that one. `timed` gets what is to be done on
    /// its path; how long trimming took, whoever did it.
    pub(super) fn around<T>(
        self,
        untimed: impl FnOnce() -> Result<()>,
        timed: impl FnOnce(&mut dyn FnMut()) -> Result<T>,
    ) -> Result<(T, Option<Duration>)> {
        untimed()?;
        if self == Self::Path {
            trim();
        }
        std::thread::scope(|scope| {
            let worker = (self == Self::Worker).then(|| scope.spawn(trim));
            let mut took = None;
            let done = timed(&mut || {
                if self == Self::Path {
                    took = Some(trim());
                }
            });
            if let Some(worker) = worker {
                took = Some(worker.join().ok().context("the trimming thread panicked")?);
            }
            Ok((done?, took))
        })
    }
}

fn trim() -> Duration {
    let begin = Instant::now();
    cuzk_pinned::trim_allocator();
    begin.elapsed()
}

/// Bytes of the process that are in memory; none where the system does not tell.
pub(super) fn resident_bytes() -> Option<u64> {
    resident(&std::fs::read_to_string("/proc/self/status").ok()?)
}

fn resident(status: &str) -> Option<u64> {
    let mut lines = status.lines();
    let told = lines.find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = told.split_whitespace().next()?.parse().ok()?;
    Some(kib << 10)
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    #[test]
    fn a_job_is_timed_after_one_that_is_not_and_trimmed_as_is_asked() {
        for (word, is_trimmed) in [("never", false), ("path", true), ("worker", true)] {
            let way: Trim = word.parse().expect("a way");
            let mut order = Vec::new();
            let (jobs, on_path) = (std::cell::RefCell::new(&mut order), way == Trim::Path);
            let (done, took) = way
                .around(
                    || {
                        jobs.borrow_mut().push("untimed");
                        Ok(())
                    },
                    |trim| {
                        jobs.borrow_mut().push("timed");
                        let begin = Instant::now();
                        trim();
                        Ok(begin.elapsed())
                    },
                )
                .expect("nothing fails");
            assert_eq!(took.is_some(), is_trimmed, "{word}");
            // On the path it lies within what is timed.
            assert!(!on_path || took <= Some(done), "{word}");
            assert_eq!(order, ["untimed", "timed"], "{word}");
        }
        let error = "later".parse::<Trim>().expect_err("no way");
        assert_eq!(
            error.to_string(),
            "bench.trim: want never, path or worker, have \"later\""
        );
    }

    #[test]
    fn a_job_that_fails_is_told() {
        for way in [Trim::Never, Trim::Path, Trim::Worker] {
            let failed = way.around(|| Err(anyhow!("first")), |_| Ok(()));
            assert_eq!(failed.expect_err("it failed").to_string(), "first");
            let failed = way.around(|| Ok(()), |_| Err::<(), _>(anyhow!("second")));
            assert_eq!(failed.expect_err("it failed").to_string(), "second");
        }
    }

    #[test]
    fn resident_memory_is_read_in_bytes() {
        let status = "Name:\tcuzk\nVmHWM:\t  9 kB\nVmRSS:\t    1056 kB\nThreads:\t2\n";
        assert_eq!(resident(status), Some(1056 << 10));
        assert_eq!(resident("VmHWM: 1 kB\n"), None);
    }
}

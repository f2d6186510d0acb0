//! Progress on standard error, when that is a terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A line that says what goes on and how far it is; invisible unless standard error
/// is a terminal.
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// Starts with what is being done.
    pub(crate) fn start(what: &str) -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template("{spinner} {msg} [{elapsed}]")
            .expect("the template is a good one");
        bar.set_style(style);
        bar.set_message(what.to_owned());
        bar.enable_steady_tick(Duration::from_millis(200));
        Self(bar)
    }

    /// Says what is being done now, and `done` of `total` of it if it can be told.
    pub(crate) fn show(&self, what: &str, done: u64, total: u64) {
        if total > 1 {
            let percent = done.saturating_mul(100) / total;
            self.0.set_message(format!("{what} {percent} %"));
        } else {
            self.0.set_message(what.to_owned());
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

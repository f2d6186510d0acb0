//! `cuzk serve` in a process of its own, on a free port and a socket.

use std::cell::RefCell;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};

use serde_json::Value;
use tempfile::TempDir;

use crate::support::{cuzk, cuzk_ok, keys, program, text};

/// A server's process, killed if a test ends before it does.
pub(crate) struct Served {
    process: Child,
    pub(crate) address: String,
    pub(crate) socket: PathBuf,
    /// Lines of its log, until it ends.
    log: Receiver<String>,
    /// Those that were read.
    seen: RefCell<String>,
    _directory: TempDir,
}

impl Drop for Served {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Served {
    /// Starts a server with the test keys that have been made; it loads each with the
    /// first proof that needs it.
    pub(crate) fn start() -> Self {
        let directory = TempDir::new().expect("a temporary directory");
        let socket = directory.path().join("cuzk.sock");
        let mut process = program()
            .args(["--log", "info"])
            .args(["serve", "--listen", "127.0.0.1:0", "--metrics-listen", ""])
            .args(["--set", "hints.file=", "--set", "serve.preload=none"])
            // Which keys stay in memory by default depends on how much of it there is.
            .args(["--set", "tuning.key_tier=file"])
            .args(["--allow-test-params", "--params", text(&keys())])
            .args(["--socket", text(&socket)])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program can be started");
        let output = process.stdout.take().expect("piped");
        let errors = process.stderr.take().expect("piped");
        let (line, log) = channel();
        std::thread::spawn(move || {
            let mut lines = BufReader::new(errors).lines().map_while(Result::ok);
            lines.try_for_each(|text| line.send(text))
        });
        let mut served = Self {
            process,
            address: String::new(),
            socket,
            log,
            seen: RefCell::default(),
            _directory: directory,
        };
        let first = BufReader::new(output).lines().map_while(Result::ok).next();
        let first = first.unwrap_or_else(|| panic!("no address: {}", served.errors()));
        let address = first.strip_prefix("listening on tcp ").expect("an address");
        served.address = address.to_owned();
        served
    }

    /// What the server has logged.
    pub(crate) fn errors(&self) -> String {
        for line in self.log.try_iter() {
            self.saw(&line);
        }
        self.seen.borrow().clone()
    }

    /// Returns when the server logs a line with these words.
    pub(crate) fn says(&self, words: &str) {
        for line in &self.log {
            self.saw(&line);
            if line.contains(words) {
                return;
            }
        }
        panic!("it ended without {words:?}: {}", self.errors());
    }

    fn saw(&self, line: &str) {
        let mut seen = self.seen.borrow_mut();
        seen.push_str(line);
        seen.push('\n');
    }

    /// Sends the server SIGTERM.
    pub(crate) fn terminate(&self) {
        let id = self.process.id().to_string();
        let sent = Command::new("kill").args(["-TERM", &id]).status();
        assert!(sent.expect("kill can be started").success());
    }

    /// Waits for the server's end.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        let status = self.process.wait().expect("our child");
        for line in &self.log {
            self.saw(&line);
        }
        status
    }

    /// Hands a request file over; the id of its job.
    pub(crate) fn submit(&self, request: &Path) -> String {
        let submitted = self.try_submit(request);
        let errors = String::from_utf8_lossy(&submitted.stderr);
        assert!(submitted.status.success(), "submit: {errors}");
        let id = String::from_utf8(submitted.stdout).expect("text");
        id.trim().to_owned()
    }

    /// Hands a request file over, which may fail.
    pub(crate) fn try_submit(&self, request: &Path) -> Output {
        let (address, request) = (self.address.as_str(), text(request));
        cuzk(&["submit", "--address", address, "--request", request])
    }

    /// Begins to wait for a job, whose proof goes to a file.
    pub(crate) fn begin_wait(&self, job: &str, proof: &Path) -> Child {
        program()
            .args(["await", job, "--socket", text(&self.socket)])
            .args(["--out", text(proof)])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program can be started")
    }

    /// Waits for a job, whose proof goes to a file.
    pub(crate) fn wait_for(&self, job: &str, proof: &Path) {
        let (socket, proof) = (text(&self.socket), text(proof));
        cuzk_ok(&["await", job, "--socket", socket, "--out", proof]);
    }

    /// Returns when work on a job of this kind has begun.
    pub(crate) fn works_on(&self, kind: &str) {
        loop {
            let status = cuzk_ok(&["status", "--json", "--address", &self.address]);
            let status: Value = serde_json::from_str(&status).expect("JSON");
            let queues = status["queues"].as_array().expect("a queue for each kind");
            let queue = queues.iter().find(|queue| queue["proof_kind"] == kind);
            let queue = queue.expect("a queue for each kind");
            let jobs = |state: &str| queue[state].as_u64().expect("a count");
            if jobs("in_progress") > 0 {
                return;
            }
            assert!(jobs("pending") > 0, "no job of {kind} in {status}");
        }
    }
}

//! Other processes on the same device: one that proves too, and one that holds nearly
//! all of its memory.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

use cudarc::driver::{result, sys};
use cuzk_gpu::BackendError;

use crate::case::Case;
use crate::gpu::{ARENA_BYTES, Gpu, outcome, proved};

/// Set for a process that this program started.
const CHILD: &str = "CUZK_TEST_CHILD";
/// What such a process says once it has what it wants.
const READY: &str = "ready";
/// Device memory that the process leaves: enough for what is allocated and freed before
/// the arena.
const LEFT_BYTES: u64 = ARENA_BYTES / 2;

/// This program again, to run one test.
pub(crate) fn child(test: &str) -> Command {
    let program = std::env::current_exe().expect("a program that runs has a path");
    let mut command = Command::new(program);
    command.args([test, "--exact", "--nocapture", "--test-threads=1"]);
    command
}

/// A process that said it is ready, and ends when its input does.
struct Ready {
    process: Child,
    output: BufReader<ChildStdout>,
}

impl Ready {
    fn start(test: &str) -> Self {
        let process = child(test)
            .env(CHILD, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let mut process = process.expect("a process");
        let output = process.stdout.take().expect("piped");
        let mut output = BufReader::new(output);
        let mut line = String::new();
        while line.trim_end() != READY {
            line.clear();
            let read = output.read_line(&mut line).expect("text");
            assert!(read != 0, "it ended before it was ready");
        }
        Self { process, output }
    }

    /// Lets it go on, or end.
    fn release(&mut self) {
        drop(self.process.stdin.take());
    }

    /// Waits for its end, which must be a good one, and gives what it said.
    fn end(mut self) -> String {
        self.release();
        let mut text = String::new();
        self.output.read_to_string(&mut text).expect("text");
        let status = self.process.wait().expect("a process that was started");
        assert!(status.success(), "{status}\n{text}");
        text
    }
}

impl Drop for Ready {
    /// If the test failed in between, the process ends with its input.
    fn drop(&mut self) {
        self.release();
        let _ = self.process.wait();
    }
}

/// In the process: says that it is ready and waits for the end of its input.
fn say_ready_and_wait() {
    println!("\n{READY}");
    std::io::stdout().flush().expect("a pipe");
    let mut rest = Vec::new();
    std::io::stdin().read_to_end(&mut rest).expect("a pipe");
}

/// Proves 20 circuits and compares each with the CPU.
fn prove_twenty(gpu: &Gpu, seed: u64, start: impl FnOnce()) {
    let cases: Vec<_> = (0..20)
        .map(|at| Case::new(seed + at, 6 + (at % 8) as u32))
        .map(|case| (case.on_cpu(), case))
        .collect();
    let backend = gpu.open();
    start();
    for (at, (expected, case)) in cases.iter().enumerate() {
        assert!(proved(&backend, case.job()) == *expected, "proof {at}");
    }
}

#[test]
fn gpu_two_processes_prove_on_one_device() {
    const NAME: &str = "processes::gpu_two_processes_prove_on_one_device";
    let Some(gpu) = Gpu::find() else { return };
    if std::env::var_os(CHILD).is_some() {
        prove_twenty(&gpu, 100, say_ready_and_wait);
        println!("\nproved");
        return;
    }
    let mut other = Ready::start(NAME);
    prove_twenty(&gpu, 200, || other.release());
    assert!(other.end().contains("\nproved"), "it proved twenty too");
}

/// Takes all memory but a little, in pieces that the driver can give.
fn take_memory(gpu: &Gpu) -> Vec<sys::CUdeviceptr> {
    let mut held = Vec::new();
    let mut piece = u64::MAX;
    loop {
        let free = gpu.free_bytes();
        piece = piece.min(free.saturating_sub(LEFT_BYTES));
        if piece < 1 << 20 {
            return held;
        }
        // SAFETY: the context was made current; nobody touches the memory, and the
        // process's end frees it.
        match unsafe { result::malloc_sync(piece as usize) } {
            Ok(start) => held.push(start),
            Err(_) => piece /= 2,
        }
    }
}

#[test]
fn gpu_memory_that_another_process_holds_is_an_error_with_figures() {
    const NAME: &str = "processes::gpu_memory_that_another_process_holds_is_an_error_with_figures";
    let Some(gpu) = Gpu::find() else { return };
    if std::env::var_os(CHILD).is_some() {
        let held = take_memory(&gpu);
        assert!(!held.is_empty(), "memory to take");
        say_ready_and_wait();
        return;
    }
    let case = Case::new(6, 12);
    let expected = case.on_cpu();
    // What the driver and the kernels take for themselves is there before.
    assert!(proved(&gpu.open(), case.job()) == expected);
    let other = Ready::start(NAME);
    let refused = gpu
        .open_with(gpu.buffers())
        .and_then(|backend| outcome(&backend, case.job()))
        .expect_err("a proof in memory that is not there");
    println!("{refused}");
    let BackendError::DeviceMemory { asked, free, .. } = refused else {
        panic!("no error of memory: {refused}");
    };
    assert!(
        free < asked && asked <= ARENA_BYTES,
        "asked {asked}, free {free}"
    );
    other.end();
    assert!(
        proved(&gpu.open(), case.job()) == expected,
        "once it is there"
    );
}

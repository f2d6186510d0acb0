//! The `cuzk` binary.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    cuzk_daemon::run(std::env::args_os()).into()
}

//! The `cuzk` program for the end-to-end tests: the same call as its own binary.

fn main() -> std::process::ExitCode {
    cuzk_daemon::run(std::env::args_os()).into()
}

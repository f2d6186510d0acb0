//! The `cuzk` binary.

fn main() -> std::process::ExitCode {
    cuzk_daemon::run(std::env::args_os()).into()
}

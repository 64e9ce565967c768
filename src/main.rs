//! The `tidegate` program; `tidegate --help` says what it does.
#![forbid(unsafe_code)]

mod cli;

fn main() -> std::process::ExitCode {
    cli::run(std::env::args_os())
}

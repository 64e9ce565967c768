//! The `tidegate` program: arguments in, one subcommand run, an exit code out.
//!
//! Everything it prints goes through [`Output`], everything that ends it early is a [`Failure`].
//! It uses the crate as any other program would, by its public interface.
#![allow(clippy::disallowed_methods, reason = "a program reads clocks; cores and protocol do not")]

mod admin;
mod arguments;
mod attributes;
mod broker;
mod connect;
mod demo;
mod dump;
mod failure;
mod interrupt;
mod output;
mod ping;
mod receive;
mod record;
mod round_trip;
mod send;
mod store;
mod value;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory as _, FromArgMatches as _};

use self::arguments::{Arguments, Command};
use self::failure::Failure;
use self::output::{Output, complain};

/// Runs the program with these arguments, the program's own name first.
pub(crate) fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let mut output = match Output::standard() {
        Ok(output) => output,
        Err(failure) => return failure.report(),
    };
    match dispatch(arguments, &mut output).and_then(|()| output.finish()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // What was printed so far should still arrive; the first failure counts.
            let _also_failed = output.finish();
            failure.report()
        }
    }
}

fn dispatch(
    arguments: impl IntoIterator<Item = OsString>,
    output: &mut Output,
) -> Result<(), Failure> {
    let parsed = Arguments::command()
        .term_width(output.width())
        .next_line_help(output.is_narrow())
        .try_get_matches_from(arguments)
        .and_then(|matches| Arguments::from_arg_matches(&matches));
    match parsed {
        Ok(Arguments { command }) => match command {
            Command::Broker(arguments) => broker::run(&arguments, output),
            Command::Send(arguments) => send::run(&arguments, output),
            Command::Receive(arguments) => receive::run(&arguments, output),
            Command::Ping(arguments) => ping::run(&arguments, output),
            Command::Admin(arguments) => admin::run(&arguments, output),
            Command::Store(arguments) => store::run(&arguments, output),
            Command::Demo(arguments) => demo::run(&arguments, output),
            Command::Dump(arguments) => dump::run(&arguments, output),
            Command::Attributes(arguments) => attributes::run(&arguments, output),
        },
        Err(answer) => {
            let colour =
                if answer.use_stderr() { output::colour_on_stderr() } else { output.colour() };
            let text = answer.render();
            let text = if colour { text.ansi().to_string() } else { text.to_string() };
            if matches!(answer.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
                output.text(&text)
            } else {
                complain(text.trim_end());
                Err(Failure::UsageShown)
            }
        }
    }
}

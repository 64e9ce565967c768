//! Where output goes must not matter: pipes that close, full devices, files, terminals.
//!
//! From reports that a program panicked when its output went to `head`, and that progress bars
//! filled log files with escape sequences.
#![cfg(feature = "cli")]
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

mod cli_support;

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;

use cli_support::{Finished, Running, TestBroker, bash, run, tidegate, wait_for};
use tempfile::TempDir;

/// A broker with messages, a capture, and every way to make the program print.
struct Ground {
    broker: TestBroker,
    folder: TempDir,
}

impl Ground {
    fn new() -> Self {
        let ground = Self { broker: TestBroker::start(), folder: tempfile::tempdir().unwrap() };
        let mut lines = String::new();
        for number in 1..=2000 {
            lines += &format!(
                "{{\"n\":{number},\"dir\":\"c2b\",\"conn\":1,\"ms\":0,\"ev\":\"open\",\"hex\":\"\"}}\n"
            );
        }
        fs::write(ground.capture(), lines).unwrap();
        ground
    }

    fn capture(&self) -> PathBuf {
        self.folder.path().join("capture.jsonl")
    }

    /// Messages for a command that receives some.
    fn fill_for(&self, command: &str) {
        if !command.contains("receive q") {
            return;
        }
        let lines = "a line of some length, so that pipes fill up\n".repeat(3000);
        let address = self.broker.address();
        let send = tidegate(["send", "q", "--non-persistent", "--address", &address]);
        run(send, lines.as_bytes()).expect_code(0);
    }

    /// Every subcommand with output that ends by itself, as typed; `$T` is the program.
    fn commands(&self) -> Vec<String> {
        let address = self.broker.address();
        let admin = self.broker.admin_address();
        let capture = self.capture().display().to_string();
        vec![
            "$T --help".into(),
            "$T --version".into(),
            "$T receive --help".into(),
            format!("$T dump {capture}"),
            "$T attributes".into(),
            "$T attributes --json".into(),
            format!("echo hello | $T send other --address {address}"),
            format!("echo '{{}}' | $T send other --json --address {address}"),
            format!("$T receive q --timeout 500ms --address {address}"),
            format!("$T receive q --timeout 500ms --json --address {address}"),
            format!("$T ping --count 300 --address {address}"),
            format!("$T admin list destinations --address {admin}"),
            format!("$T admin query broker --json --address {admin}"),
            "$T demo --seconds 1 --rate 1000".into(),
        ]
    }

    fn run(&self, script: &str) -> Finished {
        self.fill_for(script);
        run(bash(script), b"")
    }
}

#[test]
fn closed_pipes_end_every_subcommand_quietly() {
    let ground = Ground::new();
    for command in ground.commands() {
        for reader in ["head -1", "true"] {
            let script = format!("({command}) | {reader}");
            let finished = ground.run(&script);
            let code = finished.code();
            assert!(matches!(code, Some(0 | 141)), "{script}: {code:?} {}", finished.err);
            assert!(!finished.err.contains("panicked"), "{script}: {}", finished.err);
            assert!(finished.err.is_empty(), "{script}: {}", finished.err);
        }
    }
    ground.broker.stop();
}

#[test]
fn full_devices_are_a_clear_error_of_every_subcommand() {
    let ground = Ground::new();
    for command in ground.commands() {
        let script = format!("({command}) > /dev/full");
        let finished = ground.run(&script).expect_code(1);
        let said = "cannot write to standard output";
        assert!(finished.err.contains(said), "{script}: {}", finished.err);
    }
    ground.broker.stop();
}

#[test]
fn full_device_keeps_the_broker_from_starting() {
    let script = "$T broker --listen 127.0.0.1:0 > /dev/full";
    let finished = run(bash(script), b"").expect_code(1);
    assert!(finished.err.contains("cannot write to standard output"), "{}", finished.err);
}

#[test]
fn standard_error_on_a_full_device_changes_nothing_but_the_words() {
    run(bash("$T receive q --address mq://127.0.0.1:1/jms 2> /dev/full"), b"").expect_code(1);
    run(bash("$T nonsense 2> /dev/full"), b"").expect_code(2);
    run(bash("$T --version 2> /dev/full"), b"").expect_code(0);
}

#[test]
fn broker_goes_on_when_the_reader_of_its_first_line_has_gone() {
    let folder = tempfile::tempdir().unwrap();
    let pid = folder.path().join("pid");
    let broker = "exec $T broker --listen 127.0.0.1:0";
    let script = format!("(echo $BASHPID > {}; {broker}) | head -1", pid.display());
    let running = Running::start(bash(&script));
    running.line("tidegate broker");
    // The reader ends after its first line. The broker does not, until it is told to.
    let pid = wait_for("the broker's process id", || {
        fs::read_to_string(&pid).ok().filter(|text| text.ends_with('\n'))
    });
    let kill = Command::new("kill").args(["-s", "TERM", pid.trim()]).status().unwrap();
    assert!(kill.success(), "the broker had gone");
    running.finish().expect_code(0);
}

#[test]
fn files_and_pipes_get_no_escape_sequences_and_no_lone_carriage_returns() {
    let ground = Ground::new();
    for command in ground.commands() {
        for variables in ["", "NO_COLOR=1", "TERM=dumb", "COLUMNS=20", "CLICOLOR_FORCE=1"] {
            let out = ground.folder.path().join("out");
            let err = ground.folder.path().join("err");
            let (out_path, err_path) = (out.display(), err.display());
            let script = format!("export {variables}; ({command}) > {out_path} 2> {err_path}");
            ground.run(&script).expect_code(0);
            for file in [&out, &err] {
                let bytes = fs::read(file).unwrap();
                assert!(!bytes.contains(&0x1b), "{script}: escape in {}", file.display());
                assert!(!bytes.contains(&b'\r'), "{script}: return in {}", file.display());
            }
            assert!(fs::metadata(&out).unwrap().len() > 0, "{script}: printed nothing");
            assert_eq!(fs::metadata(&err).unwrap().len(), 0, "{script}: complained");
        }
    }
    ground.broker.stop();
}

/// What a terminal got, with the program's exit code.
fn on_terminal(ground: &Ground, variables: &str, command: &str) -> (i32, Vec<u8>) {
    ground.fill_for(command);
    let inner = ground.folder.path().join("inner.sh");
    let mut file = fs::File::create(&inner).unwrap();
    writeln!(file, "export {variables}\n{command}").unwrap();
    let typed = format!("bash {}", inner.display());
    let finished = run(bash(&format!("script -qefc '{typed}' /dev/null < /dev/null")), b"");
    assert!(!finished.err.contains("panicked"), "{}", finished.err);
    (finished.code().unwrap(), finished.out)
}

#[test]
fn dumb_terminals_get_plain_text() {
    let ground = Ground::new();
    for command in ground.commands() {
        let (code, out) = on_terminal(&ground, "TERM=dumb", &command);
        let text = String::from_utf8_lossy(&out);
        assert_eq!(code, 0, "{command}: {text}");
        assert!(!out.contains(&0x1b), "{command}: {text}");
        assert!(!text.contains("panicked"), "{command}: {text}");
    }
    ground.broker.stop();
}

#[test]
fn terminals_get_no_colour_if_no_colour_is_wanted() {
    let ground = Ground::new();
    for command in ground.commands() {
        let (code, out) = on_terminal(&ground, "NO_COLOR=1", &command);
        let text = String::from_utf8_lossy(&out);
        assert_eq!(code, 0, "{command}: {text}");
        assert!(!has_colour(&out), "{command}: {text:?}");
    }
    // Colour is there otherwise, so the check above can fail.
    let (code, out) = on_terminal(&ground, "TERM=xterm-256color", "$T --help");
    assert_eq!(code, 0);
    assert!(out.contains(&0x1b), "help has no colour on a terminal");
    ground.broker.stop();
}

/// Whether there is `ESC [ … m` with a number for a colour in it.
fn has_colour(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    text.split("\u{1b}[").skip(1).any(|rest| {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != ';').unwrap_or(rest.len());
        let (numbers, rest) = rest.split_at(end);
        let number = |part: &str| part.parse::<u32>().unwrap_or(0);
        rest.starts_with('m')
            && numbers.split(';').map(number).any(|n| (30..=107).contains(&n) && n != 39)
    })
}

#[test]
fn twenty_columns_break_nothing() {
    let ground = Ground::new();
    for command in ground.commands() {
        let (code, out) = on_terminal(&ground, "COLUMNS=20", &command);
        let text = String::from_utf8_lossy(&out);
        assert_eq!(code, 0, "{command}: {text}");
        assert!(!text.contains("panicked"), "{command}: {text}");
    }
    ground.broker.stop();
}

#[test]
fn long_work_shows_that_it_goes_on_also_in_a_pipe() {
    let demo = run(tidegate(["demo", "--seconds", "3", "--rate", "1000"]), b"").expect_code(0);
    let progress = demo.text().lines().filter(|line| line.starts_with("sent ")).count();
    assert!(progress >= 3, "{}", demo.text());
}

#[test]
fn text_of_strangers_cannot_steer_a_terminal() {
    let ground = Ground::new();
    let address = ground.broker.address();
    run(tidegate(["send", "evil", "--address", &address]), b"a\x1b[2Jb\n").expect_code(0);
    let receive = format!("$T receive evil --count 1 --address {address}");
    let (code, out) = on_terminal(&ground, "TERM=xterm", &receive);
    assert_eq!(code, 0);
    let text = String::from_utf8_lossy(&out);
    assert!(text.contains("a\\u{1b}[2Jb") && !out.contains(&0x1b), "{text:?}");
    ground.broker.stop();
}

#[test]
fn binary_messages_are_kept_from_a_terminal_and_stay_in_the_queue() {
    let ground = Ground::new();
    let address = ground.broker.address();
    run(tidegate(["send", "bin", "--whole", "--address", &address]), b"\xff\x00").expect_code(0);
    let receive = format!("$T receive bin --count 1 --address {address}");
    let (code, out) = on_terminal(&ground, "TERM=xterm", &receive);
    assert_eq!(code, 1, "{}", String::from_utf8_lossy(&out));
    let kept = run(tidegate(["receive", "bin", "--count", "1", "--address", &address]), b"");
    assert_eq!(kept.expect_code(0).out, b"\xff\x00");
    ground.broker.stop();
}

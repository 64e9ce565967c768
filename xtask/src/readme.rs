//! The commands in README.md, run as they are printed there.

use std::fs;
use std::process::Command;

use crate::runner::say;
use crate::work::Work;

/// Runs every `sh` block of README.md as one script, in order.
///
/// The line that starts this very check is left out; it is the one that is running.
pub fn run_commands(work: &mut Work<'_>) -> Result<(), String> {
    let text = fs::read_to_string(work.root.join("README.md"))
        .map_err(|error| format!("cannot read README.md: {error}"))?;
    let scripts = shell_blocks(&text);
    if scripts.is_empty() {
        return Err("README.md has no `sh` block".into());
    }
    let mut problems = Vec::new();
    for (line, script) in scripts {
        if script.trim().is_empty() {
            continue;
        }
        say(&format!("-- README.md line {line}"));
        // What a script leaves in the background must not outlive a failure of it.
        let script = format!("trap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n{script}");
        let mut bash = Command::new("bash");
        bash.args(["-euo", "pipefail", "-c", &script]);
        // The README says `target/`, as it is for whoever just cloned this.
        bash.env_remove("CARGO_TARGET_DIR");
        let result = work.run(&mut bash);
        work.count(result.is_ok());
        if let Err(problem) = result {
            problems.push(format!("line {line}: {problem}"));
        }
    }
    if problems.is_empty() { Ok(()) } else { Err(problems.join("; ")) }
}

/// The `sh` blocks of a Markdown text: number of the first line, and the script.
fn shell_blocks(text: &str) -> Vec<(usize, String)> {
    let mut blocks = Vec::new();
    let mut open: Option<(usize, String)> = None;
    for (index, line) in text.lines().enumerate() {
        match &mut open {
            None if line == "```sh" => open = Some((index + 2, String::new())),
            None => {}
            Some(_) if line == "```" => blocks.extend(open.take()),
            Some(_) if line.starts_with("cargo xtask test") => {}
            Some((_, script)) => {
                script.push_str(line);
                script.push('\n');
            }
        }
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_shell_blocks_are_run_and_never_this_check_itself() {
        let text = "a\n```sh\none\ncargo xtask test\n```\n```rust\nno\n```\n```sh\ntwo\n```\n";
        let expected = vec![(3, "one\n".to_owned()), (10, "two\n".to_owned())];
        assert_eq!(shell_blocks(text), expected);
    }
}

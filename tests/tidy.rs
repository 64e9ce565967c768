//! Reads the source text and holds what neither the compiler nor a lint can: which module may
//! use which, where models, clocks and locks may be named, how long a file may be, and that
//! nothing was left lying about.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// Longest file, in lines. Past this a file holds two ideas.
const FILE_LINES_MAX: usize = 900;

/// What each module may use. A module that is missing here may be used by everyone and uses
/// nothing, as `limits`.
const ARROWS: &[(&str, &[&str])] = &[
    ("sync", &[]),
    ("flow", &["sync"]),
    ("pool", &["sync"]),
    ("throttle", &["sync"]),
    ("wire", &[]),
    ("message", &["wire"]),
    ("selector", &["wire", "message"]),
    // Of `flow` only the meter, which has a single owner and no atomics.
    ("proto", &["flow", "wire", "message", "selector"]),
    ("store", &["sync", "wire", "message"]),
    ("in_process", &["sync"]),
    ("reactor", REACTOR),
    ("broker", ABOVE_REACTOR),
    ("client", ABOVE_REACTOR),
    ("channel", ABOVE_REACTOR),
    ("telemetry", &["sync"]),
    (
        "fuzzing",
        &[
            "wire",
            "message",
            "selector",
            "proto",
            "sync",
            "in_process",
            "reactor",
            "broker",
            "client",
            "store",
        ],
    ),
    ("internals", &["sync", "proto", "wire", "reactor"]),
];
const REACTOR: &[&str] = &[
    "sync",
    "flow",
    "pool",
    "throttle",
    "wire",
    "message",
    "selector",
    "proto",
    "telemetry",
    "in_process",
];
const ABOVE_REACTOR: &[&str] = &[
    "sync",
    "flow",
    "pool",
    "throttle",
    "wire",
    "message",
    "selector",
    "proto",
    "telemetry",
    "in_process",
    "store",
    "reactor",
];

/// Modules everybody may use.
const FREE: &[&str] = &["limits", "setting"];

/// Calls that are allowed in a few places only: the call, and the beginnings of those paths.
const PLACES: &[(&str, &[&str])] = &[
    (
        "Instant::now",
        &[
            "src/reactor/",
            "src/client/",
            "src/pool/clock.rs",
            "src/store/postgres/clock.rs",
            "src/sync/wait.rs",
        ],
    ),
    ("SystemTime::now", &["src/reactor/", "src/client/", "src/message/"]),
    ("thread::sleep", &[]),
    ("Mutex", &["src/sync/"]),
    ("RwLock", &["src/sync/"]),
    ("Condvar", &["src/sync/"]),
];

/// Where [`PLACES`] does not reach: the program, and what only tests and measures.
const OUTER: &[&str] = &["src/cli/", "tests/", "benches/", "examples/", "xtask/"];

#[test]
fn modules_use_only_what_lies_below_them() {
    let mut problems = Problems::default();
    for file in rust_files(&["src"]) {
        if file.name == "src/lib.rs" || file.name.starts_with("src/cli/") {
            continue;
        }
        let Some(module) = file.top_module() else { continue };
        let allowed = ARROWS.iter().find(|(name, _)| *name == module);
        for (line, used) in used_modules(&file) {
            let known = allowed.is_some_and(|(_, below)| below.contains(&used.as_str()));
            if used != module && !known && !FREE.contains(&used.as_str()) && is_module(&used) {
                problems.add(&file, line, &format!("`{module}` must not use `{used}`"));
            }
        }
    }
    problems.none();
}

#[test]
fn models_are_named_in_the_facade_only() {
    let mut problems = Problems::default();
    for file in rust_files(&["src", "tests", "benches", "examples"]) {
        if file.name.starts_with("src/sync/") || file.name == "src/lib.rs" {
            continue;
        }
        for (line, text) in file.code_lines() {
            if text.contains("cfg") && has_word(text, "loom") {
                problems.add(&file, line, "asks whether this is a model");
            }
        }
    }
    problems.none();
}

#[test]
fn clocks_and_locks_stay_where_they_belong() {
    let mut problems = Problems::default();
    for file in rust_files(&["src"]) {
        if OUTER.iter().any(|place| file.name.starts_with(place)) {
            continue;
        }
        for (line, text) in file.code_lines() {
            for (call, places) in PLACES {
                let here = places.iter().any(|place| file.name.starts_with(place));
                if !here && has_word(text, call) {
                    problems.add(&file, line, &format!("`{call}` does not belong here"));
                }
            }
        }
    }
    problems.none();
}

#[test]
fn tests_wait_for_conditions_instead_of_sleeping() {
    let mut problems = Problems::default();
    for file in rust_files(&["tests", "benches", "examples"]) {
        // The waiting itself lives in a few places, which look again until a deadline.
        if file.name.contains("support/") {
            continue;
        }
        for (line, text) in file.code_lines() {
            if has_word(text, "thread::sleep") && !file.explains(line) {
                problems.add(&file, line, "a bare sleep; wait for a condition, or say why above");
            }
        }
    }
    problems.none();
}

#[test]
fn files_stay_short() {
    let mut problems = Problems::default();
    for file in rust_files(ALL) {
        let lines = file.text.lines().count();
        if lines >= FILE_LINES_MAX {
            problems.add(&file, lines, "too long; it holds two ideas");
        }
    }
    problems.none();
}

#[test]
fn nothing_is_left_unfinished() {
    let markers: Vec<String> =
        [["TO", "DO"], ["FIX", "ME"], ["XX", "X"], ["HA", "CK"], ["WI", "P"]]
            .map(|pair| pair.concat())
            .to_vec();
    let calls = ["todo!", "unimplemented!", "dbg!"];
    let mut problems = Problems::default();
    for file in rust_files(ALL).into_iter().chain(prose_files()) {
        for (index, text) in file.text.lines().enumerate() {
            if let Some(marker) = markers.iter().find(|marker| has_word(text, marker)) {
                problems.add(&file, index + 1, &format!("leftover marker {marker}"));
            }
        }
        for (line, text) in file.code_lines() {
            if let Some(call) = calls.iter().find(|call| text.contains(**call)) {
                problems.add(&file, line, &format!("leftover {call}"));
            }
        }
    }
    problems.none();
}

#[test]
fn nothing_points_outside_the_project() {
    // In pieces, so that this file does not find itself.
    let words = [["/ro", "ot/"], ["/ho", "me/"], ["/tm", "p/"]].map(|pair| pair.concat());
    let mut problems = Problems::default();
    for file in rust_files(ALL).into_iter().chain(prose_files()) {
        for (index, text) in file.text.lines().enumerate() {
            if let Some(word) = words.iter().find(|word| text.contains(word.as_str())) {
                problems.add(&file, index + 1, &format!("`{word}` means nothing to a reader"));
            }
        }
    }
    problems.none();
}

#[test]
fn this_reader_sees_code_and_not_comments_or_strings() {
    let text = "let a = \"crate::no\"; // crate::no\n/* crate::no /* x */ */ let c = '\"';\n\
                let r = r#\"crate::no \" \"#; fn f<'a>(x: &'a str) { crate::yes::g() }\n\
                use crate::{one, two::{self, three}};\n";
    let file = File { name: "src/a/b.rs".into(), text: text.into(), code: strip(text) };
    let used: Vec<(usize, String)> = used_modules(&file);
    let expected = [(3, "yes"), (4, "one"), (4, "two")];
    assert_eq!(used, expected.map(|(line, name)| (line, name.to_owned())));
    let file =
        File { name: "src/a/b.rs".into(), text: String::new(), code: "super::super::c::d".into() };
    assert_eq!(used_modules(&file), [(1, "c".to_owned())]);
    let file = File { name: "src/a/b.rs".into(), text: String::new(), code: "super::c::d".into() };
    assert_eq!(used_modules(&file), []);
}

const ALL: &[&str] =
    &["src", "tests", "benches", "examples", "faults", "xtask", "loom-tests", "fuzz"];

/// What a test found, so that one run shows all of it.
#[derive(Default)]
struct Problems(String);

impl Problems {
    fn add(&mut self, file: &File, line: usize, what: &str) {
        writeln!(self.0, "{}:{line}: {what}", file.name).unwrap();
    }

    #[track_caller]
    fn none(self) {
        assert!(self.0.is_empty(), "\n{}", self.0);
    }
}

struct File {
    /// Path from the root of the project, with `/`.
    name: String,
    text: String,
    /// The text with comments, strings and characters blanked out, lines kept.
    code: String,
}

impl File {
    fn read(path: &Path) -> Self {
        let name = path.strip_prefix(root()).unwrap().to_str().unwrap().replace('\\', "/");
        let text = fs::read_to_string(path).unwrap();
        let is_rust = path.extension().is_some_and(|end| end == "rs");
        let code = if is_rust { strip(&text) } else { String::new() };
        Self { name, text, code }
    }

    fn code_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.code.lines().enumerate().map(|(index, text)| (index + 1, text))
    }

    /// The module under `src` this file belongs to.
    fn top_module(&self) -> Option<&str> {
        let inside = self.name.strip_prefix("src/")?;
        let end = inside.find(['/', '.'])?;
        inside.get(..end)
    }

    /// How many `super`s lead from this file to the root of the crate.
    fn depth(&self) -> usize {
        let inside = self.name.trim_start_matches("src/").trim_end_matches(".rs");
        let parts = inside.split('/').count();
        if inside.ends_with("/mod") { parts - 1 } else { parts }
    }

    /// Whether the line before `line` is a comment.
    fn explains(&self, line: usize) -> bool {
        let before = line.checked_sub(2).and_then(|index| self.text.lines().nth(index));
        before.is_some_and(|text| text.trim_start().starts_with("//"))
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn is_module(name: &str) -> bool {
    let source = root().join("src");
    source.join(name).is_dir() || source.join(format!("{name}.rs")).is_file()
}

fn rust_files(folders: &[&str]) -> Vec<File> {
    let mut paths = Vec::new();
    for folder in folders {
        collect(&root().join(folder), &mut paths);
    }
    paths.sort();
    assert!(!paths.is_empty(), "no source found");
    paths.iter().map(|path| File::read(path)).collect()
}

fn collect(folder: &Path, into: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap();
        if path.is_dir() && name != "target" && name != "corpus" && name != "artifacts" {
            collect(&path, into);
        } else if path.extension().is_some_and(|end| end == "rs") {
            into.push(path);
        }
    }
}

fn prose_files() -> Vec<File> {
    ["README.md", "ARCHITECTURE.md", "CHANGELOG.md", "Cargo.toml", ".ci/run"]
        .map(|name| File::read(&root().join(name)))
        .into()
}

/// Top-level modules of the crate a file names, with the line.
fn used_modules(file: &File) -> Vec<(usize, String)> {
    let mut used = Vec::new();
    let code = &file.code;
    for (start, _) in code.match_indices("crate::") {
        if !starts_word(code, start) {
            continue;
        }
        used.extend(names_at(code, start + "crate::".len()));
    }
    let to_root = "super::".repeat(file.depth());
    for (start, _) in code.match_indices(&to_root) {
        // Inside a nested module one more `super` only leads back to this file's own module.
        let more = code[start + to_root.len()..].starts_with("super");
        if starts_word(code, start) && !code[..start].ends_with("super::") && !more {
            used.extend(names_at(code, start + to_root.len()));
        }
    }
    let line_of = |at: usize| code[..at].matches('\n').count() + 1;
    used.into_iter().map(|(at, name)| (line_of(at), name)).collect()
}

/// The name at `at`, or the first names of all members of the group in braces there.
fn names_at(code: &str, at: usize) -> Vec<(usize, String)> {
    let rest = &code[at..];
    if !rest.starts_with('{') {
        return vec![(at, word(rest))];
    }
    let mut names = Vec::new();
    let mut depth = 0;
    let mut fresh = false;
    for (offset, c) in rest.char_indices() {
        match c {
            '{' => {
                depth += 1;
                fresh = depth == 1;
            }
            '}' if depth == 1 => break,
            '}' => depth -= 1,
            ',' => fresh = depth == 1,
            _ if fresh && !c.is_whitespace() => {
                names.push((at + offset, word(&rest[offset..])));
                fresh = false;
            }
            _ => {}
        }
    }
    names
}

fn word(text: &str) -> String {
    text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}

fn starts_word(code: &str, at: usize) -> bool {
    let before = code[..at].chars().next_back();
    !before.is_some_and(|c| c.is_alphanumeric() || c == '_')
}

fn has_word(text: &str, wanted: &str) -> bool {
    text.match_indices(wanted).any(|(at, _)| {
        let after = text[at + wanted.len()..].chars().next();
        starts_word(text, at) && !after.is_some_and(|c| c.is_alphanumeric() || c == '_')
    })
}

/// Blanks comments, strings and characters, and keeps every line end.
fn strip(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let skip = match c {
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => block_comment(rest),
            '"' => quoted(rest),
            'r' | 'b' | 'c' if starts_word(text, text.len() - rest.len()) => raw_or_byte(rest),
            '\'' => character(rest),
            _ => 0,
        };
        if skip == 0 {
            out.push(c);
            rest = &rest[c.len_utf8()..];
        } else {
            out.extend(rest[..skip].chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
            rest = &rest[skip..];
        }
    }
    out
}

fn block_comment(text: &str) -> usize {
    let bytes = text.as_bytes();
    let (mut at, mut depth) = (0, 0);
    while at < bytes.len() {
        if bytes[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if bytes[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    at
}

fn quoted(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

fn raw_or_byte(text: &str) -> usize {
    let prefix = text.len() - text.trim_start_matches(['r', 'b', 'c']).len();
    if prefix > 2 {
        return 0;
    }
    let body = &text[prefix..];
    if !text[..prefix].contains('r') {
        return if body.starts_with('"') { prefix + quoted(body) } else { 0 };
    }
    let hashes = body.len() - body.trim_start_matches('#').len();
    if !body[hashes..].starts_with('"') {
        return 0;
    }
    let end = format!("\"{}", "#".repeat(hashes));
    let from = prefix + hashes + 1;
    text[from..].find(&end).map_or(text.len(), |at| from + at + end.len())
}

/// Length of a character literal, or 0 if this quote begins a lifetime.
fn character(text: &str) -> usize {
    let mut chars = text.char_indices().skip(1);
    match chars.next() {
        Some((_, '\\')) => {
            chars.next();
            text[3..].find('\'').map_or(0, |at| at + 4)
        }
        Some((at, c)) if text[at + c.len_utf8()..].starts_with('\'') => at + c.len_utf8() + 1,
        _ => 0,
    }
}

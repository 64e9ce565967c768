//! The one place that prints.
//!
//! Invariants: nothing here panics because of where the output goes; an error of writing reaches
//! the exit code; escape sequences and lone carriage returns go to a terminal only, and not to one
//! that is dumb; text of strangers cannot steer a terminal.
//!
//! | | pipe or file | terminal | `TERM=dumb` | `NO_COLOR` |
//! | --- | --- | --- | --- | --- |
//! | lines | plain | plain | plain | plain |
//! | live table | no, a line from time to time | yes | no, as in a file | yes |
//! | colour | no | help and errors | no | no |

use std::borrow::Cow;
use std::env;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal as _, Write};
use std::os::fd::AsFd as _;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::failure::Failure;

/// Columns when nobody says how many there are.
const WIDTH_DEFAULT: usize = 80;

/// Fewest and most columns text is laid out for.
const WIDTH_MIN: usize = 20;
const WIDTH_MAX: usize = 100;

/// Below this, what belongs together stands on lines of its own.
const WIDTH_NARROW: usize = 60;

/// How often a live display is drawn, per second.
const DRAWS_PER_SECOND: u8 = 10;

/// Where results go: standard output, unless it is told otherwise.
pub(super) struct Output {
    to: BufWriter<Box<dyn Write + Send>>,
    name: String,
    terminal: bool,
    dumb: bool,
}

impl Output {
    /// Standard output.
    pub(super) fn standard() -> Result<Self, Failure> {
        // Through a handle of its own: the standard one buffers by line and forgets errors.
        let name = "standard output";
        let handle = io::stdout().as_fd().try_clone_to_owned();
        let handle = handle.map_err(|error| Failure::output(name, &error))?;
        Ok(Self {
            to: BufWriter::new(Box::new(File::from(handle))),
            name: name.to_owned(),
            terminal: io::stdout().is_terminal(),
            dumb: is_dumb(),
        })
    }

    /// A file, made new or emptied.
    pub(super) fn file(path: &std::path::Path) -> Result<Self, Failure> {
        let name = path.display().to_string();
        let file = File::create(path).map_err(|error| Failure::output(&name, &error))?;
        Ok(Self { to: BufWriter::new(Box::new(file)), name, terminal: false, dumb: true })
    }

    /// Prints a line of the program's own words.
    pub(super) fn line(&mut self, text: &str) -> Result<(), Failure> {
        let result = self.to.write_all(text.as_bytes()).and_then(|()| self.to.write_all(b"\n"));
        self.checked(result)
    }

    /// Prints several lines that end where they end.
    pub(super) fn text(&mut self, text: &str) -> Result<(), Failure> {
        let result = self.to.write_all(text.as_bytes());
        self.checked(result)
    }

    /// Prints a line that came from somewhere else. On a terminal its control characters are
    /// shown instead of obeyed.
    pub(super) fn foreign_line(&mut self, text: &str) -> Result<(), Failure> {
        let text = if self.terminal { visible(text) } else { Cow::Borrowed(text) };
        self.line(&text)
    }

    /// Prints rows below titles, each column as wide as it must be. Control characters in them are
    /// shown, as they could break a row as well.
    pub(super) fn table(
        &mut self,
        columns: &[Column<'_>],
        rows: &[Vec<String>],
    ) -> Result<(), Failure> {
        let shown = |text: &str| visible(text).replace('\t', " ");
        let titles = columns.iter().map(|column| column.title.to_owned()).collect();
        let rows = rows.iter().map(|row| row.iter().map(|cell| shown(cell)).collect());
        let rows: Vec<Vec<String>> = std::iter::once(titles).chain(rows).collect();
        let wide = |at: usize| {
            let cells = rows.iter().filter_map(|row| row.get(at));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns.len()).map(wide).collect();
        for row in &rows {
            let mut line = String::new();
            for ((cell, column), &width) in row.iter().zip(columns).zip(&widths) {
                let _infallible = match column.align {
                    Align::Left => write!(line, "{cell:width$}  "),
                    Align::Right => write!(line, "{cell:>width$}  "),
                };
            }
            self.line(line.trim_end())?;
        }
        Ok(())
    }

    /// Writes bytes as they are.
    pub(super) fn bytes(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let result = self.to.write_all(bytes);
        self.checked(result)
    }

    /// Makes sure that everything so far has arrived.
    pub(super) fn flush(&mut self) -> Result<(), Failure> {
        let result = self.to.flush();
        self.checked(result)
    }

    /// As [`Output::flush`], at the end.
    pub(super) fn finish(&mut self) -> Result<(), Failure> {
        self.flush()
    }

    /// Whether a person looks at it.
    pub(super) fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// Whether it may be coloured.
    pub(super) fn colour(&self) -> bool {
        self.terminal && !self.dumb && !colour_refused()
    }

    /// Columns to lay text out for.
    pub(super) fn width(&self) -> usize {
        let told = env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
        let seen = || self.terminal.then(console_width).flatten();
        told.or_else(seen).unwrap_or(WIDTH_DEFAULT).clamp(WIDTH_MIN, WIDTH_MAX)
    }

    /// Whether two columns of text do not fit side by side.
    pub(super) fn is_narrow(&self) -> bool {
        self.width() < WIDTH_NARROW
    }

    /// A display that is drawn over and over, if this is a terminal that can do it.
    pub(super) fn live(&self, rows: usize, seconds: u64) -> Option<Live> {
        (self.terminal && !self.dumb).then(|| Live::new(rows, seconds, self.width()))
    }

    fn checked(&self, result: io::Result<()>) -> Result<(), Failure> {
        result.map_err(|error| Failure::output(&self.name, &error))
    }
}

/// A column of a table.
#[derive(Debug, Clone, Copy)]
pub(super) struct Column<'a> {
    /// What stands above it.
    pub(super) title: &'a str,
    /// On which side its text begins or ends.
    pub(super) align: Align,
}

/// Where the text of a column stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Align {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

/// Rows of text above a bar, drawn over and over.
pub(super) struct Live {
    all: MultiProgress,
    rows: Vec<ProgressBar>,
    bar: ProgressBar,
    width: usize,
}

impl Live {
    fn new(rows: usize, seconds: u64, width: usize) -> Self {
        let target = ProgressDrawTarget::stdout_with_hz(DRAWS_PER_SECOND);
        let all = MultiProgress::with_draw_target(target);
        let row_style = ProgressStyle::with_template("{msg}").expect("a valid template");
        let rows =
            (0..rows).map(|_| all.add(ProgressBar::new(0).with_style(row_style.clone()))).collect();
        // The text beside the bar takes a dozen columns.
        let template = format!("[{{bar:{}}}] {{pos}}/{{len}} s", width.saturating_sub(14).max(4));
        let bar_style = ProgressStyle::with_template(&template).expect("a valid template");
        let bar = all.add(ProgressBar::new(seconds).with_style(bar_style.progress_chars("=> ")));
        Self { all, rows, bar, width }
    }

    /// Shows these rows, cut to the width, and how far it is.
    pub(super) fn show(&self, rows: &[String], seconds: u64) {
        for (row, text) in self.rows.iter().zip(rows) {
            row.set_message(text.chars().take(self.width).collect::<String>());
            row.tick();
        }
        self.bar.set_position(seconds);
    }
}

impl Drop for Live {
    /// Takes the display away, so that what follows begins on a clean line.
    fn drop(&mut self) {
        for row in self.rows.iter().chain([&self.bar]) {
            row.finish_and_clear();
        }
        let _nobody_looks = self.all.clear();
    }
}

/// Tells the user something beside the results, if standard error still works.
pub(super) fn complain(text: &str) {
    let mut to = io::stderr().lock();
    let _nobody_left_to_tell = to.write_all(text.as_bytes()).and_then(|()| to.write_all(b"\n"));
}

/// Whether messages on standard error may be coloured.
pub(super) fn colour_on_stderr() -> bool {
    io::stderr().is_terminal() && !is_dumb() && !colour_refused()
}

fn colour_refused() -> bool {
    env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
}

fn is_dumb() -> bool {
    env::var_os("TERM").is_none_or(|name| name == "dumb" || name.is_empty())
}

fn console_width() -> Option<usize> {
    terminal_size::terminal_size().map(|(width, _)| usize::from(width.0))
}

/// `text` with control characters other than tabs written out.
fn visible(text: &str) -> Cow<'_, str> {
    let steers = |c: char| c.is_control() && c != '\t';
    if !text.contains(steers) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if steers(c) {
            let _infallible = write!(shown, "{}", c.escape_default());
        } else {
            shown.push(c);
        }
    }
    Cow::Owned(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_of_strangers_are_shown_and_not_obeyed() {
        assert_eq!(visible("plain\ttext"), "plain\ttext");
        assert_eq!(visible("a\u{1b}[2Jb\r"), "a\\u{1b}[2Jb\\r");
    }

    #[test]
    fn columns_are_as_wide_as_what_stands_in_them() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("table");
        let mut output = Output::file(&path).unwrap();
        let columns = [
            Column { title: "NAME", align: Align::Left },
            Column { title: "N", align: Align::Right },
            Column { title: "MORE", align: Align::Left },
        ];
        let row = |name: &str, n: &str, more: &str| vec![name.into(), n.into(), more.into()];
        output.table(&columns, &[row("å-long", "5", "x"), row("b\n", "100", "")]).unwrap();
        output.finish().unwrap();
        let text = std::fs::read_to_string(path).unwrap();
        assert_eq!(text, "NAME      N  MORE\nå-long    5  x\nb\\n     100\n");
    }

    #[test]
    fn full_device_is_an_error_at_the_latest_when_flushed() {
        let Ok(full) = File::options().write(true).open("/dev/full") else { return };
        let mut output = Output {
            to: BufWriter::new(Box::new(full)),
            name: "standard output".into(),
            terminal: false,
            dumb: true,
        };
        output.line("short").unwrap();
        let failure = output.finish().unwrap_err();
        assert!(matches!(failure, Failure::Failed(text) if text.contains("standard output")));
    }
}

//! Numbers as Java writes and reads them.

use std::str::FromStr;

/// A `float` or `double` as Java writes it: with a point and at least one digit on both sides; from
/// 10⁷ on and below 10⁻³ with an exponent.
pub(super) fn write(shortest: &str, size: f64) -> String {
    if size.is_nan() {
        return "NaN".to_owned();
    }
    if size.is_infinite() {
        return if size < 0.0 { "-Infinity" } else { "Infinity" }.to_owned();
    }
    let plain = size == 0.0 || (1e-3..1e7).contains(&size.abs());
    // The shortest digits that tell the number from its neighbours: `-1.25e-7`.
    let (digits, exponent) = shortest.split_once('e').unwrap_or((shortest, "0"));
    let (sign, digits) = digits.strip_prefix('-').map_or(("", digits), |rest| ("-", rest));
    if !plain {
        let point = if digits.contains('.') { "" } else { ".0" };
        return format!("{sign}{digits}{point}E{exponent}");
    }
    let all: String = digits.chars().filter(|&c| c != '.').collect();
    // Digits before the point; zero or fewer for what is below one.
    let whole = exponent.parse::<i32>().unwrap_or(0) + 1;
    let (before, after) = match usize::try_from(whole) {
        Ok(whole) if whole >= 1 && whole < all.len() => {
            (all[..whole].to_owned(), all[whole..].to_owned())
        }
        Ok(whole) if whole >= 1 => (format!("{all:0<whole$}"), "0".to_owned()),
        _ => {
            let zeros = usize::try_from(-whole).unwrap_or(0);
            ("0".to_owned(), format!("{}{all}", "0".repeat(zeros)))
        }
    };
    format!("{sign}{before}.{after}")
}

/// A `float` or `double` as Java reads it: blanks around it and a suffix of its type do not matter.
/// Hexadecimal ones are not read.
pub(super) fn read<F: FromStr>(text: &str) -> Option<F> {
    let text = text.trim_matches(|c: char| c <= ' ');
    let size = text.strip_prefix(['+', '-']).unwrap_or(text);
    if matches!(size, "NaN" | "Infinity") {
        return text.parse().ok();
    }
    // What else is no digit or point at first, Rust may know, but Java does not.
    if !size.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return None;
    }
    text.strip_suffix(['f', 'F', 'd', 'D']).unwrap_or(text).parse().ok()
}

#[cfg(test)]
mod tests {
    use super::{read, write};

    #[test]
    fn numbers_are_written_as_java_writes_them() {
        // As `Double.toString` gives them.
        for (number, text) in [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (2.0, "2.0"),
            (-1.5, "-1.5"),
            (0.001, "0.001"),
            (0.05, "0.05"),
            (0.000_999, "9.99E-4"),
            (123_456.789, "123456.789"),
            (9_999_999.0, "9999999.0"),
            (1e7, "1.0E7"),
            (1.25e10, "1.25E10"),
            (-1e-7, "-1.0E-7"),
            (100.0, "100.0"),
            (f64::MAX, "1.7976931348623157E308"),
            (f64::NAN, "NaN"),
            (f64::NEG_INFINITY, "-Infinity"),
        ] {
            assert_eq!(write(&format!("{number:e}"), number), text);
        }
        let single = 0.1_f32;
        assert_eq!(write(&format!("{single:e}"), single.into()), "0.1");
    }

    #[test]
    fn numbers_are_read_as_java_reads_them() {
        for (text, number) in [
            ("2.5", 2.5),
            (" 2.5\t", 2.5),
            ("+1e3", 1000.0),
            ("1.5f", 1.5),
            ("7D", 7.0),
            (".5", 0.5),
            ("5.", 5.0),
            ("-Infinity", f64::NEG_INFINITY),
        ] {
            assert_eq!(read::<f64>(text), Some(number), "{text}");
        }
        assert!(read::<f64>("NaN").is_some_and(f64::is_nan));
        for text in ["", " ", "inf", "nan", "infinity", "1.5x", "f", "1 2", "--1", "1ff"] {
            assert_eq!(read::<f64>(text), None, "{text}");
        }
    }
}

//! The words of a selector.

use std::fmt;

use winnow::{
    LocatingSlice, ModalResult, Parser,
    ascii::{Caseless, digit0, digit1},
    combinator::{
        alt, cut_err, delimited, dispatch, empty, eof, fail, not, opt, peek, preceded, repeat,
        terminated,
    },
    error::{AddContext, ErrMode, ParserError},
    stream::{AsChar, Location, Stream},
    token::{any, one_of, take_till, take_while},
};

use super::{
    Dialect, SelectorError,
    error::column,
    program::{Calculation, Comparison},
};
use crate::message::identifier::{is_part, is_start};

/// One word of a selector.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Token<'t> {
    Word(Word),
    Name(&'t str),
    /// What stands between the quotes; quotes inside are still doubled.
    Text(&'t str),
    /// Its size; a sign is a token of its own.
    Integer(u64),
    Double(f64),
    Compare(Comparison),
    Calculate(Calculation),
    Open,
    Close,
    Comma,
    End,
}

/// The words of the language.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Word {
    Not,
    And,
    Or,
    Between,
    Like,
    In,
    Is,
    Escape,
    Null,
    True,
    False,
}

const WORDS: [(&str, Word); 11] = [
    ("NOT", Word::Not),
    ("AND", Word::And),
    ("OR", Word::Or),
    ("BETWEEN", Word::Between),
    ("LIKE", Word::Like),
    ("IN", Word::In),
    ("IS", Word::Is),
    ("ESCAPE", Word::Escape),
    ("NULL", Word::Null),
    ("TRUE", Word::True),
    ("FALSE", Word::False),
];

/// A string literal as it is meant: doubled quotes are one.
pub(super) fn unquoted(literal: &str) -> String {
    literal.replace("''", "'")
}

/// Text for an error: cut, on one line, with what cannot be seen spelt out.
fn shown(text: &str) -> String {
    const CHARS: usize = 40;
    let mut out = String::new();
    for c in text.chars().take(CHARS) {
        match c {
            '\'' | '"' => out.push(c),
            c => out.extend(c.escape_debug()),
        }
    }
    if text.chars().nth(CHARS).is_some() {
        out.push('…');
    }
    out
}

/// How a token is named in an error. Long ones are cut.
impl fmt::Display for Token<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Word(word) => {
                let name = WORDS.iter().find(|(_, known)| known == word).map(|(name, _)| name);
                f.write_str(name.unwrap_or(&"a word"))
            }
            Self::Name(name) => write!(f, "the name `{}`", shown(name)),
            Self::Text(text) => write!(f, "the string '{}'", shown(text)),
            Self::Integer(value) => write!(f, "the number {value}"),
            Self::Double(value) => write!(f, "the number {value:?}"),
            Self::Compare(comparison) => write!(f, "`{}`", comparison.symbol()),
            Self::Calculate(calculation) => write!(f, "`{}`", calculation.symbol()),
            Self::Open => f.write_str("`(`"),
            Self::Close => f.write_str("`)`"),
            Self::Comma => f.write_str("`,`"),
            Self::End => f.write_str("the end"),
        }
    }
}

/// The tokens of a text, one after the other.
pub(super) struct Tokens<'t> {
    text: &'t str,
    input: Input<'t>,
    dialect: Dialect,
    ahead: Option<Placed<'t>>,
}

/// A token, and the byte it begins at.
#[derive(Debug, Clone, Copy)]
pub(super) struct Placed<'t> {
    pub(super) token: Token<'t>,
    pub(super) at: usize,
}

impl<'t> Tokens<'t> {
    pub(super) fn new(text: &'t str, dialect: Dialect) -> Self {
        Self { text, input: LocatingSlice::new(text), dialect, ahead: None }
    }

    pub(super) fn text(&self) -> &'t str {
        self.text
    }

    /// Takes the next one; after the last one that is always [`Token::End`].
    pub(super) fn next(&mut self) -> Result<Placed<'t>, SelectorError> {
        match self.ahead.take() {
            Some(ahead) => Ok(ahead),
            None => self.read(),
        }
    }

    /// Looks at the next one.
    pub(super) fn peek(&mut self) -> Result<Placed<'t>, SelectorError> {
        let ahead = self.next()?;
        self.ahead = Some(ahead);
        Ok(ahead)
    }

    fn read(&mut self) -> Result<Placed<'t>, SelectorError> {
        match placed(self.dialect).parse_next(&mut self.input) {
            Ok(placed) => Ok(placed),
            Err(ErrMode::Cut(mistake) | ErrMode::Backtrack(mistake)) => {
                Err(mistake.describe(self.text))
            }
            // Only input that arrives piece by piece can be incomplete.
            Err(ErrMode::Incomplete(_)) => Err(Mistake::default().describe(self.text)),
        }
    }
}

type Input<'t> = LocatingSlice<&'t str>;

/// What is wrong, and at which byte.
#[derive(Debug, Clone, Copy, Default)]
struct Mistake {
    at: usize,
    reason: Reason,
}

#[derive(Debug, Clone, Copy, Default)]
enum Reason {
    /// The character there fits nothing.
    #[default]
    Unknown,
    /// The character there is not what has to come.
    Not(&'static str),
    /// The token that begins there is wrong as a whole.
    Token(&'static str),
}

impl ParserError<Input<'_>> for Mistake {
    type Inner = Self;

    fn from_input(input: &Input<'_>) -> Self {
        Self { at: input.current_token_start(), reason: Reason::Unknown }
    }

    fn into_inner(self) -> Result<Self, Self> {
        Ok(self)
    }
}

impl<'t> AddContext<Input<'t>> for Mistake {
    fn add_context(
        mut self,
        _: &Input<'t>,
        _: &<Input<'t> as Stream>::Checkpoint,
        reason: &'static str,
    ) -> Self {
        if matches!(self.reason, Reason::Unknown) {
            self.reason = Reason::Not(reason);
        }
        self
    }
}

/// A mistake in the token that begins at `at`.
fn wrong<T>(at: usize, reason: &'static str) -> ModalResult<T, Mistake> {
    Err(ErrMode::Cut(Mistake { at, reason: Reason::Token(reason) }))
}

impl Mistake {
    fn describe(self, text: &str) -> SelectorError {
        let column = column(text, self.at);
        let reason = match self.reason {
            Reason::Token(reason) => reason.to_owned(),
            Reason::Not(reason) => format!("at {}: {reason}", found(text, self.at)),
            Reason::Unknown => format!("{} is no part of a selector", found(text, self.at)),
        };
        SelectorError::Malformed { column, reason }
    }
}

/// What stands at a byte of the text.
fn found(text: &str, at: usize) -> String {
    match text.get(at..).and_then(|rest| rest.chars().next()) {
        Some(c) => format!("`{}`", shown(c.encode_utf8(&mut [0; 4]))),
        None => Token::End.to_string(),
    }
}

fn placed<'t>(dialect: Dialect) -> impl Parser<Input<'t>, Placed<'t>, ErrMode<Mistake>> {
    let token = alt((eof.value(Token::End), string, number(dialect), word, sign, unknown));
    preceded(take_while(0.., [' ', '\t', '\n', '\r', '\x0C']), token.with_span())
        .map(|(token, span)| Placed { token, at: span.start })
}

fn string<'t>(input: &mut Input<'t>) -> ModalResult<Token<'t>, Mistake> {
    let at = input.current_token_start();
    let piece = alt((take_till(1.., '\'').void(), "''".void()));
    let text = preceded('\'', repeat::<_, _, (), _, _>(0.., piece).take()).parse_next(input)?;
    if opt('\'').parse_next(input)?.is_none() {
        return wrong(at, "this string never ends (a quote inside a string is written twice)");
    }
    Ok(Token::Text(text))
}

fn number<'t>(dialect: Dialect) -> impl Parser<Input<'t>, Token<'t>, ErrMode<Mistake>> {
    // A full stop alone begins no number.
    let begins = peek((opt('.'), one_of('0'..='9')));
    let ends = not(one_of(|c| is_part(c) || c == '.')).context("a number has to end before this");
    preceded(begins, cut_err(terminated(alt((hexadecimal, decimal(dialect))), ends)))
}

fn hexadecimal<'t>(input: &mut Input<'t>) -> ModalResult<Token<'t>, Mistake> {
    let digits =
        cut_err(take_while(1.., AsChar::is_hex_digit)).context("after 0x stand hexadecimal digits");
    delimited(Caseless("0x"), digits, opt(one_of(['l', 'L'])))
        .map(|digits| integer(digits, 16))
        .parse_next(input)
}

fn decimal<'t>(dialect: Dialect) -> impl Parser<Input<'t>, Token<'t>, ErrMode<Mistake>> {
    let (signs, reason) = match dialect {
        Dialect::Jms => (['+', '-'], "an exponent is digits, perhaps after a sign"),
        Dialect::Reference => (['-', '-'], "an exponent is digits, perhaps after `-`"),
    };
    move |input: &mut Input<'t>| {
        let at = input.current_token_start();
        let exponent = (one_of(['e', 'E']), opt(one_of(signs)), cut_err(digit1).context(reason));
        let ((digits, fraction, exponent), written) =
            (digit0, opt(('.', digit0)), opt(exponent)).with_taken().parse_next(input)?;
        let is_double = opt(one_of(['d', 'D', 'f', 'F'])).parse_next(input)?.is_some();
        if is_double || fraction.is_some() || exponent.is_some() {
            return match written.parse::<f64>() {
                Ok(value) if value.is_finite() => Ok(Token::Double(value)),
                _ => wrong(at, "this number is beyond the range of a double"),
            };
        }
        opt(one_of(['l', 'L'])).parse_next(input)?;
        if !digits.starts_with('0') {
            Ok(integer(digits, 10))
        } else if digits.contains(['8', '9']) {
            wrong(at, "this number begins with 0, so it is octal and has digits from 0 to 7 only")
        } else {
            Ok(integer(digits, 8))
        }
    }
}

/// A number too large for the type is too large for its users too, so the type's largest stands
/// for it.
fn integer<'t>(digits: &str, radix: u32) -> Token<'t> {
    Token::Integer(u64::from_str_radix(digits, radix).unwrap_or(u64::MAX))
}

fn word<'t>(input: &mut Input<'t>) -> ModalResult<Token<'t>, Mistake> {
    let name = (one_of(is_start), take_while(0.., is_part)).take().parse_next(input)?;
    let word = WORDS.iter().find(|(word, _)| word.eq_ignore_ascii_case(name));
    Ok(word.map_or(Token::Name(name), |&(_, word)| Token::Word(word)))
}

fn sign<'t>(input: &mut Input<'t>) -> ModalResult<Token<'t>, Mistake> {
    dispatch! { any;
        '=' => not('=').value(Token::Compare(Comparison::Equal)),
        '<' => alt((
            '>'.value(Comparison::NotEqual),
            '='.value(Comparison::LessEqual),
            empty.value(Comparison::Less),
        )).map(Token::Compare),
        '>' => alt((
            '='.value(Comparison::GreaterEqual),
            empty.value(Comparison::Greater),
        )).map(Token::Compare),
        '+' => empty.value(Token::Calculate(Calculation::Add)),
        '-' => empty.value(Token::Calculate(Calculation::Subtract)),
        '*' => empty.value(Token::Calculate(Calculation::Multiply)),
        '/' => empty.value(Token::Calculate(Calculation::Divide)),
        '(' => empty.value(Token::Open),
        ')' => empty.value(Token::Close),
        ',' => empty.value(Token::Comma),
        _ => fail,
    }
    .parse_next(input)
}

/// What begins no token, with a word about what was meant.
fn unknown<'t>(input: &mut Input<'t>) -> ModalResult<Token<'t>, Mistake> {
    let reason = match peek(any).parse_next(input)? {
        '=' => "`==` is no operator, equal is `=`",
        '!' => "`!` is no operator, not equal is `<>`",
        '"' => "strings stand between single quotes, names without any",
        '.' => "names have no full stop in them, and a number needs a digit before or after it",
        _ => "no part of a selector; names are letters, digits, `_` and `$`",
    };
    fail.context(reason).parse_next(input)
}

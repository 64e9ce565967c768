//! Selectors as trees: what they come to, by recursion on owned values, and how they are written
//! down with as few parentheses as the precedences allow.

use tidegate::selector::Dialect;

#[derive(Debug, Clone)]
pub enum Tree {
    Text(String),
    Integer(i64),
    Double(f64),
    Truth(bool),
    Name(&'static str),
    Not(Box<Self>),
    And(Box<Self>, Box<Self>),
    Or(Box<Self>, Box<Self>),
    Compare(&'static str, Box<Self>, Box<Self>),
    Calculate(char, Box<Self>, Box<Self>),
    Sign(char, Box<Self>),
    Between { not: bool, value: Box<Self>, low: Box<Self>, high: Box<Self> },
    In { not: bool, value: Box<Self>, list: Vec<String> },
    Like { not: bool, value: Box<Self>, pattern: String, escape: Option<char> },
    IsNull { not: bool, value: Box<Self> },
}

/// A value of the model. What cannot be read is no value but an error.
#[derive(Debug, Clone, PartialEq)]
pub enum Seen {
    Unknown,
    Truth(bool),
    Integer(i64),
    Double(f64),
    Text(String),
    Object,
}

/// The rules, and the names' values. `None` is an error wherever it appears.
pub struct Model<'a> {
    pub dialect: Dialect,
    /// AND and OR look at their right side only if they have to.
    pub lazy: bool,
    pub look_up: &'a dyn Fn(&str) -> Option<Seen>,
}

impl Model<'_> {
    pub fn value(&self, tree: &Tree) -> Option<Seen> {
        Some(match tree {
            Tree::Text(text) => Seen::Text(text.clone()),
            Tree::Integer(value) => Seen::Integer(*value),
            Tree::Double(value) => Seen::Double(*value),
            Tree::Truth(value) => Seen::Truth(*value),
            Tree::Name(name) => (self.look_up)(name)?,
            Tree::Not(inner) => seen(self.truth(inner)?.map(|value| !value)),
            Tree::And(left, right) => seen(self.both(left, right, false)?),
            Tree::Or(left, right) => seen(self.both(left, right, true)?),
            Tree::Compare(sign, left, right) => {
                let (left, right) = (self.value(left)?, self.value(right)?);
                seen(match *sign {
                    "=" => self.equal(left, right)?,
                    "<>" => self.equal(left, right)?.map(|equal| !equal),
                    sign => ordered(sign, left, right)?,
                })
            }
            Tree::Calculate(sign, left, right) => {
                calculated(*sign, self.value(left)?, self.value(right)?)?
            }
            Tree::Sign(sign, inner) => match (sign, self.value(inner)?) {
                (_, Seen::Unknown) => Seen::Unknown,
                ('-', Seen::Integer(value)) => Seen::Integer(value.wrapping_neg()),
                ('-', Seen::Double(value)) => Seen::Double(-value),
                ('+', value @ (Seen::Integer(_) | Seen::Double(_))) => value,
                _ => return None,
            },
            Tree::Between { not, value, low, high } => {
                let (value, low, high) = (self.value(value)?, self.value(low)?, self.value(high)?);
                let above = ordered(">=", value.clone(), low)?;
                let below = ordered("<=", value, high)?;
                let mut inside = match (above, below) {
                    (Some(true), Some(true)) => Some(true),
                    (Some(false), _) | (_, Some(false)) => Some(false),
                    _ => None,
                };
                if self.dialect == Dialect::Reference {
                    inside = Some(inside == Some(true));
                }
                seen(inside.map(|inside| inside != *not))
            }
            Tree::In { not, value, list } => {
                let value = self.value(value)?;
                self.asked(*not, value, |text| Some(list.iter().any(|one| one == text)))?
            }
            Tree::Like { not, value, pattern, escape } => {
                let value = self.value(value)?;
                self.asked(*not, value, |text| {
                    let pattern = pieces(pattern, *escape, self.dialect);
                    let strict = self.dialect == Dialect::Reference && text.is_empty();
                    if strict && pattern.first() != Some(&Piece::Many) {
                        return None;
                    }
                    Some(like(&pattern, &text.chars().collect::<Vec<_>>()))
                })?
            }
            Tree::IsNull { not, value } => {
                Seen::Truth((self.value(value)? == Seen::Unknown) != *not)
            }
        })
    }

    fn truth(&self, tree: &Tree) -> Option<Option<bool>> {
        match self.value(tree)? {
            Seen::Unknown => Some(None),
            Seen::Truth(value) => Some(Some(value)),
            _ => None,
        }
    }

    /// OR if `wanted`, AND if not: the value that decides.
    fn both(&self, left: &Tree, right: &Tree, wanted: bool) -> Option<Option<bool>> {
        let left = if self.lazy { self.value(left)? } else { seen(self.truth(left)?) };
        if self.lazy && left == Seen::Truth(wanted) {
            return Some(Some(wanted));
        }
        let right = self.truth(right)?;
        Some(match (left, right) {
            (Seen::Truth(left), _) if left == wanted => Some(wanted),
            (Seen::Truth(_), right) => right,
            (Seen::Unknown, Some(right)) if right == wanted => Some(wanted),
            (Seen::Unknown, _) => None,
            _ => return None,
        })
    }

    fn equal(&self, left: Seen, right: Seen) -> Option<Option<bool>> {
        let is_number = |value: &Seen| matches!(value, Seen::Integer(_) | Seen::Double(_));
        if is_number(&left) || is_number(&right) {
            return ordered("=", left, right);
        }
        if left == Seen::Object || right == Seen::Object {
            return None;
        }
        let missing = left == Seen::Unknown || right == Seen::Unknown;
        Some(if missing && self.dialect == Dialect::Jms { None } else { Some(left == right) })
    }

    fn asked(
        &self,
        not: bool,
        value: Seen,
        question: impl Fn(&str) -> Option<bool>,
    ) -> Option<Seen> {
        match value {
            Seen::Text(text) => Some(Seen::Truth(question(&text)? != not)),
            Seen::Unknown if self.dialect == Dialect::Jms => Some(Seen::Unknown),
            Seen::Unknown => Some(Seen::Truth(false)),
            _ => None,
        }
    }
}

fn seen(truth: Option<bool>) -> Seen {
    truth.map_or(Seen::Unknown, Seen::Truth)
}

fn is_number_or_unknown(value: &Seen) -> bool {
    matches!(value, Seen::Integer(_) | Seen::Double(_) | Seen::Unknown)
}

#[allow(clippy::cast_precision_loss, reason = "the promotion of the language")]
fn double(value: &Seen) -> f64 {
    match value {
        Seen::Integer(value) => *value as f64,
        Seen::Double(value) => *value,
        _ => unreachable!("looked at before"),
    }
}

#[allow(clippy::float_cmp, reason = "equality is what is asked for")]
fn ordered(sign: &str, left: Seen, right: Seen) -> Option<Option<bool>> {
    if !is_number_or_unknown(&left) || !is_number_or_unknown(&right) {
        return None;
    }
    if left == Seen::Unknown || right == Seen::Unknown {
        return Some(None);
    }
    if let (Seen::Integer(left), Seen::Integer(right)) = (&left, &right) {
        return Some(Some(match sign {
            "=" => left == right,
            "<" => left < right,
            "<=" => left <= right,
            ">" => left > right,
            _ => left >= right,
        }));
    }
    let (left, right) = (double(&left), double(&right));
    Some(Some(match sign {
        "=" => left == right,
        "<" => left < right,
        "<=" => left <= right,
        ">" => left > right,
        _ => left >= right,
    }))
}

fn calculated(sign: char, left: Seen, right: Seen) -> Option<Seen> {
    if !is_number_or_unknown(&left) || !is_number_or_unknown(&right) {
        return None;
    }
    if left == Seen::Unknown || right == Seen::Unknown {
        return Some(Seen::Unknown);
    }
    if let (Seen::Integer(left), Seen::Integer(right)) = (&left, &right) {
        return Some(Seen::Integer(match sign {
            '+' => left.wrapping_add(*right),
            '-' => left.wrapping_sub(*right),
            '*' => left.wrapping_mul(*right),
            _ if *right == 0 => return None,
            _ => left.wrapping_div(*right),
        }));
    }
    let (left, right) = (double(&left), double(&right));
    Some(Seen::Double(match sign {
        '+' => left + right,
        '-' => left - right,
        '*' => left * right,
        _ => left / right,
    }))
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Piece {
    One(char),
    Any,
    Many,
}

fn pieces(pattern: &str, escape: Option<char>, dialect: Dialect) -> Vec<Piece> {
    let chars: Vec<char> = pattern.chars().collect();
    let mut pieces = Vec::new();
    let mut at = 0;
    while at < chars.len() {
        let next = chars.get(at + 1).copied();
        let escapes = escape == Some(chars[at])
            && (next == Some('%')
                || next == Some('_')
                || next == escape && dialect == Dialect::Jms);
        if escapes {
            at += 1;
        }
        pieces.push(match chars[at] {
            '%' if !escapes => Piece::Many,
            '_' if !escapes => Piece::Any,
            c => Piece::One(c),
        });
        at += 1;
    }
    pieces
}

fn like(pattern: &[Piece], text: &[char]) -> bool {
    match (pattern.split_first(), text.split_first()) {
        (None, None) => true,
        (None, Some(_)) => false,
        (Some((Piece::Many, pattern)), None) => like(pattern, text),
        (Some((Piece::Many, rest)), Some((_, fewer))) => like(rest, text) || like(pattern, fewer),
        (Some((Piece::Any, pattern)), Some((_, text))) => like(pattern, text),
        (Some((Piece::One(wanted), pattern)), Some((c, text))) => {
            wanted == c && like(pattern, text)
        }
        (Some((Piece::Any | Piece::One(_), _)), None) => false,
    }
}

/// Writes trees down. What does not matter is chosen by chance: case, blanks, spellings, and
/// parentheses that are not needed.
pub struct Pen {
    out: String,
    chance: u64,
}

impl Pen {
    pub fn write(tree: &Tree, chance: u64) -> String {
        let mut pen = Self { out: String::new(), chance: chance | 1 };
        pen.tree(tree, 0);
        pen.out
    }

    /// One out of `of`.
    fn chooses(&mut self, of: u64) -> bool {
        // Xorshift: the seed is never zero, so it never is.
        self.chance ^= self.chance << 13;
        self.chance ^= self.chance >> 7;
        self.chance ^= self.chance << 17;
        self.chance.is_multiple_of(of)
    }

    fn word(&mut self, word: &str) {
        let blank = if self.chooses(4) { "\t\r\n" } else { " " };
        let lower = self.chooses(3);
        self.out.push_str(blank);
        for c in word.chars() {
            let c = if lower { c.to_ascii_lowercase() } else { c };
            self.out.push(c);
        }
        self.out.push(' ');
    }

    fn text(&mut self, text: &str) {
        self.out.push('\'');
        self.out.push_str(&text.replace('\'', "''"));
        self.out.push('\'');
    }

    fn integer(&mut self, value: i64) {
        if value < 0 {
            let minus = if self.chooses(3) { " - " } else { " -" };
            self.out.push_str(minus);
        }
        let size = value.unsigned_abs();
        let digits = match (self.chooses(4), self.chooses(4)) {
            (true, _) => format!("0x{size:X}"),
            (_, true) => format!("0{size:o}"),
            _ => size.to_string(),
        };
        self.out.push_str(&digits);
        if self.chooses(4) {
            self.out.push('L');
        }
    }

    /// `strength` is the least that needs no parentheses here.
    fn tree(&mut self, tree: &Tree, strength: u8) {
        let own = match tree {
            Tree::Or(..) => 10,
            Tree::And(..) => 11,
            Tree::Not(_) => 12,
            Tree::Compare("=" | "<>", ..) => 20,
            Tree::Compare(..) => 21,
            Tree::Between { .. } | Tree::In { .. } | Tree::Like { .. } | Tree::IsNull { .. } => 30,
            Tree::Calculate('+' | '-', ..) => 40,
            Tree::Calculate(..) => 41,
            Tree::Sign(..) => 43,
            _ => 50,
        };
        if own < strength || self.chooses(12) {
            self.out.push('(');
            self.bare(tree, own);
            self.out.push(')');
        } else {
            self.bare(tree, own);
        }
    }

    fn pair(&mut self, left: &Tree, sign: &str, right: &Tree, own: u8) {
        self.tree(left, own);
        self.word(sign);
        self.tree(right, own + 1);
    }

    /// The left side of an operator of the same strength needs no parentheses, the right side does.
    fn bare(&mut self, tree: &Tree, own: u8) {
        match tree {
            Tree::Text(text) => self.text(text),
            Tree::Integer(value) => self.integer(*value),
            Tree::Double(value) => {
                self.out.push_str(&format!("{value:?}"));
                if self.chooses(4) {
                    self.out.push('d');
                }
            }
            Tree::Truth(value) => self.word(if *value { "TRUE" } else { "FALSE" }),
            Tree::Name(name) => self.out.push_str(name),
            Tree::Not(inner) => {
                self.word("NOT");
                self.tree(inner, own + 1);
            }
            Tree::And(left, right) => self.pair(left, "AND", right, own),
            Tree::Or(left, right) => self.pair(left, "OR", right, own),
            Tree::Compare(sign, left, right) => self.pair(left, sign, right, own),
            Tree::Calculate(sign, left, right) => self.pair(left, &sign.to_string(), right, own),
            Tree::Sign(sign, inner) => {
                self.out.push(*sign);
                self.tree(inner, own + 1);
            }
            Tree::Between { not, value, low, high } => {
                self.tree(value, own);
                self.word(if *not { "NOT BETWEEN" } else { "BETWEEN" });
                self.tree(low, own + 1);
                self.word("AND");
                self.tree(high, own + 1);
            }
            Tree::In { not, value, list } => {
                self.tree(value, own);
                self.word(if *not { "NOT IN" } else { "IN" });
                self.out.push('(');
                for (at, text) in list.iter().enumerate() {
                    if at > 0 {
                        let comma = if self.chooses(3) { " " } else { "," };
                        self.out.push_str(comma);
                    }
                    self.text(text);
                }
                self.out.push(')');
            }
            Tree::Like { not, value, pattern, escape } => {
                self.tree(value, own);
                self.word(if *not { "NOT LIKE" } else { "LIKE" });
                self.text(pattern);
                if let Some(escape) = escape {
                    self.word("ESCAPE");
                    self.text(&escape.to_string());
                }
            }
            Tree::IsNull { not, value } => {
                self.tree(value, own);
                self.word(if *not { "IS NOT NULL" } else { "IS NULL" });
            }
        }
    }
}

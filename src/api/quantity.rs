//! Kubernetes resource quantities (`500m`, `1.5Gi`, `2e3`): parse, compare, add, print.
//!
//! Layer L0, used on every thread, owns nothing. An [`Amount`] is exact down to a billionth and ends
//! at ±(2^63 - 1), as the API's own quantities do; larger numbers are capped and finer ones rounded
//! away from zero. Never fails on arithmetic: sums saturate at the same bounds.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// Longest text that is read as a quantity, in bytes. No sensible number comes near it.
pub const MAX_TEXT: usize = 128;

const NANO: i128 = 1_000_000_000;
const MAX_NANOS: i128 = i64::MAX as i128 * NANO;
/// Digits after the decimal point that are kept exactly; what follows only rounds up.
const FRACTION_DIGITS: u32 = 20;

/// Why a text is not a quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// The text is empty.
    #[error("a quantity is missing: write a number such as 500m, 2 or 1.5Gi")]
    Empty,
    /// The text is longer than [`MAX_TEXT`].
    #[error("a quantity of {0} characters is too long: at most {MAX_TEXT} are read")]
    TooLong(usize),
    /// There is no number in front.
    #[error("quantity {0:?} has no number: write one such as 500m, 2 or 1.5Gi")]
    NoNumber(String),
    /// The number is followed by something that is no unit.
    #[error(
        "quantity {text:?} has the unknown unit {unit:?}: use n, u, m, k, M, G, T, P, E, Ki, Mi, Gi, Ti, Pi, Ei or an exponent such as e3"
    )]
    UnknownUnit {
        /// The whole text.
        text: String,
        /// What follows the number.
        unit: String,
    },
}

/// How an amount is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// `n u m k M G T P E`: powers of 1000.
    #[default]
    DecimalSi,
    /// `Ki Mi Gi Ti Pi Ei`: powers of 1024.
    BinarySi,
    /// `e3`, `e6`, …
    DecimalExponent,
}

/// A parsed quantity. Equality and order look at the number only, not at how it is printed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Amount {
    nanos: i128,
    format: Format,
}

enum Unit {
    Decimal { exponent: i64, format: Format },
    Binary { shift: u32 },
}

fn unit(suffix: &str) -> Option<Unit> {
    let decimal = |exponent| Some(Unit::Decimal { exponent, format: Format::DecimalSi });
    let binary = |shift| Some(Unit::Binary { shift });
    match suffix {
        "n" => decimal(-9),
        "u" => decimal(-6),
        "m" => decimal(-3),
        "" => decimal(0),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        "Ki" => binary(10),
        "Mi" => binary(20),
        "Gi" => binary(30),
        "Ti" => binary(40),
        "Pi" => binary(50),
        "Ei" => binary(60),
        _ => {
            let exponent = suffix.strip_prefix(['e', 'E'])?;
            let (negative, digits) = match exponent.as_bytes().first()? {
                b'-' => (true, &exponent[1..]),
                b'+' => (false, &exponent[1..]),
                _ => (false, exponent),
            };
            if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
                return None;
            }
            // Anything this large is capped or rounded anyway, so a bound on it loses nothing.
            let size = digits.parse::<i64>().unwrap_or(i64::MAX).min(100_000);
            Some(Unit::Decimal { exponent: if negative { -size } else { size }, format: Format::DecimalExponent })
        }
    }
}

impl Amount {
    /// Nothing.
    pub const ZERO: Self = Self { nanos: 0, format: Format::DecimalSi };

    /// A whole number.
    pub fn from_value(value: i64, format: Format) -> Self {
        Self::capped(i128::from(value) * NANO, format)
    }

    /// A number of thousandths.
    pub fn from_milli(milli: i64, format: Format) -> Self {
        Self::capped(i128::from(milli) * (NANO / 1000), format)
    }

    fn capped(nanos: i128, format: Format) -> Self {
        Self { nanos: nanos.clamp(-MAX_NANOS, MAX_NANOS), format }
    }

    /// Reads a quantity as the Kubernetes API writes it.
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        if text.is_empty() {
            return Err(QuantityError::Empty);
        }
        if text.len() > MAX_TEXT {
            return Err(QuantityError::TooLong(text.len()));
        }
        let (negative, unsigned) = match text.as_bytes()[0] {
            b'-' => (true, &text[1..]),
            b'+' => (false, &text[1..]),
            _ => (false, text),
        };
        let number_len = unsigned.bytes().take_while(|b| b.is_ascii_digit() || *b == b'.').count();
        let (number, suffix) = unsigned.split_at(number_len);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.len() + fraction.len() == 0 || fraction.contains('.') {
            return Err(QuantityError::NoNumber(text.to_owned()));
        }
        let unit = unit(suffix)
            .ok_or_else(|| QuantityError::UnknownUnit { text: text.to_owned(), unit: suffix.to_owned() })?;
        let (nanos, mut format) = match unit {
            Unit::Decimal { exponent, format } => (decimal_nanos(whole, fraction, exponent), format),
            Unit::Binary { shift } => (binary_nanos(whole, fraction, shift), Format::BinarySi),
        };
        // Less than one byte can't be written with a binary unit.
        if format == Format::BinarySi && nanos > 0 && nanos < NANO {
            format = Format::DecimalSi;
        }
        Ok(Self { nanos: if negative { -nanos } else { nanos }, format })
    }

    /// Whole units, rounded away from zero.
    pub fn value(&self) -> i64 {
        to_i64(div_away(self.nanos, NANO))
    }

    /// Thousandths, rounded away from zero; ends at the bounds of i64.
    pub fn milli_value(&self) -> i64 {
        to_i64(div_away(self.nanos, NANO / 1000))
    }

    /// Whether it is 0.
    pub fn is_zero(&self) -> bool {
        self.nanos == 0
    }

    /// Whether it is below 0.
    pub fn is_negative(&self) -> bool {
        self.nanos < 0
    }

    /// Whether it has no fraction.
    pub fn is_whole(&self) -> bool {
        self.nanos % NANO == 0
    }

    /// Whether it is a multiple of a thousandth.
    pub fn is_whole_milli(&self) -> bool {
        self.nanos % (NANO / 1000) == 0
    }

    /// The sum; a zero on the left takes the other's format.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self::capped(self.nanos + other.nanos, if self.is_zero() { other.format } else { self.format })
    }

    /// The difference; a zero on the left takes the other's format.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        Self::capped(self.nanos - other.nanos, if self.is_zero() { other.format } else { self.format })
    }

    /// The API's type, in canonical form.
    pub fn to_quantity(self) -> Quantity {
        Quantity(self.to_string())
    }
}

impl PartialEq for Amount {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}
impl Eq for Amount {}
impl PartialOrd for Amount {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Amount {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}
impl Hash for Amount {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.nanos.hash(state);
    }
}

impl std::str::FromStr for Amount {
    type Err = QuantityError;
    fn from_str(text: &str) -> Result<Self, QuantityError> {
        Self::parse(text)
    }
}

impl TryFrom<&Quantity> for Amount {
    type Error = QuantityError;
    fn try_from(quantity: &Quantity) -> Result<Self, QuantityError> {
        Self::parse(&quantity.0)
    }
}

/// The canonical form: no fraction, the largest unit that keeps it whole.
impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nanos == 0 {
            return f.write_str("0");
        }
        if self.format == Format::BinarySi && self.nanos.abs() >= 1024 * NANO {
            let mut number = div_away(self.nanos, NANO);
            let mut step = 0;
            while number % 1024 == 0 && step < 6 {
                number /= 1024;
                step += 1;
            }
            return write!(f, "{number}{}", ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"][step]);
        }
        let mut number = self.nanos;
        let mut exponent: i32 = -9;
        while number % 1000 == 0 && exponent < 18 {
            number /= 1000;
            exponent += 3;
        }
        if self.format == Format::DecimalExponent {
            return match exponent {
                0 => write!(f, "{number}"),
                _ => write!(f, "{number}e{exponent}"),
            };
        }
        let unit = match exponent {
            -9 => "n",
            -6 => "u",
            -3 => "m",
            0 => "",
            3 => "k",
            6 => "M",
            9 => "G",
            12 => "T",
            15 => "P",
            _ => "E",
        };
        write!(f, "{number}{unit}")
    }
}

/// Thousandths of a CPU, rounded up.
pub fn cpu_millis(quantity: &Quantity) -> Result<i64, QuantityError> {
    Ok(Amount::try_from(quantity)?.milli_value())
}

/// Bytes (or any other whole unit), rounded up.
pub fn bytes(quantity: &Quantity) -> Result<i64, QuantityError> {
    Ok(Amount::try_from(quantity)?.value())
}

fn to_i64(number: i128) -> i64 {
    i64::try_from(number).unwrap_or(if number < 0 { i64::MIN } else { i64::MAX })
}

/// Division that rounds away from zero.
fn div_away(number: i128, by: i128) -> i128 {
    let quotient = number / by;
    if number % by == 0 { quotient } else { quotient + number.signum() }
}

/// `whole.fraction * 10^exponent` in billionths, rounded up and capped.
fn decimal_nanos(whole: &str, fraction: &str, exponent: i64) -> i128 {
    // The digit at place p counts 10^p billionths. Both texts are at most MAX_TEXT digits long.
    let first_place = whole.len() as i64 - 1 + exponent + 9;
    let mut nanos: i128 = 0;
    let mut rest = false;
    for (place, digit) in (0..).map(|i| first_place - i).zip(whole.bytes().chain(fraction.bytes())) {
        let digit = i128::from(digit - b'0');
        match place {
            _ if digit == 0 => {}
            // 10^29 is beyond the bound whatever follows.
            29.. => return MAX_NANOS,
            0..29 => nanos += digit * 10_i128.pow(place as u32),
            _ => rest = true,
        }
    }
    (nanos + i128::from(rest)).min(MAX_NANOS)
}

/// `whole.fraction * 2^shift` in billionths, rounded up and capped.
fn binary_nanos(whole: &str, fraction: &str, shift: u32) -> i128 {
    let digits =
        |text: &str| text.bytes().try_fold(0_i128, |n, b| n.checked_mul(10)?.checked_add(i128::from(b - b'0')));
    let Some(whole) = digits(whole).filter(|n| *n <= i128::from(i64::MAX)) else { return MAX_NANOS };
    // At most 2^63 * 2^60, which i128 holds; the factor of a billion may not fit.
    let Some(nanos) = (whole << shift).checked_mul(NANO) else { return MAX_NANOS };
    let kept = &fraction[..fraction.len().min(FRACTION_DIGITS as usize)];
    let rest = fraction[kept.len()..].bytes().any(|b| b != b'0');
    // 20 digits fit in i128 together with the 60 bits of the largest unit.
    let part = digits(kept).unwrap_or(0) * 10_i128.pow(FRACTION_DIGITS - kept.len() as u32) + i128::from(rest);
    let part_nanos = div_away(part << shift, 10_i128.pow(FRACTION_DIGITS - 9));
    (nanos + part_nanos).min(MAX_NANOS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Parses and prints again, with the value and thousandths.
    fn check(text: &str, expect: &str) {
        let shown = match Amount::parse(text) {
            Ok(amount) => format!("{amount} {} {}", amount.value(), amount.milli_value()),
            Err(e) => e.to_string(),
        };
        assert_eq!(shown, expect, "{text:?}");
    }

    #[test]
    fn quantities_print_in_canonical_form() {
        for (text, expect) in [
            ("0", "0 0 0"),
            ("-0", "0 0 0"),
            ("0Ki", "0 0 0"),
            ("1", "1 1 1000"),
            ("+1", "1 1 1000"),
            ("100m", "100m 1 100"),
            ("1000m", "1 1 1000"),
            ("1.5", "1500m 2 1500"),
            (".5", "500m 1 500"),
            ("5.", "5 5 5000"),
            ("-1.5", "-1500m -2 -1500"),
            ("1000", "1k 1000 1000000"),
            ("1024", "1024 1024 1024000"),
            ("1Ki", "1Ki 1024 1024000"),
            ("1024Ki", "1Mi 1048576 1048576000"),
            ("1.5Gi", "1536Mi 1610612736 1610612736000"),
            ("0.5Ki", "512 512 512000"),
            ("0.0001Ki", "102400u 1 103"),
            ("128974848", "128974848 128974848 128974848000"),
            ("129e6", "129e6 129000000 129000000000"),
            ("129M", "129M 129000000 129000000000"),
            ("123Mi", "123Mi 128974848 128974848000"),
            ("1E", "1E 1000000000000000000 9223372036854775807"),
            ("1e3", "1e3 1000 1000000"),
            ("1E3", "1e3 1000 1000000"),
            ("12e-1", "1200e-3 2 1200"),
            ("1e0", "1 1 1000"),
            ("1n", "1n 1 1"),
            ("0.1n", "1n 1 1"),
            ("-0.1n", "-1n -1 -1"),
            ("1u", "1u 1 1"),
            ("1.0000000001", "1000000001n 2 1001"),
            ("9223372036854775807", "9223372036854775807 9223372036854775807 9223372036854775807"),
            ("9223372036854775808", "9223372036854775807 9223372036854775807 9223372036854775807"),
            ("100E", "9223372036854775807 9223372036854775807 9223372036854775807"),
            ("-100E", "-9223372036854775807 -9223372036854775807 -9223372036854775808"),
            ("8Ei", "9223372036854775807 9223372036854775807 9223372036854775807"),
            ("7Ei", "7Ei 8070450532247928832 9223372036854775807"),
            ("99999999999999999999Ei", "9223372036854775807 9223372036854775807 9223372036854775807"),
            ("1e99999999999999999999", "9223372036854775807 9223372036854775807 9223372036854775807"),
            ("1e-99999999999999999999", "1e-9 1 1"),
            ("0e99999999999999999999", "0 0 0"),
            ("0.00000000000000000001Ei", "11529216n 1 12"),
            ("00000000000000000000000000000000000000000000001", "1 1 1000"),
        ] {
            check(text, expect);
        }
    }

    #[test]
    fn other_texts_are_refused_by_name() {
        let unknown = |text: &str, unit: &str| {
            format!(
                "quantity {text:?} has the unknown unit {unit:?}: use n, u, m, k, M, G, T, P, E, Ki, Mi, Gi, Ti, Pi, Ei or an exponent such as e3"
            )
        };
        let none = |text: &str| format!("quantity {text:?} has no number: write one such as 500m, 2 or 1.5Gi");
        check("", "a quantity is missing: write a number such as 500m, 2 or 1.5Gi");
        check(&"1".repeat(200), "a quantity of 200 characters is too long: at most 128 are read");
        for (text, unit) in [
            ("1gb", "gb"),
            ("1 Gi", " Gi"),
            ("1K", "K"),
            ("1mi", "mi"),
            ("1e", "e"),
            ("1e+", "e+"),
            ("1e1.5", "e1.5"),
            ("1ee3", "ee3"),
            ("1\u{e9}", "\u{e9}"),
            ("0x10", "x10"),
            ("1-1", "-1"),
        ] {
            check(text, &unknown(text, unit));
        }
        for text in ["Ki", ".", "-", "--1", "1.2.3", "\u{e9}", " 1", "NaN"] {
            check(text, &none(text));
        }
    }

    #[test]
    fn sums_saturate_and_keep_a_format() {
        let amount = |text: &str| Amount::parse(text).unwrap();
        for (left, right, sum, difference) in [
            ("1Gi", "1Mi", "1025Mi", "1023Mi"),
            ("0", "1Mi", "1Mi", "-1Mi"),
            ("1", "250m", "1250m", "750m"),
            ("9223372036854775807", "1E", "9223372036854775807", "8223372036854775807"),
            ("-9E", "9E", "0", "-9223372036854775807"),
        ] {
            assert_eq!(amount(left).plus(amount(right)).to_string(), sum, "{left} + {right}");
            assert_eq!(amount(left).minus(amount(right)).to_string(), difference, "{left} - {right}");
        }
        assert_eq!(amount("1Ki"), amount("1024"));
        assert!(amount("1M") < amount("1Mi"));
        assert_eq!(Amount::from_milli(1500, Format::DecimalSi), amount("1.5"));
        assert_eq!(cpu_millis(&Quantity("0.1".into())), Ok(100));
        assert_eq!(bytes(&Quantity("1.5".into())), Ok(2));
    }

    proptest! {
        #[test]
        fn what_is_printed_reads_back_the_same(value in any::<i64>(), unit in "(n|u|m||k|M|G|T|Ki|Mi|Gi|Ti|e[0-9]|e-[0-9])") {
            let amount = Amount::parse(&format!("{value}{unit}")).unwrap();
            let again = Amount::parse(&amount.to_string()).unwrap();
            prop_assert_eq!(amount, again);
            prop_assert_eq!(amount.to_string(), again.to_string());
        }

        #[test]
        fn any_text_is_read_or_refused(text in ".{0,40}") {
            let _ = Amount::parse(&text);
        }
    }
}

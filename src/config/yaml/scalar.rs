//! What plain YAML 1.1 scalars mean that a YAML 1.2 parser takes for text. Pure; runs on the reader's thread.

use serde_json::{Number, Value};

/// The value of a plain scalar that YAML 1.1 does not take for text; none where it is text.
pub(super) fn resolve(plain: &str) -> Option<Value> {
    match plain {
        "y" | "Y" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" => return Some(Value::Bool(true)),
        "n" | "N" | "no" | "No" | "NO" | "off" | "Off" | "OFF" => return Some(Value::Bool(false)),
        _ => {}
    }
    let first = *plain.as_bytes().first()?;
    if !(first.is_ascii_digit() || first == b'+' || first == b'-') {
        return None;
    }
    let digits = plain.replace('_', "");
    integer(&digits).or_else(|| if is_float(&digits) { digits.parse().ok().and_then(float) } else { None })
}

/// A float as JSON prints it: whole numbers lose their fraction, so that `5.0` serves as a count.
pub(super) fn float(value: f64) -> Option<Value> {
    // Up to 2^53 every whole float is exactly one integer.
    if value.fract() == 0.0 && value.abs() <= 9_007_199_254_740_992.0 {
        return Some(Value::from(value as i64));
    }
    Number::from_f64(value).map(Value::Number)
}

/// An integer with Go's prefixes: 0x, 0o, 0b, and a bare leading zero for octal.
fn integer(text: &str) -> Option<Value> {
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let lower = digits.to_ascii_lowercase();
    let (radix, digits) = if let Some(rest) = lower.strip_prefix("0x") {
        (16, rest)
    } else if let Some(rest) = lower.strip_prefix("0o") {
        (8, rest)
    } else if let Some(rest) = lower.strip_prefix("0b") {
        (2, rest)
    } else if lower.len() > 1 && lower.starts_with('0') {
        (8, &lower[1..])
    } else {
        (10, lower.as_str())
    };
    if digits.starts_with(['+', '-']) {
        return None;
    }
    let value = u64::from_str_radix(digits, radix).ok()?;
    if !negative {
        return Some(value.into());
    }
    0i64.checked_sub_unsigned(value).map(Value::from)
}

/// Whether a text has the form of a decimal float: digits, a point, an exponent.
fn is_float(text: &str) -> bool {
    let text = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (mantissa, exponent) = match text.find(['e', 'E']) {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    };
    let all_digits = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let exponent_fits = exponent.is_none_or(|exponent| {
        let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        !digits.is_empty() && all_digits(digits)
    });
    !(whole.is_empty() && fraction.is_empty()) && all_digits(whole) && all_digits(fraction) && exponent_fits
}

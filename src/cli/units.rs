//! Numbers as people read and write them: bytes, rates, durations, counts, times.
//!
//! Powers of 1024, called KiB, MiB…; times are UTC. Not here: JSON, which has plain numbers.

use std::time::Duration;

use anyhow::{Result, bail};

const NAMES: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

/// `1.50 GiB`, three digits that matter.
pub fn bytes(count: u64) -> String {
    if count < 1024 {
        return format!("{count} B");
    }
    let mut value = count as f64;
    let mut at = 0;
    // 1023.5 and more would be shown as 1024.
    while value >= 1023.5 && at + 1 < NAMES.len() {
        value /= 1024.0;
        at += 1;
    }
    let digits = if value < 9.995 { 2 } else { usize::from(value < 99.95) };
    format!("{value:.digits$} {}", NAMES[at])
}

/// `850 MiB/s`; `-` if no time went by.
pub fn rate(count: u64, seconds: f64) -> String {
    if seconds <= 0.0 {
        return "-".into();
    }
    format!("{}/s", bytes((count as f64 / seconds) as u64))
}

/// `350 µs`, `12 ms`, `1.2 s`, `2 min 05 s`, `3 h 04 min`.
pub fn duration(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    if seconds < 0.000_999_5 {
        format!("{:.0} µs", seconds * 1e6)
    } else if seconds < 0.999_5 {
        format!("{:.0} ms", seconds * 1e3)
    } else if seconds < 9.95 {
        format!("{seconds:.1} s")
    } else if seconds < 99.5 {
        format!("{seconds:.0} s")
    } else {
        let whole = seconds.round() as u64;
        if whole < 3600 {
            format!("{} min {:02} s", whole / 60, whole % 60)
        } else {
            format!("{} h {:02} min", whole / 3600, whole / 60 % 60)
        }
    }
}

/// `12,345`.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut shown = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

/// `1 file`, `12,345 files`.
pub fn plural(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", count(number), if number == 1 { one } else { many })
}

/// `2026-11-21 10:29`, of nanoseconds since 1970, UTC.
pub fn time(since_1970_ns: u64) -> String {
    let minutes = since_1970_ns / 60_000_000_000;
    let (days, minute) = (minutes / 1440, minutes % 1440);
    // Howard Hinnant, "chrono-compatible low-level date algorithms": eras of 400 years from March.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}", minute / 60, minute % 60)
}

/// Reads `4G`, `512MiB`, `1.5 T`, `1048576`; letters are powers of 1024.
///
/// # Errors
/// If it is not a number with at most one such unit, or does not fit 63 bits.
pub fn parse_bytes(text: &str) -> Result<u64> {
    let text = text.trim();
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let power = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 1,
        "m" | "mb" | "mib" => 2,
        "g" | "gb" | "gib" => 3,
        "t" | "tb" | "tib" => 4,
        _ => bail!("{text}: not a size (examples: 512M, 4G, 1.5T)"),
    };
    let Ok(value) = number.parse::<f64>() else {
        bail!("{text}: not a size (examples: 512M, 4G, 1.5T)");
    };
    let bytes = value * 1024f64.powi(power);
    if bytes >= (1u64 << 62) as f64 {
        bail!("{text}: too large");
    }
    Ok(bytes as u64)
}

/// Reads `90`, `1.5s`, `10m`, `2h`; a plain number is seconds.
///
/// # Errors
/// If it is not a number with at most one such unit, or longer than a year.
pub fn parse_duration(text: &str) -> Result<Duration> {
    let text = text.trim();
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let factor = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "s" | "sec" => 1.0,
        "ms" => 0.001,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        _ => bail!("{text}: not a time (examples: 30, 90s, 10m, 2h)"),
    };
    let seconds = number.parse::<f64>().map(|number| number * factor);
    match seconds {
        Ok(seconds) if seconds <= 366.0 * 86_400.0 => Ok(Duration::from_secs_f64(seconds)),
        _ => bail!("{text}: not a time (examples: 30, 90s, 10m, 2h)"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{bytes, count, duration, parse_bytes, plural, rate, time};

    #[test]
    fn bytes_keep_three_digits() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1024), "1.00 KiB");
        assert_eq!(bytes(1536 << 20), "1.50 GiB");
        assert_eq!(bytes(10 << 20), "10.0 MiB");
        assert_eq!(bytes(256 << 20), "256 MiB");
        assert_eq!(bytes((1 << 30) - 1), "1.00 GiB");
        assert_eq!(bytes(u64::MAX), "16.0 EiB");
    }

    #[test]
    fn durations_and_rates() {
        assert_eq!(duration(Duration::from_micros(12)), "12 µs");
        assert_eq!(duration(Duration::from_millis(350)), "350 ms");
        assert_eq!(duration(Duration::from_millis(1240)), "1.2 s");
        assert_eq!(duration(Duration::from_secs(125)), "2 min 05 s");
        assert_eq!(duration(Duration::from_secs(11_045)), "3 h 04 min");
        assert_eq!(rate(1 << 30, 2.0), "512 MiB/s");
        assert_eq!(rate(1, 0.0), "-");
    }

    #[test]
    fn counts_and_times() {
        assert_eq!(count(999), "999");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(plural(1, "file", "files"), "1 file");
        assert_eq!(time(0), "1970-01-01 00:00");
        assert_eq!(time(1_795_257_000_000_000_000), "2026-11-21 10:30");
        assert_eq!(time(951_782_400_000_000_000), "2000-02-29 00:00");
    }

    #[test]
    fn sizes_are_read_and_nonsense_is_not() {
        assert_eq!(parse_bytes("4G").unwrap(), 4 << 30);
        assert_eq!(parse_bytes("512MiB").unwrap(), 512 << 20);
        assert_eq!(parse_bytes(" 1.5 t ").unwrap(), 3 << 39);
        assert_eq!(parse_bytes("4096").unwrap(), 4096);
        for bad in ["", "G", "4X", "-1", "1e3", "1..2G", "99999999T"] {
            assert!(parse_bytes(bad).is_err(), "{bad}");
        }
    }
}

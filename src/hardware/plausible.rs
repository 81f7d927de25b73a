//! The figures that a chip can have. A figure decades away from every real chip is a slip of the unit.

use super::spec::{Architecture, Hardware};
use crate::dtype::DType;
use crate::input::Keys;

/// Key, least value, greatest value and unit of each figure.
///
/// # Source
/// The chips of `hardware/*.toml` have links of 16 GB/s to 900 GB/s, L2 caches of 4 MiB to 128 MiB, clocks of 1.4 GHz to
/// 2.6 GHz, memories of 16 GiB to 279 GiB at 0.3 TB/s to 8 TB/s, boards of 70 W to 1,400 W, and peaks of 8.1 TFLOP/s to 15 PFLOP/s. One to
/// three decades on either side leave room for older, smaller and future chips.
const FIGURES: [(&str, f64, f64, &str); 10] = [
    ("unidirectional_bytes_per_s", 1e9, 1e14, "B/s"),
    ("l2_bytes", 1e5, 1e11, "B"),
    ("boost_clock_hz", 1e8, 1e11, "Hz"),
    ("hbm_bytes_per_s", 1e10, 1e15, "B/s"),
    ("hbm_capacity_bytes", 1e9, 1e13, "B"),
    ("ecc_bytes", 1e6, 1e12, "B"),
    ("reported_bytes", 1e9, 1e13, "B"),
    ("board_watt", 1.0, 1e5, "W"),
    ("bytes_per_s", 1e10, 1e16, "B/s"),
    (ANY_FORMAT, 1e11, 1e18, "FLOP/s"),
];
/// End of the keys of peaks and sustained rates, which have the same limits in every format.
const ANY_FORMAT: &str = "_dense_flop_per_s";
/// Most streaming multiprocessors; the largest chip of `hardware/*.toml` has 188.
pub const MAX_SMS: u32 = 10_000;
/// By how much `allow_unusual_figures` widens each limit. Every time that follows from such figures is still finite.
const UNUSUAL: f64 = 1e6;
/// Prefixes of units and their powers of ten.
const PREFIXES: [(&str, i32); 4] = [("k", 3), ("M", 6), ("G", 9), ("T", 12)];
/// Most times that an fp8 peak is the bf16 peak. Half the operand width doubles the rate, and GPUs that halve the rate of
/// 32-bit accumulation for 16-bit operands alone reach four times. A larger ratio means a peak with sparsity.
const MAX_FP8_TO_BF16: f64 = 4.0;
/// Share by which a bf16 peak may exceed that of all units at the boost clock: datasheets round.
const ROUNDING: f64 = 0.1;

/// Returns the least value, the greatest value and the unit of a figure.
pub fn limits(key: &str) -> (f64, f64, &'static str) {
    let is_of_key = |known: &str| known == key || (known == ANY_FORMAT && key.ends_with(ANY_FORMAT));
    let found = FIGURES.into_iter().find(|(known, ..)| is_of_key(known));
    found.map_or((f64::MIN_POSITIVE, f64::MAX, ""), |(_, min, max, unit)| (min, max, unit))
}

/// Strictness of the checks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Strictness {
    /// Whether the file says that its figures are meant as they are.
    pub(super) is_unusual: bool,
}

impl Strictness {
    /// Reads a figure. `None` if it is absent or cannot be.
    pub(super) fn figure(self, section: &Keys<'_>, key: &str) -> Option<f64> {
        let expected =
            "a number above 0; leave the key out if the chip has no such unit or error correction costs no memory";
        let value = section.read(key, expected, |value| value.as_f64().filter(|number| *number > 0.0))?;
        let (min, max, unit) = limits(key);
        let widened = if self.is_unusual { UNUSUAL } else { 1.0 };
        if (min / widened..=max * widened).contains(&value) {
            return Some(value);
        }
        let reason = if self.is_unusual {
            format!("must be from {:e} to {:e} {unit}, even with allow_unusual_figures", min / widened, max * widened)
        } else {
            let remedy = "set allow_unusual_figures = true at the top of the file if it is right";
            format!("must be from {min:e} to {max:e} {unit}{}; {remedy}", slip(value, min, max, unit))
        };
        section.problem(key, reason);
        None
    }

    /// Returns the largest number of streaming multiprocessors.
    pub(super) fn max_sms(self) -> u32 {
        if self.is_unusual { u32::MAX } else { MAX_SMS }
    }
}

/// Guesses the unit of a figure that is too small: of the prefixes that bring it into the range, the one that brings it
/// nearest to the middle.
fn slip(value: f64, min: f64, max: f64, unit: &str) -> String {
    let middle = (min * max).sqrt();
    let scaled = |power: i32| value * 10f64.powi(power);
    let from_middle = |power: i32| (scaled(power) / middle).ln().abs();
    let fitting = PREFIXES.into_iter().filter(|(_, power)| (min..=max).contains(&scaled(*power)));
    let nearest = fitting.min_by(|(_, a), (_, b)| from_middle(*a).total_cmp(&from_middle(*b)));
    nearest
        .map_or_else(String::new, |(prefix, power)| format!(" (is it in {prefix}{unit}? Then write {value}e{power})"))
}

/// Dense 16-bit FLOP of a streaming multiprocessor per clock, at most.
///
/// # Source
/// NVIDIA's architecture whitepapers: 1,024 fused multiply-adds of A100, twice as many with each later data-centre generation,
/// 512 of V100, of Turing, AD102 and GB202. Intel's AMX, the widest unit of a CPU's core: a 16 × 16 × 32 product in 16 cycles.
fn flop_per_sm_and_clock(architecture: Architecture) -> f64 {
    match architecture {
        Architecture::Ampere => 2048.0,
        Architecture::Hopper => 4096.0,
        Architecture::Blackwell => 8192.0,
        Architecture::Volta
        | Architecture::Turing
        | Architecture::Ada
        | Architecture::BlackwellConsumer
        | Architecture::Cpu => 1024.0,
    }
}

/// Checks the 16-bit peak, which is in `key`, against the units that reach it: that of bf16, or of fp16 on a chip without bf16.
pub fn check_16_bit_peak(hardware: &Hardware, keys: &Keys<'_>, key: &str, remedy: &str) {
    let units = f64::from(hardware.sm_count) * flop_per_sm_and_clock(hardware.architecture) * hardware.boost_clock_hz;
    let peaks = &hardware.peaks_dense_flop_per_s;
    let peak = peaks.get(&DType::Bfloat16).or_else(|| peaks.get(&DType::Float16));
    if peak.is_some_and(|peak| *peak > units * (1.0 + ROUNDING)) {
        let reason = format!(
            "is more than all SMs reach at the boost clock, {units:.3e} FLOP/s: is it a peak with sparsity? Then halve all peaks{remedy}"
        );
        keys.problem(key, reason);
    }
}

/// Checks the peaks against the units that reach them and against each other.
pub(super) fn check_peaks(hardware: &Hardware, datasheet: &Keys<'_>, strictness: Strictness) {
    let peaks = &hardware.peaks_dense_flop_per_s;
    if !strictness.is_unusual {
        let remedy = "; set allow_unusual_figures = true at the top of the file if it is right";
        let has_bf16 = peaks.contains_key(&DType::Bfloat16);
        let key = if has_bf16 { "peak_bf16_dense_flop_per_s" } else { "peak_fp16_dense_flop_per_s" };
        check_16_bit_peak(hardware, datasheet, key, remedy);
    }
    let Some(bf16) = peaks.get(&DType::Bfloat16) else { return };
    if let Some(fp8) = peaks.get(&DType::Fp8)
        && (fp8 < bf16 || *fp8 > MAX_FP8_TO_BF16 * bf16)
    {
        let reason = format!(
            "must be one to {MAX_FP8_TO_BF16} times peak_bf16_dense_flop_per_s = {bf16:e}: are both dense peaks?"
        );
        datasheet.problem("peak_fp8_dense_flop_per_s", reason);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Result;

    const H100: &str = include_str!("../../hardware/h100_sxm.toml");

    fn parse(text: &str) -> Result<Hardware> {
        Hardware::from_toml_str("own", "own.toml", text)
    }

    /// The error of the H100's file with another value of a key, below `top`.
    #[track_caller]
    fn refused(top: &str, key: &str, value: &str) -> String {
        let changed = |line: &str| if line.starts_with(key) { format!("{key} = {value}") } else { line.to_owned() };
        let lines: Vec<String> = H100.lines().map(changed).collect();
        parse(&format!("{top}\n{}", lines.join("\n"))).unwrap_err().to_string()
    }

    #[test]
    fn a_slip_of_the_unit_is_named() {
        for (key, value, guess) in [
            ("hbm_bytes_per_s", "3350", "is it in GB/s? Then write 3350e9"),
            ("hbm_bytes_per_s", "3.35", "is it in TB/s? Then write 3.35e12"),
            ("hbm_capacity_bytes", "80", "is it in GB? Then write 80e9"),
            ("l2_bytes", "50", "is it in MB? Then write 50e6"),
            ("boost_clock_hz", "1980", "is it in MHz? Then write 1980e6"),
            ("peak_fp32_dense_flop_per_s", "66.9", "is it in TFLOP/s? Then write 66.9e12"),
            ("peak_int8_dense_flop_per_s", "1978900", "is it in GFLOP/s? Then write 1978900e9"),
            ("unidirectional_bytes_per_s", "450", "is it in GB/s? Then write 450e9"),
        ] {
            let message = refused("", key, value);
            assert!(message.starts_with("own.toml: ") && message.contains(&format!(".{key} = {value}")), "{message}");
            assert!(message.contains(guess) && message.contains("allow_unusual_figures"), "{message}");
        }
    }

    #[test]
    fn figures_of_no_chip_are_refused_even_if_unusual_ones_are_allowed() {
        for key in ["hbm_bytes_per_s", "hbm_capacity_bytes", "l2_bytes", "boost_clock_hz", "unidirectional_bytes_per_s"]
        {
            for value in ["1e-300", "1e300"] {
                assert!(refused("", key, value).contains(" must be from 1e"), "{key}");
                let error = refused("allow_unusual_figures = true", key, value);
                assert!(error.contains("even with allow_unusual_figures"), "{error}");
            }
        }
        assert!(refused("", "sm_count", "4294967295").contains("a whole number from 1 to 10000"));
    }

    #[test]
    fn doubled_peaks_are_taken_for_those_with_sparsity() {
        let sparse = H100.replace("1978.9e12", "3957.8e12").replace("989.4e12", "1978.9e12");
        let message = parse(&sparse).unwrap_err().to_string();
        assert!(message.contains("peak_bf16_dense_flop_per_s") && message.contains("sparsity"), "{message}");
        assert!(parse(&format!("allow_unusual_figures = true\n{sparse}")).is_ok());
    }
}

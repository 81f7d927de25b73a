//! `--power-limit-watt` and `--peer-access`: what the header, the notes and the interval say, and what is refused.

use crate::cli_support;

use cli_support::predict;
use serde_json::Value;

fn width(step: &Value) -> f64 {
    (step["upper_us"].as_f64().unwrap() - step["lower_us"].as_f64().unwrap()) / step["step_time_us"].as_f64().unwrap()
}

#[test]
fn a_power_limit_slows_a_step_and_says_what_is_assumed() {
    let step = |flags: &str| {
        let run = predict(&format!("--model llama-3.1-8b --hardware a100 --prefill 2048 --format json {flags}"));
        assert_eq!((run.code, run.stderr.as_str()), (0, ""));
        run.json()
    };
    let (whole, half) = (step(""), step("--power-limit-watt 200"));
    let ratio = half["step_time_us"].as_f64().unwrap() / whole["step_time_us"].as_f64().unwrap();
    // Half of 400 W leaves 74.4 % of the clock.
    assert!((1.2..1.0 / 0.744).contains(&ratio), "{ratio}");
    assert!(width(&half) > width(&whole));
    assert!(half["warnings"].to_string().contains("power_limit_watt = 200 of 400 W"), "{}", half["warnings"]);
    assert_eq!(step("--power-limit-watt 400"), whole, "the board's own power is no limit");
    let text = predict("--model llama-3.1-8b --hardware a100 --prefill 2048 --power-limit-watt 200");
    assert!(text.stdout.starts_with("llama-3.1-8b on one NVIDIA A100 SXM4 80 GB limited to 200 W"), "{}", text.stdout);
}

#[test]
fn a_power_limit_beyond_the_boards_range_is_refused() {
    for watt in ["100", "401"] {
        let run = predict(&format!("--model llama-3.1-8b --hardware a100 --prefill 2048 --power-limit-watt {watt}"));
        assert_eq!((run.code, run.stdout.as_str()), (1, ""));
        assert!(
            run.stderr.contains("must be from 120 to 400 W on NVIDIA A100") && run.stderr.contains(watt),
            "{}",
            run.stderr
        );
    }
}

#[test]
fn the_header_says_whether_cards_over_pcie_have_peer_access() {
    for (flags, said) in [
        ("--hardware l40s", "over PCIe 32.00 GB/s with peer access, under"),
        ("--hardware l40s --no-peer-access", "over PCIe 32.00 GB/s without peer access, under"),
        ("--hardware rtx-4090", "over PCIe 32.00 GB/s without peer access, under"),
        ("--hardware a6000", "over PCIe 32.00 GB/s with peer access (assumed), under"),
        ("--hardware a6000 --peer-access", "over PCIe 32.00 GB/s with peer access, under"),
        ("--hardware h100", "over NVLink 450.0 GB/s, under"),
    ] {
        let run = predict(&format!("--model llama-3.1-8b --tensor-parallel-size 2 --decode 4x512 {flags}"));
        let header = run.stdout.split("\nbatch").next().unwrap().replace('\n', " ");
        assert!(header.contains(said), "{flags}: {header}");
    }
}

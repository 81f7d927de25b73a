//! Starts an engine with planted prices and serves it, or probes it and prints measured and planted figures.
//!
//! `cargo run --release -p ridgepoint-probe --example planted` compares; with the argument `serve` it prints a URL and serves for ten minutes.
#![expect(clippy::unwrap_used, clippy::print_stdout)]

#[path = "../tests/support/mock.rs"]
mod mock;
#[path = "../tests/support/planted.rs"]
mod planted;

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use planted::Prices;
use ridgepoint_probe::{Ladder, Settings, Target, probe};

const PRICES: Prices = Prices { step_us: 8000.0, decode_us: 250.0, prefill_token_us: 40.0, cold_us: 900_000.0 };

fn main() {
    let server = planted::start(PRICES);
    if std::env::args().nth(1).is_some_and(|word| word == "serve") {
        println!("{}", server.url());
        std::io::stdout().flush().unwrap();
        std::thread::sleep(Duration::from_secs(600));
        return;
    }
    let ladder = Ladder { input_lens: vec![128, 512, 2048], concurrencies: vec![1, 4, 16], requests: 24 };
    let settings = Settings {
        ladder: Some(ladder),
        num_warm: 10,
        max_tokens: 32,
        ..Settings::new(Target::parse(&server.url()).unwrap())
    };
    let report = probe(&settings, Arc::new(|| ())).unwrap();
    let step_ms = |decodes, tokens| PRICES.step(decodes, tokens).as_secs_f64() * 1e3;
    println!("{:<44} {:>10} {:>10} {:>8}", "", "planted ms", "probed ms", "off ms");
    let line = |name: &str, planted: f64, probed: f64| {
        println!("{name:<44} {planted:>10.3} {probed:>10.3} {:>8.3}", probed - planted)
    };
    let warm = report.warm_summary();
    let prompt = report.cold.as_ref().unwrap().prompt_tokens.unwrap();
    line("TTFT of cold_1", step_ms(0, prompt) + PRICES.cold_us / 1e3, report.cold.as_ref().unwrap().ttft_ms.unwrap());
    line("TTFT of the warm requests, median", step_ms(0, prompt), warm.ttft_ms.unwrap().median);
    line("ITL of the warm requests, median", step_ms(1, 0), warm.itl_ms.unwrap().median);
    line("wall of the warm requests, median", step_ms(0, prompt) + 31.0 * step_ms(1, 0), warm.wall_ms.unwrap().median);
    for rung in &report.ladder {
        let name = format!("{} tokens, {} in flight", rung.input_len, rung.concurrency);
        assert_eq!(rung.ok, 24, "{:?}", rung.outcomes);
        if rung.concurrency == 1 {
            line(&format!("TTFT, {name}, median"), step_ms(0, rung.input_len), rung.ttft_ms.unwrap().median);
        }
        line(&format!("ITL, {name}, median"), step_ms(u64::from(rung.concurrency), 0), rung.itl_ms.unwrap().median);
    }
    println!("{} requests, outcomes {:?}", report.records().count(), report.outcomes());
}

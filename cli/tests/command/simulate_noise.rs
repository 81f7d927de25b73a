//! `ridgepoint simulate --noise`: steps that scatter.

use crate::cli_support::{run, simulate};

#[test]
fn noise_spreads_gaps_around_the_same_mean() {
    let load = "--model llama-3.1-8b --hardware h100 --max-model-len 4096 --concurrency 1 --input-len 64 --output-len 400 --num-requests 4";
    let itl = |more: &str| simulate(&format!("{load} --format json {more}")).json()["stages"][0]["itl_ms"].clone();
    let (none, noisy) = (itl(""), itl("--noise 0.1 --seed 5"));
    let of = |figures: &serde_json::Value, name: &str| figures[name].as_f64().unwrap();
    // 1,596 gaps with a deviation of 10 %: four standard errors of the mean are 1 %.
    assert!((of(&noisy, "mean") / of(&none, "mean") - 1.0).abs() < 0.01, "{noisy} {none}");
    let spread = of(&noisy, "std") / of(&noisy, "mean");
    assert!((0.09..0.11).contains(&spread) && of(&none, "std") < 0.02 * of(&none, "mean"), "{spread} {none}");
    assert_eq!(itl("--noise 0.1 --seed 5"), noisy);
    assert_ne!(itl("--noise 0.1 --seed 6"), noisy);
    // The textbook roofline has no correction whose scatter could be taken.
    simulate(&format!("{load} --noise")).fails(2, &["as in --noise 0.05"]);
    simulate(&format!("{load} --noise 2")).fails(2, &["from 0 to 1"]);
    let server: Vec<&str> = load.split(' ').collect();
    let corrected = run(&[&["simulate"][..], &server, &["--noise", "--format", "json"]].concat()).json();
    assert!(corrected["noise_sigma"].as_f64().unwrap() > 0.0, "{corrected}");
    assert!(corrected["latency_model"].to_string().contains("random factor of mean 1"), "{corrected}");
}

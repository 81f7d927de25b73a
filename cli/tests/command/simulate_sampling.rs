//! `ridgepoint simulate` with requests that set sampling parameters of their own.

use crate::cli_support::{Folder, simulate};

#[test]
fn requests_of_a_list_may_set_sampling_parameters() {
    let folder = Folder::new();
    let list = |name: &str, own: fn(u32) -> &'static str| {
        let row = |at: u32| format!("{},100,40,{}\n", f64::from(at) / 100.0, own(at));
        let rows: String = (0..30).map(row).collect();
        folder.write(name, format!("arrival,input_len,output_len,temperature\n{rows}"))
    };
    let (server, greedy) = (list("server.csv", |_| ""), list("greedy.csv", |_| "0"));
    let mixed = list("mixed.csv", |at| if at == 0 { "" } else { "0" });
    let e2e_ms = |path: &str, more: &str| {
        let line = format!("--model llama-3.1-8b --hardware h100 --requests {path} --format json {more}");
        simulate(&line).json()["stages"][0]["e2e_ms"]["mean"].as_f64().unwrap()
    };
    let times = [&greedy, &mixed, &server].map(|path| e2e_ms(path, ""));
    assert!(times.is_sorted_by(|less, more| less < more), "{times:?}");
    let greedy_server = e2e_ms(&server, "--override-generation-config {\"temperature\":0}");
    assert_eq!(times[0].to_bits(), greedy_server.to_bits());
}

use ridgepoint::Hardware;
use ridgepoint::calibrate::{operators::*, rows::Rows};
use ridgepoint::measurements::Measurements;
fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let hw = Hardware::find(&args[0]).unwrap();
    let mut rows = Rows::default();
    for d in &args[2..] {
        rows.extend(Rows::from_measurements(&Measurements::load(std::path::Path::new(d)).unwrap()));
    }
    let show = |n: &str, r: Option<CalibratedTable>| {
        if let Some(c) = r {
            let t = c.report.total;
            println!(
                "{n}: rows {} median {:.2} mean {:.2} p90 {:.2} bytes {}",
                t.rows,
                t.median_ape_pct,
                t.mape_pct,
                t.p90_ape_pct,
                c.text.len()
            );
            for (k, s) in &c.report.by_dtype {
                println!(
                    "    {k}: rows {} median {:.2} mean {:.2} p90 {:.2}",
                    s.rows, s.median_ape_pct, s.mape_pct, s.p90_ape_pct
                );
            }
            for (k, s) in &c.report.compared {
                println!("    vs {k}: median {:.2} mean {:.2}", s.median_ape_pct, s.mape_pct);
            }
            std::fs::write(format!("/tmp/out_{n}.csv"), &c.text).unwrap();
        }
    };
    let w = &args[1];
    let t = std::time::Instant::now();
    if w.contains('g') {
        show("gemm", calibrate_operator(&rows.gemm, &hw, "x", || ()).unwrap());
    }
    if w.contains('p') {
        show("prefill", calibrate_operator(&rows.attention_prefill, &hw, "x", || ()).unwrap());
    }
    if w.contains('d') {
        show("decode", calibrate_operator(&rows.attention_decode, &hw, "x", || ()).unwrap());
    }
    if w.contains('m') {
        show("moe", calibrate_operator(&rows.moe, &hw, "x", || ()).unwrap());
    }
    if w.contains('a') {
        show("allreduce", calibrate_operator(&rows.allreduce, &hw, "x", || ()).unwrap());
    }
    println!("{:?}", t.elapsed());
}

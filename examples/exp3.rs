use ridgepoint::*;
fn main() {
    let hw = Hardware::find("h100").unwrap();
    let t = std::fs::read_to_string("/tmp/cl.csv").unwrap();
    let mut errs: std::collections::BTreeMap<String, Vec<f64>> = Default::default();
    for l in t.lines().skip(1) {
        let f: Vec<&str> = l.split(',').collect();
        let n = |i: usize| f[i].parse::<f64>().unwrap_or(1.0);
        let (isl, osl, c, tp, dp, ep) = (n(3), n(4), n(5), n(6), n(7), n(9));
        let name = if f[0].contains("70B") {
            "llama-3.1-70b-FP8".into()
        } else if f[2] == "fp8" && f[0].contains("32B") {
            "Qwen/Qwen3-32B-FP8".to_string()
        } else {
            f[0].to_string()
        };
        let d = Deployment {
            tensor_parallel_size: tp as u32,
            data_parallel_size: dp.max(1.0) as u32,
            enable_expert_parallel: ep > 1.0,
            max_num_batched_tokens: 8192,
            max_num_seqs: 512,
            ..Default::default()
        };
        let m = match Model::find(&name) {
            Ok(m) => m,
            Err(e) => {
                println!("{e}");
                continue;
            }
        };
        let s = match StepModel::new(&m, &hw, &d) {
            Ok(s) => s,
            Err(e) => {
                println!("{name} tp{tp} dp{dp} ep{ep}: {e}");
                continue;
            }
        };
        let cc = (c / dp.max(1.0)).max(1.0);
        let dec = s.step_time(&vec![Request::decode((isl + osl / 2.0) as u32); cc as usize]).step_time_us / 1e3;
        let pre = s.step_time(&[Request::prefill(isl as u32, 0)]).step_time_us / 1e3;
        let pred = dec + (cc - 1.0) / osl * pre;
        let meas = n(10);
        let e = 100.0 * (pred / meas - 1.0);
        if std::env::args().nth(1).is_some() {
            println!(
                "{name} v{} isl {isl} osl {osl} c {c} tp{tp} dp{dp} moetp{} ep{ep}: dec {dec:.2} pred {pred:.2} meas {meas:.2} {e:+.1}%",
                f[1], f[8]
            );
        }
        errs.entry(format!("{name} {}", f[1])).or_default().push(e);
    }
    for (k, mut v) in errs {
        v.sort_by(f64::total_cmp);
        let mut a: Vec<f64> = v.iter().map(|x| x.abs()).collect();
        a.sort_by(f64::total_cmp);
        println!(
            "{k}: n={} signed median {:.1} abs median {:.1} p10 {:.1} p90 {:.1}",
            v.len(),
            v[v.len() / 2],
            a[a.len() / 2],
            v[v.len() / 10],
            v[v.len() * 9 / 10]
        );
    }
}

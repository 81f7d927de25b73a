use ridgepoint::*;
fn main() {
    let hw = Hardware::find("h100").unwrap();
    for (m, tp, pts) in [
        (
            "RedHatAI/Llama-4-Scout-17B-16E-Instruct-FP8-dynamic",
            2u32,
            vec![(40usize, 1758u32, 28.11), (34, 875, 22.86), (53, 690, 24.96), (27, 670, 21.0)],
        ),
        ("qwen2.5-7b", 1, vec![(10, 875, 6.95), (10, 1758, 7.34)]),
    ] {
        let d = Deployment {
            tensor_parallel_size: tp,
            max_num_seqs: 128,
            max_num_batched_tokens: 2048,
            max_model_len: Some(4096),
            ..Default::default()
        };
        let s = StepModel::new(&Model::find(m).unwrap(), &hw, &d).unwrap();
        for (n, kv, meas) in pts {
            let e = s.step_time(&vec![Request::decode(kv); n]);
            print!(
                "{m} n={n} kv={kv} pred {:.2} meas {meas} gap {:.2} |",
                e.step_time_us / 1e3,
                meas - e.step_time_us / 1e3
            );
            use physics::OperatorGroup::*;
            for g in [Projections, AttentionDecode, Communication, SmallKernels] {
                print!(" {g:?} {:.2}", e.group_us(g) / 1e3);
            }
            println!();
        }
        let e = s.step_time(&vec![Request::decode(1758); 40]);
        for o in &e.operators {
            println!(
                "   {:22} x{:4} {:8.1}us each {:6.2} eff {:.2} {:?}",
                o.name,
                o.count,
                o.time_us,
                o.time_us / o.count as f64,
                o.efficiency,
                o.provenance
            );
        }
    }
}

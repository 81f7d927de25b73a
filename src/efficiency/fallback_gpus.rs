//! The order of fallback GPUs: whose tables answer where a GPU has none.

use crate::dtype::DType;
use crate::hardware::{Architecture, Hardware};

/// Whether a chip is a Blackwell Ultra, whose units multiply 4-bit floats three times as fast as 8-bit ones, not twice.
fn is_ultra(hardware: &Hardware) -> bool {
    let peak = |dtype| hardware.peak_dense_flop_per_s(dtype).ok();
    let ratio = peak(DType::Fp4).zip(peak(DType::Fp8)).map(|(fp4, fp8)| fp4 / fp8);
    hardware.architecture == Architecture::Blackwell && ratio.is_some_and(|ratio| ratio > 2.5)
}

/// Whether two GPUs have the same chip, with other memory or another host: H100 and H200, B200 and GB200, B300 and GB300.
pub(super) fn is_same_chip(a: &Hardware, b: &Hardware) -> bool {
    let is_near = a.sm_count.abs_diff(b.sm_count) * 20 <= a.sm_count;
    is_near && (a.architecture, is_ultra(a)) == (b.architecture, is_ultra(b))
}

/// GPUs whose tables replace those that a chip lacks, nearest first. Chips of one kind go first: on GB200's projections and attention
/// the tables of B200 have median errors of 3 to 4 %, those of B300 7 to 11 %.
pub(super) fn fallback_gpus(hardware: &Hardware) -> &'static [&'static str] {
    match hardware.architecture {
        Architecture::Blackwell if is_ultra(hardware) => {
            &["b300_sxm", "gb200", "b200_sxm", "h200_sxm", "h100_sxm", "a100_sxm"]
        }
        Architecture::Volta | Architecture::Turing | Architecture::Ampere => &["a100_sxm", "h100_sxm", "h200_sxm"],
        Architecture::Ada => &["l40s", "a100_sxm", "h100_sxm", "h200_sxm"],
        Architecture::Hopper => &["h100_sxm", "h200_sxm", "a100_sxm"],
        Architecture::Blackwell => &["b200_sxm", "gb200", "b300_sxm", "h200_sxm", "h100_sxm", "a100_sxm"],
        Architecture::BlackwellConsumer => {
            &["rtx_pro_6000_server", "b200_sxm", "l40s", "h200_sxm", "h100_sxm", "a100_sxm"]
        }
        Architecture::Cpu => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_chip_is_sold_with_other_memory_and_hosts() {
        let gpu = |name| Hardware::find(name).unwrap();
        let is_same = |a, b| is_same_chip(&gpu(a), &gpu(b)) && is_same_chip(&gpu(b), &gpu(a));
        assert!(is_same("h100", "h200") && is_same("b200", "gb200") && is_same("b300", "gb300"));
        for (a, b) in [("b200", "b300"), ("h100", "h100_pcie"), ("h100", "a100"), ("b200", "rtx_pro_6000_server")] {
            assert!(!is_same_chip(&gpu(a), &gpu(b)), "{a} and {b}");
        }
    }
}

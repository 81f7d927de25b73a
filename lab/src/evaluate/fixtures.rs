//! Files of closed loops for tests.

use super::closed_loop_row::{ClosedLoopRow, read_closed_loop};
use ridgepoint::Result;

pub(super) const HEADER: &str = "id,backend,backend_version,model_path,system,precision,isl,osl,\
    gemm_quant_mode,moe_quant_mode,concurrency,tp_size,pp_size,attention_dp_size,moe_tp_size,moe_ep_size,ttft_ms,tpot_ms\n";
pub(super) fn read_text(text: &str) -> Result<Vec<ClosedLoopRow>> {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("loops.csv");
    std::fs::write(&path, text).expect("written");
    read_closed_loop(&[path])
}

//! Finds the checkpoint that a closed-loop row means: the model's own, or a quantised variant of it.

use std::path::Path;

use super::closed_loop_row::ClosedLoopRow;
use ridgepoint::dtype::MatmulFormat;
use ridgepoint::{Error, Model, Result};

/// Returns the model of a row and notes about the choice, or the reason why there is none.
pub(super) fn model_of(row: &ClosedLoopRow, data_dir: Option<&Path>) -> Result<(Model, Vec<String>)> {
    let model = Model::find_in(data_dir, &row.model_path)?;
    let Some((word, format)) = requested(row, has_experts(&model))? else { return Ok((model, Vec::new())) };
    let (model, note) = Model::find_variant(data_dir, &row.model_path, format)?;
    // A row that says its projections are quantised overrides a published checkpoint that leaves them in 16 bits.
    if note.is_some() && !row.gemm_quant_mode.is_empty() && model.leaves_projections_above(format) {
        let whole = Model::find_in(data_dir, &format!("{}-{}", row.model_path, row.gemm_quant_mode))?;
        let note = format!(
            "gemm_quant_mode = {}: {} leaves projections in more bits, so that all linear layers are taken in this format",
            row.gemm_quant_mode, model.name
        );
        return Ok((whole, vec![note]));
    }
    let stored = model.main_weight_format().map_or_else(String::new, |format| format.to_string());
    // Such files call block scales fp8, and gpt-oss nvfp4, which is published in mxfp4 alone.
    let is_coarse = note.is_none() && format.bits().0 < 16 && !stored.starts_with(word.as_str());
    let coarse = is_coarse.then(|| format!("'{word}' is taken as {stored}, the format of {}", model.name));
    Ok((model, note.or(coarse).into_iter().collect()))
}

/// Returns the number format that a row has for the model's matrices; `None` for the checkpoint's own.
fn requested(row: &ClosedLoopRow, has_experts: bool) -> Result<Option<(String, MatmulFormat)>> {
    let moe = if has_experts { row.moe_quant_mode.as_str() } else { "" };
    let words =
        [("gemm_quant_mode", row.gemm_quant_mode.as_str()), ("moe_quant_mode", moe), ("precision", &row.precision)];
    let mut requested: Option<(&str, &str, MatmulFormat)> = None;
    for (column, word) in words.into_iter().filter(|(_, word)| !word.is_empty()) {
        let invalid = |reason: String| Error::invalid_argument(column, word, reason);
        let format = MatmulFormat::parse(word).ok_or_else(|| invalid("is not a known number format".to_owned()))?;
        match requested {
            Some((first, earlier, known)) if known.bits() != format.bits() => {
                return Err(invalid(format!("and {first} = {earlier} are mixed formats, which are not supported")));
            }
            _ => requested = requested.or(Some((column, word, format))),
        }
    }
    Ok(requested.map(|(_, word, format)| (word.to_owned(), format)))
}

/// Returns whether any layer of the model has routed experts.
pub(super) fn has_experts(model: &Model) -> bool {
    model.layers.iter().any(|layer| layer.moe.is_some())
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{HEADER, read_text};
    use super::*;

    fn row(model_path: &str, precision: &str, gemm: &str, moe: &str) -> ClosedLoopRow {
        let cells = format!("a,vllm,,{model_path},h100_sxm,{precision},64,8,{gemm},{moe},1,1,1,,,,5,5\n");
        read_text(&format!("{HEADER}{cells}")).expect("a row").remove(0)
    }

    fn found(model_path: &str, precision: &str, gemm: &str, moe: &str) -> (String, Vec<String>) {
        let (model, notes) = model_of(&row(model_path, precision, gemm, moe), None).expect("a model");
        (model.name.clone(), notes)
    }

    fn refused(model_path: &str, precision: &str, gemm: &str, moe: &str) -> String {
        model_of(&row(model_path, precision, gemm, moe), None).expect_err("refused").to_string()
    }

    #[test]
    fn empty_words_leave_it_to_the_checkpoint() {
        assert_eq!(found("Qwen/Qwen3-32B", "", "", ""), ("qwen3-32b".to_owned(), vec![]));
        assert_eq!(found("openai/gpt-oss-120b", "", "", "").0, "gpt-oss-120b");
        assert_eq!(found("Qwen/Qwen3-32B", "bf16", "", ""), ("qwen3-32b".to_owned(), vec![]));
    }

    #[test]
    fn a_quantised_variant_is_found_by_name_or_made() {
        let (name, notes) = found("Qwen/Qwen3-32B", "fp8", "fp8", "fp8");
        assert_eq!(name, "qwen3-32b-fp8");
        assert!(notes[0].contains("fp8_block128x128"), "{notes:?}");
        let (name, notes) = found("meta-llama/Llama-3.1-70B", "fp8", "fp8", "fp8");
        assert_eq!(name, "llama-3.1-70b-fp8");
        assert!(notes[0].contains("llama-3.1-70b-fp8 (fp8) is used"), "{notes:?}");
    }

    #[test]
    fn projections_are_quantised_where_the_row_says_so() {
        let (name, notes) = found("moonshotai/Kimi-K2.5", "fp4", "nvfp4", "nvfp4");
        assert_eq!(name, "moonshotai/Kimi-K2.5-nvfp4");
        assert!(
            notes[0].contains("gemm_quant_mode = nvfp4: kimi-k2.5-nvfp4 leaves projections in more bits"),
            "{notes:?}"
        );
        assert_eq!(found("moonshotai/Kimi-K2.5", "fp4", "", "nvfp4").0, "kimi-k2.5-nvfp4");
        assert_eq!(found("nvidia/Kimi-K2.5-NVFP4", "fp4", "nvfp4", "nvfp4").0, "kimi-k2.5-nvfp4");
    }

    #[test]
    fn coarse_words_are_taken_as_the_checkpoint_is_stored() {
        let (name, notes) = found("openai/gpt-oss-120b", "fp4", "nvfp4", "nvfp4");
        assert_eq!(name, "gpt-oss-120b");
        assert!(notes[0].contains("'nvfp4' is taken as mxfp4"), "{notes:?}");
        assert_eq!(found("MiniMaxAI/MiniMax-M2.5", "fp8", "fp8", "fp8"), ("minimax-m2.5".to_owned(), vec![]));
    }

    #[test]
    fn formats_that_the_checkpoint_has_not_are_refused() {
        let reason = refused("openai/gpt-oss-120b", "fp8", "fp8", "fp8");
        assert!(reason.contains("fp8 is requested, but gpt-oss-120b stores its weights as mxfp4"), "{reason}");
        assert!(refused("Qwen/Qwen3-32B-FP8", "bf16", "", "").contains("fp8_block128x128"));
        assert!(refused("Qwen/Qwen3-32B", "fp3", "", "").contains("precision: 'fp3' is not a known"));
        let mixed = refused("MiniMaxAI/MiniMax-M2.5", "fp8", "fp8", "nvfp4");
        assert!(mixed.contains("moe_quant_mode: 'nvfp4' and gemm_quant_mode = fp8"), "{mixed}");
        assert!(refused("acme/unknown-7b", "", "", "").contains("unknown model"));
        // A dense model has no experts to speak of.
        assert_eq!(found("meta-llama/Llama-3.1-70B", "fp8", "fp8", "nvfp4").0, "llama-3.1-70b-fp8");
    }
}

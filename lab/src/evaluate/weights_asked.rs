//! Which checkpoint a closed-loop row means: the model's own, or a quantised variant of it. Uses `model`.

use std::path::Path;

use super::closed_loop_row::ClosedLoopRow;
use ridgepoint::Model;
use ridgepoint::WeightFormat;
use ridgepoint::model::Attention;

/// Number formats that one word of such a file stands for. The words are coarser than checkpoints are: `fp8` is said of
/// block scales too, `nvfp4` of gpt-oss, which is published in mxfp4 alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    SixteenBit,
    EightBitFloat,
    FourBitFloat,
    EightBitInteger,
    FourBitInteger,
}

impl Kind {
    fn of_word(word: &str) -> Option<Kind> {
        match word {
            "bf16" | "bfloat16" | "fp16" | "float16" => Some(Kind::SixteenBit),
            "fp8" | "fp8_static" | "fp8_block" => Some(Kind::EightBitFloat),
            "fp4" | "nvfp4" | "mxfp4" | "w4a16_mxfp4" => Some(Kind::FourBitFloat),
            "int8_wo" => Some(Kind::EightBitInteger),
            "int4_wo" => Some(Kind::FourBitInteger),
            _ => None,
        }
    }

    fn of_format(format: WeightFormat) -> Kind {
        match format {
            WeightFormat::Fp8 | WeightFormat::Fp8Block { .. } => Kind::EightBitFloat,
            WeightFormat::Mxfp4 | WeightFormat::Nvfp4 => Kind::FourBitFloat,
            WeightFormat::Int8 | WeightFormat::Int8WeightOnly { .. } => Kind::EightBitInteger,
            WeightFormat::Int4 { .. } => Kind::FourBitInteger,
            _ => Kind::SixteenBit,
        }
    }
}

/// The model of a row, with remarks, or why there is none.
pub(super) fn model_of(row: &ClosedLoopRow, data_dir: Option<&Path>) -> Result<(Model, Vec<String>), String> {
    let model = Model::find_in(data_dir, &row.model_path).map_err(|error| error.to_string())?;
    let Some((word, asked)) = asked(row, has_experts(&model))? else { return Ok((model, Vec::new())) };
    let stored = quantised(&model);
    if stored.is_empty() && asked == Kind::SixteenBit {
        return Ok((model, Vec::new()));
    }
    if !stored.is_empty() {
        if !stored.iter().all(|format| Kind::of_format(*format) == asked) {
            return Err(format!("asks for {word}, but {} is stored in {}", model.name(), listed(&stored)));
        }
        let names_it = stored.iter().any(|format| format.to_string().starts_with(word.as_str()));
        let note =
            (!names_it).then(|| format!("'{word}' is taken as {}, as {} is stored", listed(&stored), model.name()));
        return Ok((model, note.into_iter().collect()));
    }
    let suffix = match word.as_str() {
        "fp8" | "fp8_static" => "-FP8",
        "fp8_block" => "-FP8-block",
        "nvfp4" => "-NVFP4",
        "int8_wo" => "-w8a16",
        "int4_wo" => "-w4a16",
        _ => return Err(format!("asks for {word}, but {} is stored in {}", model.name(), model.dtype())),
    };
    let variant = format!("{}{suffix}", row.model_path);
    let found = Model::find_in(data_dir, &variant)
        .map_err(|error| format!("asks for {word}, but {} is stored in {}: {error}", model.name(), model.dtype()))?;
    let stored = quantised(&found);
    if stored.is_empty() || !stored.iter().all(|format| Kind::of_format(*format) == asked) {
        return Err(format!("asks for {word}, but {variant} is stored in {}", listed(&stored)));
    }
    let note = format!("'{word}' of {} is taken as {}, stored in {}", row.model_path, found.name(), listed(&stored));
    Ok((found, vec![note]))
}

/// The one word that the row has for the model's matrices; `None` where it leaves them to the checkpoint.
fn asked(row: &ClosedLoopRow, has_experts: bool) -> Result<Option<(String, Kind)>, String> {
    let mut words = vec![("gemm_quant_mode", row.gemm_quant_mode.as_str())];
    if has_experts {
        words.push(("moe_quant_mode", row.moe_quant_mode.as_str()));
    }
    words.push(("precision", row.precision.as_str()));
    let mut asked: Option<(&str, String, Kind)> = None;
    for (column, word) in words {
        if word.is_empty() {
            continue;
        }
        let kind = Kind::of_word(word).ok_or_else(|| format!("{column} = {word} is not a known number format"))?;
        match &asked {
            None => asked = Some((column, word.to_owned(), kind)),
            Some((_, _, earlier)) if *earlier == kind => {}
            Some((first, earlier, _)) => {
                return Err(format!("{first} = {earlier} and {column} = {word}: mixed formats are not supported"));
            }
        }
    }
    Ok(asked.map(|(_, word, kind)| (word, kind)))
}

/// Whether any layer of the model has routed experts.
pub(super) fn has_experts(model: &Model) -> bool {
    model.layers().iter().any(|layer| layer.moe.is_some())
}

/// The formats of matrices that are not plain, each once.
fn quantised(model: &Model) -> Vec<WeightFormat> {
    let mut formats = Vec::new();
    for layer in model.layers() {
        match &layer.attention {
            Attention::Gqa(gqa) => formats.extend([gqa.qkv_weights, gqa.o_weights]),
            Attention::Mla(mla) => formats.push(mla.weights),
        }
        formats.extend(layer.dense.as_ref().map(|dense| dense.weights));
        formats.extend(layer.moe.as_ref().map(|moe| moe.weights));
    }
    let mut distinct: Vec<WeightFormat> = Vec::new();
    for format in formats {
        if Kind::of_format(format) != Kind::SixteenBit && !distinct.contains(&format) {
            distinct.push(format);
        }
    }
    distinct
}

fn listed(formats: &[WeightFormat]) -> String {
    if formats.is_empty() {
        return "16-bit floats".to_owned();
    }
    formats.iter().map(WeightFormat::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::super::closed_loop_row::tests::{HEADER, read_text};
    use super::*;

    fn row(model_path: &str, precision: &str, gemm: &str, moe: &str) -> ClosedLoopRow {
        let cells = format!("a,vllm,,{model_path},h100_sxm,{precision},64,8,{gemm},{moe},1,1,1,,,,5,5\n");
        read_text(&format!("{HEADER}{cells}")).expect("a row").remove(0)
    }

    fn found(model_path: &str, precision: &str, gemm: &str, moe: &str) -> (String, Vec<String>) {
        let (model, notes) = model_of(&row(model_path, precision, gemm, moe), None).expect("a model");
        (model.name().to_owned(), notes)
    }

    fn refused(model_path: &str, precision: &str, gemm: &str, moe: &str) -> String {
        model_of(&row(model_path, precision, gemm, moe), None).expect_err("refused")
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
        assert!(notes[0].contains("stored in fp8"), "{notes:?}");
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
        assert!(reason.contains("asks for fp8, but gpt-oss-120b is stored in mxfp4"), "{reason}");
        assert!(refused("Qwen/Qwen3-32B-FP8", "bf16", "", "").contains("fp8_block128x128"));
        assert!(refused("Qwen/Qwen3-32B", "fp3", "", "").contains("precision = fp3 is not a known"));
        let mixed = refused("MiniMaxAI/MiniMax-M2.5", "fp8", "fp8", "nvfp4");
        assert!(mixed.contains("gemm_quant_mode = fp8 and moe_quant_mode = nvfp4"), "{mixed}");
        assert!(refused("acme/unknown-7b", "", "", "").contains("unknown model"));
        // A dense model has no experts to speak of.
        assert_eq!(found("meta-llama/Llama-3.1-70B", "fp8", "fp8", "nvfp4").0, "llama-3.1-70b-fp8");
    }
}

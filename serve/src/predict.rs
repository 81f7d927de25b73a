//! `POST /v1/predict-step`.

use std::path::Path;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use hyper::{Request, StatusCode};
use ridgepoint::input::{Keys, Log};
use ridgepoint::{EfficiencyMode, Options, StepModel};
use serde_json::{Map, Value};

use crate::app::{App, RequestLimits};
use crate::body::{MOST_BYTES_AT_ONCE, ORIGIN, taken};
use crate::jobs::Stop;
use crate::problem::Problem;
use crate::server_keys::{ServerKeys, text_bytes};
use crate::{answer, body};
use ridgepoint_lab::predict_step::{Batch, Item, PredictedStep};
use ridgepoint_lab::served::Served;

/// Keys of the route in addition to those of the server.
pub const KEYS: [&str; 4] = ["requests", "prefill", "decode", "explain"];

/// Larger batches are predicted on the threads for long work.
const MOST_AT_ONCE: u64 = 4096;

/// Bytes of a step model without lookup tables; 25 to 75 KiB were seen.
const MODEL_BYTES: usize = 96 * 1024;

/// A step model that answers, and the requested step.
pub struct Compiled {
    served: Arc<Served>,
    efficiency: EfficiencyMode,
    notes: Vec<String>,
}

/// Predicts a step.
pub async fn predict_step(
    State(app): State<Arc<App>>,
    limits: RequestLimits,
    request: Request<Body>,
) -> Result<Response, Problem> {
    let body::Json { mut map, bytes, reservation } = body::json(&app, limits, request).await?;
    let own = taken(&mut map, &KEYS);
    let server = Arc::new(ServerKeys::new(map));
    let compiled = compiled(&app, limits, &server).await?;
    if bytes > MOST_BYTES_AT_ONCE {
        let work = move |_: &Stop| {
            let (batch, explain) = batch(own)?;
            let answered = answered(&compiled, &batch, explain);
            drop(reservation);
            answered
        };
        return app.run(limits, work).await;
    }
    let (batch, explain) = batch(own)?;
    if batch.num_requests() <= MOST_AT_ONCE {
        return answered(&compiled, &batch, explain);
    }
    app.run(limits, move |_| answered(&compiled, &batch, explain)).await
}

/// The step model of a server, from the cache or built.
async fn compiled(app: &App, limits: RequestLimits, server: &Arc<ServerKeys>) -> Result<Arc<Compiled>, Problem> {
    let build = || {
        let (server, data_dir) = (Arc::clone(server), app.data_dir.clone());
        app.run(limits, move |_| {
            let compiled = compile(&server, data_dir.as_deref())?;
            let bytes = MODEL_BYTES + text_bytes(&compiled.notes);
            Ok((compiled, bytes))
        })
    };
    app.step_models.get_or_build(&server.canonical(), build).await
}

fn compile(server: &ServerKeys, data_dir: Option<&Path>) -> Result<Compiled, Problem> {
    let found = server.find(data_dir, &KEYS)?;
    let options = Options { operators_only: true, ..found.options };
    let hardware = options.gpu(&found.hardware)?;
    let deployment = found.server.deployment_on(&found.model, &hardware, &options.engine);
    let steps = StepModel::with_options(&found.model, &hardware, &deployment, &options)?;
    let served = Served { model: found.model, hardware, deployment, steps };
    Ok(Compiled { served: Arc::new(served), efficiency: options.efficiency, notes: found.notes })
}

fn answered(compiled: &Compiled, batch: &Batch, explain: bool) -> Result<Response, Problem> {
    let mut prediction = PredictedStep::new(Arc::clone(&compiled.served), compiled.efficiency, batch, explain)?;
    prediction.warn(&compiled.notes);
    Ok(answer::json(StatusCode::OK, &prediction))
}

/// The batch of a body: its requests, or the shorthand of the command's flags.
fn batch(mut own: Map<String, Value>) -> Result<(Batch, bool), Problem> {
    let log = Log::default();
    let keys = Keys::of_map("", &own, &log);
    let explain = keys.flag("explain").unwrap_or(false);
    let (has_requests, has_shorthand) = (keys.has("requests"), keys.has("prefill") || keys.has("decode"));
    if has_requests == has_shorthand {
        let found = if has_requests { "both" } else { "neither" };
        log.problem(format!(
            "{found} of requests and the shorthand are given: a batch is requests, as in \
             [{{\"num_computed_tokens\": 2048, \"num_scheduled_tokens\": 1}}], or prefill and decode, as in [\"2x512@1024\"] and \
             [\"64x2048\"]"
        ));
    }
    let mut items = Vec::new();
    for (key, read) in [("prefill", Item::prefill as fn(&str) -> _), ("decode", Item::decode)] {
        for text in keys.texts(key).into_iter().flatten().flat_map(|text| text.split(',')) {
            match read(text) {
                Ok(item) => items.push(Item { flag: format!("{key} {}", text.trim()), ..item }),
                Err(fault) => log.problem(format!("{key} \"{}\": {fault}", ridgepoint::unstable::error::cut(text))),
            }
        }
    }
    log.finish(ORIGIN, Some(()))?;
    if has_shorthand {
        return Ok((Batch::of_items(ORIGIN, items)?, explain));
    }
    own.retain(|key, _| key == "requests");
    Ok((Batch::from_json(ORIGIN, &Value::Object(own))?, explain))
}

//! The batches that are timed, and what compiled steps are timed against.

use ridgepoint::latency::BlackBox;
use ridgepoint::{Deployment, Hardware, Model, Request, RequestColumns, StepModel, StepState};

/// A batch as a slice and in columns.
pub struct Batch {
    pub name: &'static str,
    pub requests: Vec<Request>,
    computed: Vec<u32>,
    scheduled: Vec<u32>,
}

impl Batch {
    pub fn new(name: &'static str, requests: Vec<Request>) -> Self {
        let computed = requests.iter().map(|r| r.num_computed_tokens).collect();
        let scheduled = requests.iter().map(|r| r.num_scheduled_tokens).collect();
        Batch { name, requests, computed, scheduled }
    }

    pub fn columns(&self) -> RequestColumns<'_> {
        RequestColumns::new(&self.computed, &self.scheduled).unwrap()
    }
}

pub fn decodes(count: u32) -> Vec<Request> {
    (0..count).map(|i| Request::decode(1000 + 8 * (i % 512))).collect()
}

/// Decodes alone, and a chunk of 2,048 tokens with 64 of them, as engines and as simulators order them.
pub fn batches() -> Vec<Batch> {
    let sizes = [
        ("1 decode", 1),
        ("8 decodes", 8),
        ("64 decodes", 64),
        ("128 decodes", 128),
        ("256 decodes", 256),
        ("1,024 decodes", 1024),
        ("4,096 decodes", 4096),
    ];
    let chunk = Request::prefill(2048, 1024);
    let mut batches: Vec<Batch> = sizes.map(|(name, count)| Batch::new(name, decodes(count))).into();
    batches.push(Batch::new("2,048-token chunk, then 64 decodes", [vec![chunk], decodes(64)].concat()));
    batches.push(Batch::new("64 decodes, then 2,048-token chunk", [decodes(64), vec![chunk]].concat()));
    batches
}

/// A compiled model, and two formulas that know less.
pub struct Against {
    pub steps: StepModel,
    pub line: BlackBox,
    pub peer: PeerShaped,
}

impl Against {
    pub fn new(model: &str, gpus: u32) -> Self {
        // The widest batch here is one that the deployment allows.
        let deployment = Deployment { max_num_seqs: 4096, ..Deployment::tensor_parallel(gpus) };
        let (model, hardware) = (Model::find(model).unwrap(), Hardware::find("h100").unwrap());
        Against {
            steps: StepModel::new(&model, &hardware, &deployment).unwrap(),
            line: BlackBox { beta0_us: 6000.0, beta1_us: 20.0, beta2_us: 60.0, ..BlackBox::default() },
            peer: PeerShaped { betas_us: [6000.0, 20.0, 60.0, 1e-5, 2e-2, 3e-2, 1e-4, 3.0, 40.0, 0.5, 2e-6] },
        }
    }

    pub fn state(&self, requests: &[Request]) -> StepState {
        let mut state = self.steps.state();
        requests.iter().for_each(|request| state.add(request));
        state
    }
}

/// Peer-shaped, not the peer: a formula of the kind that trained-physics simulators use, eleven multiply-adds on what one
/// pass over the requests sums up, with coefficients that mean nothing. A yardstick for speed alone.
pub struct PeerShaped {
    betas_us: [f64; 11],
}

impl PeerShaped {
    pub fn step_time_us(&self, requests: &[Request]) -> f64 {
        let [mut chunks, mut chunk_tokens, mut chunk_context, mut pairs] = [0.0f64; 4];
        let [mut decodes, mut decode_context] = [0.0f64; 2];
        for request in requests {
            let (new, context) = (f64::from(request.num_scheduled_tokens), f64::from(request.num_computed_tokens));
            if request.is_decode() {
                decodes += 1.0;
                decode_context += context;
            } else {
                chunks += 1.0;
                chunk_tokens += new;
                chunk_context += context;
                pairs += new * (context + 0.5 * new);
            }
        }
        let requests = chunks + decodes;
        let tokens = chunk_tokens + decodes;
        let basis = [
            1.0,
            chunk_tokens,
            decodes,
            pairs,
            chunk_context,
            decode_context,
            tokens,
            requests,
            chunks,
            f64::from(u8::from(chunks > 0.0)),
            chunk_tokens * decodes,
        ];
        basis.iter().zip(&self.betas_us).map(|(x, beta_us)| x * beta_us).sum::<f64>().max(0.0)
    }
}

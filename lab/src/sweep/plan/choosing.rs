//! Deployments from the cheapest on, each judged as a search judges a rate, until enough of them hold.

use std::collections::BTreeMap;

use ridgepoint::Hardware;
use ridgepoint_replay::{Observer, ResourceSampler, RouterKind, SpreadSampler};

use super::super::grid::Configuration;
use super::super::load::LoadPoint;
use super::super::point::SharedLatency;
use super::super::row::Row;
use super::super::search::{JudgedRate, Search, behind};
use super::super::slo::{QUEUE, Slo};
use super::screening::{Screened, name_of, replicas, screen};
use super::{FrontPoint, NearestMiss, NotPlanned, Plan, PlanReport, PlannedDeployment, engine_of, launch};

/// Short loads find a rate to this share: a deployment is judged if servers that do so much more would hold the load.
const GUESS_SHARE: f64 = 1.2;
/// A server has been given up once so many times the guessed number of replicas do not hold.
const MOST_MORE: f64 = 2.0;
/// The highest load of the best deployment is searched up to so many times the one that must hold.
const HIGHEST: f64 = 8.0;
/// Points of the front that are listed.
const MAX_FRONT: usize = 24;

/// A deployment that may be judged.
#[derive(Debug, Clone, Copy)]
struct Offer {
    server: usize,
    count: u32,
    router: RouterKind,
    gpus: u64,
    /// What deployments are ranked by: cost, or GPUs without prices.
    cost: f64,
    /// What one server is guessed to do.
    highest: f64,
}

impl Offer {
    /// The share of the load that it is guessed to hold.
    fn share(&self, plan: &Plan) -> f64 {
        self.highest * f64::from(self.count) / plan.target()
    }
}

/// A deployment that was judged.
struct JudgedDeployment {
    candidate: Offer,
    judged: JudgedRate,
    load: LoadPoint,
}

/// Answers a plan.
pub(super) fn answer(plan: &Plan, progress: &(dyn Fn(usize, usize) + Sync)) -> PlanReport {
    let screened_so_far = std::sync::atomic::AtomicUsize::new(0);
    let told = || {
        let done = 1 + screened_so_far.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        progress(done, 0);
    };
    let screened = screen(plan, &told);
    let (mut left_out, mut candidates, mut front) = (Reasons::default(), Vec::new(), Vec::new());
    for (at, of) in screened.iter().enumerate() {
        match of {
            Err(reason) => left_out.add(reason.clone(), plan, at),
            Ok(of) => {
                front.extend(of.seen.iter().cloned());
                match plan.candidates(of) {
                    Ok(found) => candidates.extend(found),
                    Err(reason) => left_out.add(reason, plan, at),
                }
            }
        }
    }
    let (mut held, mut failed): (Vec<JudgedDeployment>, Vec<JudgedDeployment>) = (Vec::new(), Vec::new());
    while let Some(at) = cheapest(&candidates) {
        let candidate = candidates.swap_remove(at);
        // One deployment of each server and router: more replicas of it cost more.
        match plan.judged(candidate) {
            Err(reason) => left_out.add(reason, plan, candidate.server),
            Ok(of) if of.judged.judgement.score() <= 0.0 => held.push(of),
            Ok(of) => {
                candidates.extend(plan.with_more(candidate));
                failed.push(of);
            }
        }
        progress(plan.num_servers(), held.len() + failed.len());
        if held.len() >= plan.wanted.top {
            break;
        }
    }
    if held.is_empty() {
        // What the GPUs that there are would do: of each server as many as they make.
        let all = screened.iter().flatten().filter_map(|of| plan.largest(of));
        let most = all.max_by(|one, other| one.share(plan).total_cmp(&other.share(plan)));
        failed.extend(most.and_then(|most| plan.judged(most).ok()));
    }
    let nearest =
        failed.iter().min_by(|one, other| one.judged.judgement.score().total_cmp(&other.judged.judgement.score()));
    let nearest_miss = nearest.filter(|_| held.is_empty()).and_then(|of| plan.miss(of, &screened));
    let judged = held.len() + failed.len();
    let deployments = held.iter().enumerate().filter_map(|(rank, of)| plan.deployment(of, rank == 0)).collect();
    PlanReport {
        deployments,
        nearest_miss,
        left_out: left_out.listed(),
        front: front_of(front),
        load: plan.target(),
        load_is_users: plan.is_users(),
        slo: plan.slo().map(Slo::text).unwrap_or_default(),
        servers: plan.num_servers(),
        judged,
        warnings: plan.warnings(),
    }
}

/// The cheapest candidate; of equal costs the one of the fewest GPUs, then the one whose server does most.
fn cheapest(candidates: &[Offer]) -> Option<usize> {
    let key = |of: &Offer| (of.cost, of.gpus as f64, -of.highest / of.gpus as f64);
    let order = |one: &(f64, f64, f64), other: &(f64, f64, f64)| {
        one.0.total_cmp(&other.0).then(one.1.total_cmp(&other.1)).then(one.2.total_cmp(&other.2))
    };
    let all = candidates.iter().map(key).enumerate();
    all.min_by(|(_, one), (_, other)| order(one, other)).map(|(at, _)| at)
}

impl Plan {
    fn slo(&self) -> Option<&Slo> {
        self.sweep.grid.slo.as_ref()
    }

    fn is_users(&self) -> bool {
        self.sweep.grid.loads.iter().any(|load| load.value.generated.concurrency.is_some())
    }

    fn hardware_of(&self, server: usize) -> Option<&Hardware> {
        self.sweep.hardware.get(&self.sweep.grid.servers.get(server)?.value.hardware)
    }

    /// A deployment of so many servers, or of the next number that is allowed; `None` beyond the GPUs that there are.
    fn candidate(&self, server: usize, gpus: u64, at_least: u32, router: RouterKind, highest: f64) -> Option<Offer> {
        let count = match &self.counts {
            None => at_least,
            Some(counts) => *counts.range(at_least..).next()?,
        };
        let hardware = &self.hardware_of(server)?.name;
        let (gpus, most) = (gpus * u64::from(count), self.wanted.gpus.of(hardware).unwrap_or(0));
        let price = self.wanted.price_per_gpu_hour.as_ref().and_then(|of| of.of(hardware)).unwrap_or(1.0);
        (gpus <= most).then_some(Offer { server, count, router, gpus, cost: price * gpus as f64, highest })
    }

    /// The largest deployment of a server that the GPUs make.
    fn largest(&self, of: &Screened) -> Option<Offer> {
        let hardware = &self.hardware_of(of.server)?.name;
        let most = u32::try_from(self.wanted.gpus.of(hardware)? / of.gpus).ok()?;
        let count = match &self.counts {
            None => most,
            Some(counts) => *counts.range(..=most).next_back()?,
        };
        let router = *self.routers.first()?;
        (count > 0).then(|| self.candidate(of.server, of.gpus, count, router, of.highest.unwrap_or(0.0)))?
    }

    /// The smallest deployments of a server that may hold, or why none can.
    fn candidates(&self, of: &Screened) -> Result<Vec<Offer>, String> {
        let Some(highest) = of.highest else {
            let broken = of.broken.clone().unwrap_or_default();
            return Err(format!("no number of replicas holds: at the lowest load {broken}"));
        };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a cast that saturates")]
        let at_least = (self.target() / (GUESS_SHARE * highest)).ceil().max(1.0) as u32;
        // One replica has no router.
        let routers = self.routers.iter().take(if at_least == 1 { 1 } else { usize::MAX });
        let found: Vec<Offer> =
            routers.filter_map(|router| self.candidate(of.server, of.gpus, at_least, *router, highest)).collect();
        match found.is_empty() {
            false => Ok(found),
            true => Err(format!(
                "needs about {} replicas of {} GPUs each, which are not there",
                (self.target() / highest).ceil(),
                of.gpus
            )),
        }
    }

    /// The deployments to judge after one that does not hold.
    fn with_more(&self, of: Offer) -> Vec<Offer> {
        let gpus = of.gpus / u64::from(of.count);
        if f64::from(of.count) > MOST_MORE * (self.target() / of.highest).ceil() {
            return Vec::new();
        }
        let routers = if of.count == 1 { &self.routers[..] } else { std::slice::from_ref(&of.router) };
        let more = |router: &RouterKind| self.candidate(of.server, gpus, of.count + 1, *router, of.highest);
        routers.iter().filter_map(more).collect()
    }

    /// Runs `then` with the search of a deployment.
    fn with_search<T>(&self, of: Offer, then: impl FnOnce(&Search<'_>) -> Result<T, String>) -> Result<T, String> {
        let grid = &self.sweep.grid;
        let replicas = replicas(of.count, of.router);
        let (Some(server), Some(load), Some(slo)) = (grid.servers.get(of.server), grid.loads.first(), self.slo())
        else {
            return Err(String::new());
        };
        let point = self.sweep.point(Configuration { server, replicas: &replicas, load }).ok_or("it was not found")?;
        let mut row = point.described(of.server);
        let latency = SharedLatency::new();
        let (engine, latency) = point.open(&mut row, &latency)?;
        then(&Search { point: &point, slo, row: &row, latency, config: &engine.config })
    }

    fn judged(&self, candidate: Offer) -> Result<JudgedDeployment, String> {
        let (judged, load) = self.with_search(candidate, |search| search.judged_at(self.target()))?;
        Ok(JudgedDeployment { candidate, judged, load })
    }

    fn serve_command(&self, server: usize) -> (String, Option<String>) {
        let Some(of) = self.sweep.grid.servers.get(server) else { return Default::default() };
        let engine = engine_of(&of.value, self.sweep.options());
        let line = launch::serve_command(&engine, &self.sweep.served_name(&of.value), &of.keys);
        let problem = launch::differs(&line, &of.value.hardware, &of.value);
        (line, problem)
    }

    fn deployment(&self, of: &JudgedDeployment, is_best: bool) -> Option<PlannedDeployment> {
        let JudgedDeployment { candidate, judged, load } = of;
        let tightest = judged.judgement.tightest().map(|(key, margin_pct)| (key.to_owned(), margin_pct));
        let watched = self.with_search(*candidate, |search| {
            let mut resources = ResourceSampler::new(search.latency.steps(), search.config);
            let mut spread = SpreadSampler::new(search.latency.steps());
            let watching: &mut [&mut dyn Observer] = &mut [&mut resources, &mut spread];
            let (sent, rate_per_s) = load.sent_at(self.target());
            let seen = search.point.replayed(search.row, search.latency, search.config, &sent, rate_per_s, watching)?;
            let mut row = judged.row.clone();
            search.point.fill_intervals(&mut row, search.latency, &spread, seen.trend.as_ref());
            let binds = tightest.as_ref().map_or(QUEUE, |(key, _)| key.as_str());
            let resource = behind(&resources, &seen.replay, binds);
            let highest = if is_best { Some(search.highest_from(self.target(), HIGHEST)?) } else { None };
            Ok((row, resource, highest))
        });
        let (mut row, resource, highest) = watched.ok()?;
        row.num_requests = judged.row.num_requests;
        let (serve_command, problem) = self.serve_command(candidate.server);
        row.warn(problem);
        let cost_per_hour = self.wanted.price_per_gpu_hour.as_ref().map(|_| candidate.cost);
        let tokens_per_hour = row.output_tokens_per_s.map(|rate| 3_600.0 * rate);
        Some(PlannedDeployment {
            serve_command,
            engine: row.serving_engine.clone(),
            hardware: row.hardware.clone(),
            num_gpus: candidate.gpus,
            replicas: candidate.count,
            router: (candidate.count > 1).then_some(candidate.router),
            holds: true,
            binding_limit: tightest.as_ref().map(|(key, _)| key.clone()),
            binding_resource: resource,
            margin_pct: tightest.map(|(_, margin_pct)| margin_pct),
            margins: judged.judgement.margins(),
            highest_load: highest.map(|(load, _)| load),
            highest_load_is_open: highest.is_some_and(|(_, is_open)| is_open),
            cost_per_hour,
            cost_per_million_output_tokens: cost_per_hour
                .zip(tokens_per_hour)
                .map(|(cost, tokens)| 1e6 * cost / tokens),
            num_requests: self.sweep.grid.source.num_requests(load),
            metrics: row,
        })
    }

    /// The best deployment of a plan that none holds.
    fn miss(&self, of: &JudgedDeployment, screened: &[Result<Screened, String>]) -> Option<NearestMiss> {
        let JudgedDeployment { candidate, judged, .. } = of;
        let mut help = Vec::new();
        let of_server = screened.get(candidate.server).and_then(|of| of.as_ref().ok());
        if let Some(server) = of_server.filter(|of| of.highest.is_some()) {
            let needed = (self.target() / candidate.highest).ceil().max(f64::from(candidate.count) + 1.0);
            help.push(format!(
                "more GPUs: by short loads about {needed} replicas hold, {} GPUs",
                needed * server.gpus as f64
            ));
        }
        let share = candidate.share(self);
        if share > 0.0 && share < 1.0 {
            help.push(format!("less load: these do about {:.0} % of it", 100.0 * share));
        }
        help.push(format!("a looser limit: {}", judged.judgement.broken().unwrap_or_default()));
        Some(NearestMiss {
            serve_command: self.serve_command(candidate.server).0,
            hardware: judged.row.hardware.clone(),
            num_gpus: candidate.gpus,
            replicas: candidate.count,
            limits_broken: judged.judgement.broken()?,
            miss_pct: 100.0 * (judged.judgement.score().exp() - 1.0),
            help,
            metrics: judged.row.clone(),
        })
    }

    fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        let kinds = self.sweep.hardware.len();
        if kinds > 1 && self.wanted.price_per_gpu_hour.is_none() {
            warnings.push("GPUs of different kinds are ranked by their number, as no price is given".to_owned());
        }
        if !self.sweep.grid.source.is_drawn() {
            warnings.push(
                "the requests of a file are judged once, as they are: another hour may differ by more than the margin"
                    .to_owned(),
            );
        }
        warnings
    }
}

/// Servers that are left out, by the reason.
#[derive(Default)]
struct Reasons(BTreeMap<String, Vec<String>>);

impl Reasons {
    fn add(&mut self, reason: String, plan: &Plan, server: usize) {
        let grid = &plan.sweep.grid;
        let one = super::screening::one();
        if let (Some(server), Some(load)) = (grid.servers.get(server), grid.loads.first()) {
            let configuration = Configuration { server, replicas: &one, load };
            let row = plan.sweep.point(configuration).map_or_else(Row::default, |point| point.described(0));
            self.0.entry(reason).or_default().push(name_of(&row, &configuration));
        }
    }

    fn listed(self) -> Vec<NotPlanned> {
        let of_reason = |(reason, servers): (String, Vec<String>)| {
            servers.into_iter().map(move |server| NotPlanned { server, reason: reason.clone() })
        };
        self.0.into_iter().flat_map(of_reason).collect()
    }
}

/// The points that no other one beats in both figures, by tokens per second of a user.
fn front_of(mut all: Vec<FrontPoint>) -> Vec<FrontPoint> {
    all.sort_by(|one, other| {
        let by_user = other.tokens_per_s_per_user.total_cmp(&one.tokens_per_s_per_user);
        by_user.then(other.tokens_per_s_per_gpu.total_cmp(&one.tokens_per_s_per_gpu))
    });
    let mut front: Vec<FrontPoint> = Vec::new();
    for point in all {
        if front.last().is_none_or(|last| point.tokens_per_s_per_gpu > last.tokens_per_s_per_gpu) {
            front.push(point);
        }
    }
    let every = front.len().div_ceil(MAX_FRONT).max(1);
    front.into_iter().step_by(every).collect()
}

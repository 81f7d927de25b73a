//! Deployments from the cheapest on, each judged as a search judges a rate, until enough of them hold.

use std::collections::BTreeMap;

use rayon::prelude::*;
use ridgepoint::Hardware;
use ridgepoint_replay::workload::check_block_memory;
use ridgepoint_replay::{Observer, ResourceSampler, RouterKind, SpreadSampler};

use super::super::grid::Configuration;
use super::super::load::LoadPoint;
use super::super::point::{SharedLatency, reason};
use super::super::replica_keys::Sharing;
use super::super::row::Row;
use super::super::search::{JudgedRate, Search, behind, largest};
use super::super::slo::{QUEUE, Slo};
use super::screening::{Screened, front_of, name_of, screen, shared};
use super::{NearestMiss, NotPlanned, Plan, PlanReport, PlannedDeployment};

/// Short loads find a rate to this share: a deployment is judged if servers that do so much more would hold the load.
const GUESS_SHARE: f64 = 1.2;
/// A server has been given up once so many times the guessed number of replicas do not hold.
const MOST_MORE: f64 = 2.0;
/// The most replicas of a server that does not hold any load alone, where prefill and decode are apart.
const MOST_APART: f64 = 16.0;
/// A deployment is judged whole if a short load scores less: the logarithm of a figure over its limit.
const PROMISING: f64 = 0.1;
/// The highest load of the best deployment is searched up to so many times the one that must hold.
const HIGHEST: f64 = 8.0;

/// A deployment that may be judged.
#[derive(Debug, Clone, Copy)]
struct Offer {
    server: usize,
    sharing: Sharing,
    gpus: u64,
    /// What deployments are ranked by: cost, or GPUs without prices.
    cost: f64,
    /// What one server is guessed to do.
    highest: f64,
}

impl Offer {
    /// The share of the load that it is guessed to hold.
    fn share(&self, plan: &Plan) -> f64 {
        self.highest * f64::from(self.sharing.replicas()) / plan.target()
    }
}

/// A deployment that was judged.
struct JudgedDeployment {
    offer: Offer,
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
    let (mut left_out, mut offers, mut front) = (Reasons::default(), Vec::new(), Vec::new());
    for (at, of) in screened.iter().enumerate() {
        match of {
            Err(reason) => left_out.add(reason.clone(), plan, at),
            Ok(of) => {
                front.extend(of.seen.iter().cloned());
                match plan.first_offers(of) {
                    Ok(found) => offers.extend(found),
                    Err(reason) => left_out.add(reason, plan, at),
                }
            }
        }
    }
    let (mut held, mut failed): (Vec<JudgedDeployment>, Vec<JudgedDeployment>) = (Vec::new(), Vec::new());
    while let Some(at) = cheapest(&offers) {
        let offer = offers.swap_remove(at);
        // One deployment of each server and router: more replicas of it cost more.
        match plan.judged(offer) {
            Err(reason) => left_out.add(reason, plan, offer.server),
            Ok(of) if of.judged.judgement.score() <= 0.0 => held.push(of),
            Ok(of) => {
                let of_server = screened.get(offer.server).and_then(|of| of.as_ref().ok());
                offers.extend(of_server.map(|screened| plan.with_more(offer, screened)).unwrap_or_default());
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

/// The cheapest offer; of equal costs the one of the fewest GPUs, then the one whose server does most.
fn cheapest(offers: &[Offer]) -> Option<usize> {
    let key = |of: &Offer| (of.cost, of.gpus as f64, -of.highest / of.gpus as f64);
    let order = |one: &(f64, f64, f64), other: &(f64, f64, f64)| {
        one.0.total_cmp(&other.0).then(one.1.total_cmp(&other.1)).then(one.2.total_cmp(&other.2))
    };
    let all = offers.iter().map(key).enumerate();
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

    /// A deployment of servers that share the load; `None` beyond the GPUs that there are.
    fn offer(&self, of: &Screened, sharing: Sharing) -> Option<Offer> {
        let hardware = &self.hardware_of(of.server)?.name;
        let (gpus, most) = (of.gpus * u64::from(sharing.replicas()), self.wanted.gpus.of(hardware).unwrap_or(0));
        let price = self.wanted.price_per_gpu_hour.as_ref().and_then(|of| of.of(hardware)).unwrap_or(1.0);
        let highest = of.highest.unwrap_or(0.0);
        (gpus <= most).then_some(Offer { server: of.server, sharing, gpus, cost: price * gpus as f64, highest })
    }

    /// The least number of replicas that is allowed.
    fn number(&self, at_least: u32) -> Option<u32> {
        match &self.counts {
            None => Some(at_least),
            Some(counts) => counts.range(at_least..).next().copied(),
        }
    }

    /// The most replicas that are thought of.
    fn most(&self, of: &Screened) -> f64 {
        of.highest.map_or(MOST_APART, |highest| MOST_MORE * (self.target() / highest).ceil() + 1.0)
    }

    /// The deployment of the fewest replicas from a number on that may hold.
    fn next(&self, of: &Screened, at_least: u32, like: Sharing) -> Option<Offer> {
        if like.prefill == 0 {
            let count = self.number(at_least).filter(|count| f64::from(*count) <= self.most(of))?;
            return self.offer(of, Sharing { count, ..like });
        }
        let mut at_least = at_least.max(2);
        loop {
            let all = self.number(at_least).filter(|all| f64::from(*all) <= self.most(of))?;
            // Short loads choose how many of them compute prompts.
            let split = |prefill: u32| {
                let offer = self.offer(of, Sharing { count: all - prefill, prefill, ..like })?;
                let score = self.with_search(offer, |search| search.probed(self.target(), all)).ok()?;
                Some((score, offer))
            };
            self.offer(of, Sharing { count: all - 1, prefill: 1, ..like })?;
            let order = |one: &(f64, Offer), other: &(f64, Offer)| {
                one.0.total_cmp(&other.0).then(one.1.sharing.prefill.cmp(&other.1.sharing.prefill))
            };
            let best = (1..all).into_par_iter().filter_map(split).min_by(order);
            match best {
                Some((score, offer)) if score <= PROMISING => return Some(offer),
                _ => at_least = all + 1,
            }
        }
    }

    /// The smallest deployments of a server that may hold, or why none can.
    fn first_offers(&self, of: &Screened) -> Result<Vec<Offer>, String> {
        let needed = of.highest.map(|highest| self.target() / highest);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a cast that saturates")]
        let at_least = (needed.unwrap_or(0.0) / GUESS_SHARE).ceil().max(1.0) as u32;
        let mut found = Vec::new();
        if of.highest.is_some() && self.wanted.together {
            // One replica has no router.
            let routers = self.routers.iter().take(if at_least == 1 { 1 } else { usize::MAX });
            let like = |router: &RouterKind| Sharing { count: 1, prefill: 0, router: *router };
            found.extend(routers.filter_map(|router| self.next(of, at_least, like(router))));
        }
        if self.wanted.apart {
            let like = |router: &RouterKind| Sharing { count: 1, prefill: 1, router: *router };
            found.extend(self.routers.iter().filter_map(|router| self.next(of, 2, like(router))));
        }
        match (found.is_empty(), needed, &of.broken) {
            (false, ..) => Ok(found),
            (true, Some(needed), _) => {
                Err(format!("needs about {} replicas of {} GPUs each, which are not there", needed.ceil(), of.gpus))
            }
            (true, None, broken) => {
                let broken = broken.clone().unwrap_or_default();
                Err(format!("no number of replicas holds: at the lowest load {broken}"))
            }
        }
    }

    /// The largest deployment of a server that the GPUs make.
    fn largest(&self, of: &Screened) -> Option<Offer> {
        let hardware = &self.hardware_of(of.server)?.name;
        let most = u32::try_from(self.wanted.gpus.of(hardware)? / of.gpus).ok()?;
        let all = match &self.counts {
            None => most,
            Some(counts) => *counts.range(..=most).next_back()?,
        };
        let prefill = if self.wanted.together { 0 } else { all / 2 };
        let count = all.checked_sub(prefill).filter(|count| *count > 0)?;
        self.offer(of, Sharing { count, prefill, router: *self.routers.first()? })
    }

    /// The deployments to judge after one that does not hold.
    fn with_more(&self, of: Offer, screened: &Screened) -> Vec<Offer> {
        let is_first = of.sharing.replicas() == 1;
        let routers = if is_first { &self.routers[..] } else { std::slice::from_ref(&of.sharing.router) };
        let more = |router: &RouterKind| {
            self.next(screened, of.sharing.replicas() + 1, Sharing { router: *router, ..of.sharing })
        };
        routers.iter().filter_map(more).collect()
    }

    /// Runs `then` with the search of a deployment.
    fn with_search<T>(&self, of: Offer, then: impl FnOnce(&Search<'_>) -> Result<T, String>) -> Result<T, String> {
        let grid = &self.sweep.grid;
        let replicas = shared(of.sharing);
        let (Some(server), Some(load), Some(slo)) = (grid.servers.get(of.server), grid.loads.first(), self.slo())
        else {
            return Err(String::new());
        };
        let point = self.sweep.point(Configuration { server, replicas: &replicas, load }).ok_or("it was not found")?;
        let mut row = point.described(of.server);
        let latency = SharedLatency::new();
        let (engine, latency) = point.open(&mut row, &latency)?;
        let ((longest, seeds), replicas) = (largest(&load.value, of.sharing.replicas()), of.sharing.replicas());
        let (summary, at_once) = (grid.source.summary(&longest), seeds.min(rayon::current_num_threads()));
        check_block_memory(&summary, (&engine.config, replicas), at_once, self.max_memory_gib).map_err(reason)?;
        then(&Search { point: &point, slo, row: &row, latency, config: &engine.config })
    }

    fn judged(&self, offer: Offer) -> Result<JudgedDeployment, String> {
        let (judged, load) = self.with_search(offer, |search| search.judged_at(self.target()))?;
        Ok(JudgedDeployment { offer, judged, load })
    }

    fn deployment(&self, of: &JudgedDeployment, is_best: bool) -> Option<PlannedDeployment> {
        let JudgedDeployment { offer, judged, load } = of;
        let tightest = judged.judgement.tightest().map(|(key, margin_pct)| (key.to_owned(), margin_pct));
        let watched = self.with_search(*offer, |search| {
            let mut resources = ResourceSampler::new(search.latency.steps(), search.config);
            let mut spread = SpreadSampler::new(search.latency.steps());
            let watching: &mut [&mut dyn Observer] = &mut [&mut resources, &mut spread];
            let (sent, rate_per_s) = load.sent_at(self.target());
            let seen = search.point.replayed(search.row, search.latency, search.config, &sent, rate_per_s, watching)?;
            let mut row = judged.row.clone();
            // How often those of pools would hold is not known.
            if offer.sharing.prefill == 0 {
                search.point.fill_intervals(&mut row, search.latency, &spread, seen.trend.as_ref());
            }
            let binds = tightest.as_ref().map_or(QUEUE, |(key, _)| key.as_str());
            let resource = behind(&resources, &seen.replay, binds);
            let highest = if is_best { Some(search.highest_from(self.target(), HIGHEST)?) } else { None };
            Ok((row, resource, highest))
        });
        let (mut row, resource, highest) = watched.ok()?;
        row.num_requests = judged.row.num_requests;
        let (serve_command, prefill_command, problem) = self.commands(offer.server, offer.sharing);
        row.warn(problem);
        let cost_per_hour = self.wanted.price_per_gpu_hour.as_ref().map(|_| offer.cost);
        let tokens_per_hour = row.output_tokens_per_s.map(|rate| 3_600.0 * rate);
        Some(PlannedDeployment {
            serve_command,
            prefill_command,
            engine: row.serving_engine.clone(),
            hardware: row.hardware.clone(),
            num_gpus: offer.gpus,
            replicas: offer.sharing.count,
            prefill_replicas: offer.sharing.prefill,
            router: (offer.sharing.replicas() > 1).then_some(offer.sharing.router),
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
        let JudgedDeployment { offer, judged, .. } = of;
        let mut help = Vec::new();
        let of_server = screened.get(offer.server).and_then(|of| of.as_ref().ok());
        if let Some(server) = of_server.filter(|of| of.highest.is_some()) {
            let needed = (self.target() / offer.highest).ceil().max(f64::from(offer.sharing.replicas()) + 1.0);
            help.push(format!(
                "more GPUs: by short loads about {needed} replicas hold, {} GPUs",
                needed * server.gpus as f64
            ));
        }
        let share = offer.share(self);
        if share > 0.0 && share < 1.0 {
            help.push(format!("less load: these do about {:.0} % of it", 100.0 * share));
        }
        help.push(format!("a looser limit: {}", judged.judgement.broken().unwrap_or_default()));
        Some(NearestMiss {
            serve_command: self.commands(offer.server, offer.sharing).0,
            hardware: judged.row.hardware.clone(),
            num_gpus: offer.gpus,
            replicas: offer.sharing.count,
            prefill_replicas: offer.sharing.prefill,
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

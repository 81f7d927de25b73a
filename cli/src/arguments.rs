//! `ridgepoint arguments`: what a user can say of a server, a prediction and a load.

use clap::Args;
use ridgepoint::Error;
use ridgepoint::input::did_you_mean;
use ridgepoint_lab::argument_report::{ArgumentEntry, ArgumentReport};

use crate::flags::{flag, heading, with_default};
use crate::outcome::{Failure, Outcome, Report};
use crate::text::Page;

/// The arguments of `arguments`.
#[derive(Debug, Args)]
pub struct ArgumentsArgs {
    /// Name of one argument in any spelling, such as -tp, or of a section: server, deployment, scheduler, prediction or load
    #[arg(value_name = "NAME", allow_hyphen_values = true)]
    name: Option<String>,
}

/// Lists arguments.
///
/// # Errors
/// A name of no argument and no section.
pub fn run(args: &ArgumentsArgs) -> Result<Outcome<ArgumentReport>, Failure> {
    let mut report = ArgumentReport::list();
    let Some(name) = &args.name else { return Ok(Outcome::of(report)) };
    let wanted = name.trim_start_matches('-').replace('-', "_").to_lowercase();
    let names: Vec<&str> = report
        .arguments
        .iter()
        .flat_map(|of| [of.name, of.section.name()].into_iter().chain(of.aliases.iter().copied()))
        .collect();
    if !names.contains(&wanted.as_str()) {
        let hint = did_you_mean(&wanted, names.iter().copied());
        let hint = hint.map_or_else(|| "; `ridgepoint arguments` lists them".to_owned(), |near| format!("; {near}"));
        return Err(Error::invalid("arguments", vec![format!("{name:?} is no argument and no section{hint}")]).into());
    }
    report
        .arguments
        .retain(|of| of.section.name() == wanted || of.name == wanted || of.aliases.contains(&wanted.as_str()));
    Ok(Outcome::of(report))
}

impl Report for ArgumentReport {
    fn lay_out(&self, page: &mut Page) {
        match self.arguments.as_slice() {
            [one] => one_argument(one, page),
            all => list(all, page),
        }
    }
}

/// The names of an argument as flags.
fn flags(of: &ArgumentEntry) -> String {
    let names = std::iter::once(&of.name).chain(of.aliases);
    names.map(|name| format!("--{}", flag(name))).collect::<Vec<_>>().join(", ")
}

fn list(arguments: &[ArgumentEntry], page: &mut Page) {
    for of_section in arguments.chunk_by(|a, b| a.section == b.section) {
        let modelled: Vec<&ArgumentEntry> = of_section.iter().filter(|of| of.support == "modelled").collect();
        if let Some(first) = modelled.first() {
            page.line(heading(first.section));
            modelled.iter().for_each(|of| page.paragraph(&label(of), &with_default(of.help, of.default)));
            page.blank();
        }
    }
    let of_support = |support: &'static str| arguments.iter().filter(move |of| of.support == support);
    if of_support("not_modelled").next().is_some() {
        page.line("Refused if the value switches something on");
        of_support("not_modelled").for_each(|of| page.paragraph(&label(of), of.help));
        page.blank();
    }
    let ignored: Vec<&str> = of_support("without_influence").map(|of| of.name).collect();
    if !ignored.is_empty() {
        page.paragraph("", &format!("Accepted and without influence on times: {}.", ignored.join(", ")));
        page.blank();
    }
    page.paragraph(
        "",
        "Names may be written as flags or with underscores, on the command line, in a server file and in bodies of requests. \
         `ridgepoint arguments NAME` shows one with its values, its other names, and what it needs and excludes.",
    );
}

fn label(of: &ArgumentEntry) -> String {
    format!("  {:<29} ", of.name)
}

fn one_argument(of: &ArgumentEntry, page: &mut Page) {
    page.line(&format!("{} ({})", of.name, of.section.name()));
    page.blank();
    page.fact("meaning", of.help);
    page.fact("flags", &if of.flag.is_some() { flags(of) } else { "none: it is a key of files and bodies".to_owned() });
    page.fact("value", &of.must_be);
    if !of.default.is_empty() {
        page.fact("default", of.default);
    }
    if let Some(object) = of.within {
        page.fact("also in", object);
    }
    page.fact("engines", &of.engines.join(", "));
    page.fact("support", &of.support.replace('_', " "));
    for need in &of.needs {
        page.fact("needs", &because(&need.one_of.join(" or "), need.reason));
    }
    for exclusion in &of.excludes {
        page.fact("not with", &because(exclusion.name, exclusion.reason));
    }
}

fn because(what: &str, reason: &str) -> String {
    if reason.is_empty() { what.to_owned() } else { format!("{what}: {reason}") }
}

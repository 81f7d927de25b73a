//! Reads the header of a table file: commented TOML with the series and the coefficients of the kernel model.
#![expect(clippy::indexing_slicing, reason = "windows of two have two values")]

use super::family::KernelFamily;
use super::series::{Header, UNIT};
use super::series_key::SeriesKey;
use crate::error::{Error, Result};

/// The header, and the keys of its series.
pub(super) fn parse_header(
    family: &KernelFamily,
    gpu: &str,
    origin: &str,
    text: &str,
) -> Result<(Header, Vec<SeriesKey>)> {
    let fail = |message: String| Error::parse(origin, format!("table header{message}"));
    let commented: String = text
        .lines()
        .take_while(|line| line.starts_with('#'))
        .flat_map(|line| [line.trim_start_matches('#').trim_start(), "\n"])
        .collect();
    let header: Header = toml::from_str(&commented).map_err(|e| {
        let before = e.span().and_then(|span| commented.get(..span.start)).unwrap_or("");
        fail(format!(", line {}: {}", before.matches('\n').count() + 1, e.message()))
    })?;
    if header.operator != family.operator || header.unit != UNIT {
        let (operator, unit, expected) = (&header.operator, &header.unit, family.operator);
        return Err(fail(format!(": operator '{operator}' in '{unit}', expected '{expected}' in '{UNIT}'")));
    }
    if header.hardware != gpu {
        return Err(fail(format!(": hardware '{}', expected '{gpu}' as in its folder", header.hardware)));
    }
    let mut keys = Vec::with_capacity(header.series.len());
    for (name, series) in &header.series {
        let ascending = series.knots.windows(2).all(|pair| pair[0] < pair[1]);
        let positive = series.knots.iter().all(|k| k.is_finite() && *k > 0.0);
        let id_is_unique = header.series.values().filter(|other| other.id == series.id).count() == 1;
        // Series are found by the name that their key writes.
        let key = (family.parse)(name).filter(|key| key.to_string() == *name);
        if let Some(distance) = series.stand_in_distance.filter(|of| !of.is_finite() || *of < 0.0) {
            return Err(fail(format!(
                ": series '{name}' has stand_in_distance = {distance}, expected a number from 0"
            )));
        }
        let is_sound = id_is_unique && !series.knots.is_empty() && ascending && positive;
        let Some(key) = key.filter(|_| is_sound) else {
            return Err(fail(format!(
                ": series '{name}' needs a known name, an id of its own and ascending positive knots"
            )));
        };
        keys.push(key);
    }
    for (group, coefficients) in &header.coefficients {
        let is_unknown = |name: &&String| family.coefficients.iter().all(|(known, _)| known != name);
        if let Some(name) = coefficients.keys().find(is_unknown) {
            let known: Vec<&str> = family.coefficients.iter().map(|(name, _)| *name).collect();
            return Err(fail(format!(": unknown coefficients.\"{group}\".{name}; there are {}", known.join(", "))));
        }
    }
    Ok((header, keys))
}

/// The coefficients of a series' group, in the kernel model's order.
pub(super) fn coefficients(family: &KernelFamily, origin: &str, header: &Header, key: &SeriesKey) -> Result<Vec<f64>> {
    let group = key.group();
    let of_group = header.coefficients.get(&group);
    let coefficient = |name: &str| {
        let value = of_group.and_then(|g| g.get(name)).copied().filter(|v| v.is_finite() && *v > 0.0);
        value.ok_or_else(|| {
            Error::parse(origin, format!("table header: coefficients.\"{group}\".{name} must be a positive number"))
        })
    };
    family.coefficients.iter().map(|(name, _)| coefficient(name)).collect()
}

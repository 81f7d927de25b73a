//! Variables in the text of a script: those that it sets itself have their values, others are named.

use std::collections::HashMap;

/// The variables that a script sets, as in `TP=4` or `export TP=4`.
#[derive(Debug, Default)]
pub(super) struct ShellVariables<'a> {
    values: HashMap<&'a str, &'a str>,
}

impl<'a> ShellVariables<'a> {
    /// Takes the assignments of a line that has nothing else.
    pub(super) fn take(&mut self, line: &'a str) {
        let line = line.trim();
        let line = line.strip_prefix("export ").unwrap_or(line).trim_end_matches(';');
        let Some((name, value)) = line.split_once('=').filter(|(name, _)| is_name(name)) else { return };
        let unquoted = ['"', '\''].iter().find_map(|quote| value.strip_prefix(*quote)?.strip_suffix(*quote));
        if unquoted.is_some() || !value.contains(char::is_whitespace) {
            self.values.insert(name, unquoted.unwrap_or(value));
        }
    }

    /// Puts the values of known variables into a text: `$TP`, `${TP}` and `${TP:-4}`, which has a value of its own.
    pub(super) fn put_into(&self, text: &str) -> String {
        let (mut found, mut rest) = (String::new(), text);
        while let Some((before, variable, after)) = next_variable(rest) {
            found.push_str(before);
            let (name, default) = match variable.split_once(":-") {
                Some((name, default)) => (name, Some(default)),
                None => (variable, None),
            };
            let value = self.values.get(name).copied().filter(|value| !value.contains('$')).or(default);
            match value {
                Some(value) => found.push_str(value),
                None => found.push_str(rest.get(before.len()..rest.len() - after.len()).unwrap_or_default()),
            }
            rest = after;
        }
        found.push_str(rest);
        found
    }
}

/// Returns the first variable in a value.
pub(super) fn variable_of(value: &str) -> Option<&str> {
    next_variable(value).map(|(_, variable, _)| variable)
}

fn is_name(text: &str) -> bool {
    let mut letters = text.chars();
    letters.next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
        && letters.all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
}

/// What stands before the first variable of a text, the variable without its dollar and braces, and what follows.
fn next_variable(text: &str) -> Option<(&str, &str, &str)> {
    let mut from = 0;
    while let Some(at) = text.get(from..)?.find('$').map(|at| from + at) {
        let (before, rest) = (text.get(..at)?, text.get(at + 1..)?);
        if let Some((name, after)) = rest.strip_prefix('{').and_then(|rest| rest.split_once('}'))
            && is_name(name.split(":-").next()?)
        {
            return Some((before, name, after));
        }
        let length = rest.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_').unwrap_or(rest.len());
        let (name, after) = rest.split_at(length);
        if is_name(name) {
            return Some((before, name, after));
        }
        from = at + 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_of_the_script_have_its_values_and_others_stay() {
        let mut known = ShellVariables::default();
        for line in ["TP=4", "  export LEN=\"8192\";", "MODEL='org/name'", "X=1 vllm", "A B=2", "SELF=$TP"] {
            known.take(line);
        }
        let put = known.put_into(
            "vllm serve $MODEL -tp ${TP} --max-model-len=$LEN --seed ${SEED:-7} --port $PORT $X $1 5$ ${} $SELF",
        );
        assert_eq!(put, "vllm serve org/name -tp 4 --max-model-len=8192 --seed 7 --port $PORT $X $1 5$ ${} $SELF");
        assert_eq!((variable_of("a ${B} c"), variable_of("$C"), variable_of("5$ $1")), (Some("B"), Some("C"), None));
    }
}

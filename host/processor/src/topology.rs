//! Which function feeds which: a cycle of topics is refused when it would be closed.

use std::collections::BTreeMap;

/// What a function reads and writes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Flow<'a> {
    /// Its name.
    pub(crate) function: &'a str,
    /// Topics it reads.
    pub(crate) inputs: Vec<&'a str>,
    /// Topics it writes.
    pub(crate) outputs: Vec<&'a str>,
}

/// The loop that `added` would close among `flows` (earlier versions of it don't count), as topics and
/// functions in order, starting and ending with the same topic.
pub(crate) fn cycle<'a>(flows: &[Flow<'a>], added: &Flow<'a>) -> Option<Vec<&'a str>> {
    let mut readers: BTreeMap<&str, Vec<&Flow<'a>>> = BTreeMap::new();
    for flow in flows.iter().filter(|flow| flow.function != added.function) {
        for input in &flow.inputs {
            readers.entry(input).or_default().push(flow);
        }
    }
    added.inputs.iter().find_map(|input| {
        let mut way = vec![*input, added.function];
        let mut seen = Vec::new();
        added
            .outputs
            .iter()
            .any(|output| reaches(output, input, &readers, &mut seen, &mut way))
            .then_some(way)
    })
}

/// Whether events of `topic` come to `goal`; `way` is then the way there.
fn reaches<'a>(
    topic: &'a str,
    goal: &str,
    readers: &BTreeMap<&str, Vec<&Flow<'a>>>,
    seen: &mut Vec<&'a str>,
    way: &mut Vec<&'a str>,
) -> bool {
    if seen.contains(&topic) {
        return false;
    }
    seen.push(topic);
    way.push(topic);
    if topic == goal {
        return true;
    }
    for flow in readers.get(topic).into_iter().flatten() {
        way.push(flow.function);
        if flow
            .outputs
            .iter()
            .any(|output| reaches(output, goal, readers, seen, way))
        {
            return true;
        }
        way.pop();
    }
    way.pop();
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow<'a>(function: &'a str, input: &'a str, outputs: &[&'a str]) -> Flow<'a> {
        Flow {
            function,
            inputs: vec![input],
            outputs: outputs.to_vec(),
        }
    }

    #[test]
    fn loops_are_named_and_diamonds_are_fine() {
        let flows = [
            flow("f", "a", &["b", "x"]),
            flow("g", "b", &["c"]),
            flow("h", "x", &["c"]),
            flow("old", "c", &["a"]),
        ];
        assert_eq!(cycle(&flows[..3], &flow("i", "c", &["d"])), None);
        assert_eq!(
            cycle(&flows[..3], &flow("i", "c", &["d", "a"])),
            Some(vec!["c", "i", "a", "f", "b", "g", "c"])
        );
        assert_eq!(
            cycle(&[], &flow("self", "a", &["a"])),
            Some(vec!["a", "self", "a"])
        );
        assert_eq!(
            cycle(&flows, &flow("old", "c", &["z"])),
            None,
            "its old version doesn't count"
        );
    }
}

//! Finds the lines of a file that fit a question, and writes quotes with their source. Pure; it knows
//! words only by their letters, no meaning.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Most lines of a file that an answer quotes for a question.
const MAX_MATCHES: usize = 5;
/// Lines below a heading that are quoted with it.
const BELOW_HEADING: usize = 3;
/// Lines that stand for a file's beginning.
const OPENING_LINES: usize = 6;
/// Most headings that are listed.
const MAX_HEADINGS: usize = 12;
/// Most characters of a quoted passage or line.
const MAX_QUOTE_CHARS: usize = 1200;

/// Words that say nothing about what is looked for.
const STOP_WORDS: &str = " a about an and any are as at be by can contain contains content contents could describe do \
     does explain file for from give has have how i in inside into is it its line lines list me mean means my of on \
     open or overview please print quote read say says search show summarise summarize summary tell that the their \
     there this to use used was we were what what's whats when where which who why will with would you your ";

/// A line with its number from 1.
type Line<'a> = (usize, &'a str);

/// Writes one numbered quote with its source.
pub(super) fn quote(answer: &mut String, number: u32, source: &str, words: &str) {
    if !answer.is_empty() {
        answer.push_str("\n\n");
    }
    // Writing to a string can't fail.
    let _ = write!(answer, "[{number}] {source}");
    let cut = words.char_indices().nth(MAX_QUOTE_CHARS).map_or(words.len(), |(at, _)| at);
    for line in words[..cut].trim_end().lines() {
        let _ = write!(answer, "\n> {line}");
    }
    if cut < words.len() {
        answer.push_str(" …");
    }
}

/// Answers a question about a file from what reading it gave.
pub(super) fn from_file(path: &str, output: &str, question: &str) -> String {
    let lines = numbered(output);
    if lines.iter().all(|(_, line)| line.trim().is_empty()) {
        return format!("{path} is empty.");
    }
    let wanted = wanted_words(path, question);
    if wanted.is_empty() {
        return overview(path, &lines);
    }
    let best = best_lines(&lines, &wanted);
    if best.is_empty() {
        return format!("No line of {path} has the words of the question. {}", overview(path, &lines));
    }
    let mut quotes = String::new();
    for (number, place) in (1..).zip(best) {
        let (line_number, line) = lines[place];
        let mut words = line.to_owned();
        if is_heading(line) {
            let below = lines[place + 1..].iter().map(|(_, line)| *line);
            for line in below
                .take_while(|line| !is_heading(line))
                .filter(|line| !line.trim().is_empty())
                .take(BELOW_HEADING)
            {
                let _ = write!(words, "\n{line}");
            }
        }
        quote(&mut quotes, number, &format!("{path}:{line_number}"), &words);
    }
    format!("No model is set up; these lines of {path} fit the question best.\n\n{quotes}")
}

fn overview(path: &str, lines: &[Line<'_>]) -> String {
    let filled = || lines.iter().filter(|(_, line)| !line.trim().is_empty());
    let opening: Vec<&str> = filled().take(OPENING_LINES).map(|(_, line)| *line).collect();
    let start = filled().next().map_or(1, |(number, _)| *number);
    let mut quotes = String::new();
    quote(&mut quotes, 1, &format!("{path}:{start}"), &opening.join("\n"));
    let count = match lines.len() {
        1 => "1 line".to_owned(),
        count => format!("{count} lines"),
    };
    let mut answer = format!("{path} has {count}; it begins:\n\n{quotes}");
    let headings: Vec<_> = lines.iter().filter(|(_, line)| is_heading(line)).collect();
    if headings.len() > 1 {
        answer.push_str("\n\nIts headings:");
        for (number, line) in headings.iter().take(MAX_HEADINGS) {
            let _ = write!(answer, "\n- {} ({path}:{number})", line.trim_start_matches('#').trim());
        }
        if headings.len() > MAX_HEADINGS {
            let _ = write!(answer, "\n- … and {} more", headings.len() - MAX_HEADINGS);
        }
    }
    answer
}

fn is_heading(line: &str) -> bool {
    let text = line.trim_start_matches('#');
    (1..=6).contains(&(line.len() - text.len())) && text.starts_with(' ') && !text.trim().is_empty()
}

/// Returns the places of the best lines, best first; equal ones in the file's order.
fn best_lines(lines: &[Line<'_>], wanted: &[String]) -> Vec<usize> {
    let found: Vec<Vec<&String>> = lines
        .iter()
        .map(|(_, line)| {
            let words = words(line);
            wanted.iter().filter(|word| words.contains(word)).collect()
        })
        .collect();
    let mut lines_with: BTreeMap<&String, usize> = BTreeMap::new();
    for word in found.iter().flatten() {
        *lines_with.entry(word).or_default() += 1;
    }
    // A word that few lines have says more; in thousandths, so that the order is exact.
    let weight =
        |word: &&String| 1000 + 1000 * lines.len() / lines_with.get(*word).copied().unwrap_or(1).max(1);
    let scores: Vec<usize> =
        found.iter().map(|words| words.iter().map(weight).sum::<usize>() * words.len()).collect();
    let best = scores.iter().copied().max().unwrap_or_default();
    let mut places: Vec<usize> =
        (0..lines.len()).filter(|&at| scores[at] > 0 && scores[at] * 2 >= best).collect();
    places.sort_by_key(|&at| (std::cmp::Reverse(scores[at]), at));
    places.truncate(MAX_MATCHES);
    places
}

/// Returns the question's words that say what is looked for.
fn wanted_words(path: &str, question: &str) -> Vec<String> {
    let rest = question.replace(path, " ");
    let mut wanted: Vec<String> = rest
        .to_lowercase()
        .split(|c: char| !c.is_alphanumeric() && c != '\'')
        .filter(|word| word.chars().count() > 1 && !STOP_WORDS.contains(&format!(" {word} ")))
        .map(stem)
        .collect();
    wanted.sort();
    wanted.dedup();
    wanted
}

fn words(line: &str) -> Vec<String> {
    line.to_lowercase()
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(stem)
        .collect()
}

/// Cuts common English endings, so that `ports` finds `port`.
fn stem(word: &str) -> String {
    let cut = ["'s", "ing", "ies", "ed", "es", "s", "y", "e"]
        .into_iter()
        .find_map(|ending| word.strip_suffix(ending).filter(|stem| stem.chars().count() >= 3));
    cut.unwrap_or(word).to_owned()
}

/// Returns a file's lines with their numbers: those that the output shows before each line, else counted.
fn numbered(output: &str) -> Vec<Line<'_>> {
    let shown: Vec<Line<'_>> = output.lines().map_while(shown_number).collect();
    let consecutive = shown.windows(2).all(|pair| pair[1].0 == pair[0].0 + 1);
    // What follows the numbered lines can only be a remark on what was left out.
    if consecutive && !shown.is_empty() && shown.len() + 2 >= output.lines().count() {
        return shown;
    }
    (1..).zip(output.lines()).collect()
}

fn shown_number(line: &str) -> Option<Line<'_>> {
    let text = line.trim_start_matches(' ');
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, rest) = text.split_at(digits);
    let rest = rest.strip_prefix(['\t', '→', '│', '|']).or_else(|| rest.strip_prefix(':'))?;
    Some((number.parse().ok()?, rest.strip_prefix(' ').unwrap_or(rest)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "# Harbour\n\nA small server.\n\n## Ports\n\nThe server listens on 8080.\nMetrics are on port 9090.\n\n## Licence\n\nMIT.\n";

    #[test]
    fn the_lines_that_share_the_rarest_words_come_first() {
        assert_eq!(
            from_file("README.md", FILE, "On which port are the metrics in README.md?"),
            "No model is set up; these lines of README.md fit the question best.\n\n\
             [1] README.md:8\n> Metrics are on port 9090."
        );
    }

    #[test]
    fn one_line_is_counted_as_one() {
        let answer = |text| from_file("a.txt", text, "what is in a.txt?");
        assert_eq!(answer("x\n"), "a.txt has 1 line; it begins:\n\n[1] a.txt:1\n> x");
        assert!(answer("x\ny\n").starts_with("a.txt has 2 lines;"), "{}", answer("x\ny\n"));
    }

    #[test]
    fn a_heading_is_quoted_with_what_stands_below_it() {
        assert_eq!(
            from_file("README.md", FILE, "What licence does README.md name?"),
            "No model is set up; these lines of README.md fit the question best.\n\n\
             [1] README.md:10\n> ## Licence\n> MIT."
        );
    }

    #[test]
    fn what_is_in_a_file_is_answered_by_its_beginning_and_headings() {
        assert_eq!(
            from_file("README.md", FILE, "what is in README.md?"),
            "README.md has 12 lines; it begins:\n\n[1] README.md:1\n> # Harbour\n> A small server.\n> ## Ports\n\
             > The server listens on 8080.\n> Metrics are on port 9090.\n> ## Licence\n\n\
             Its headings:\n- Harbour (README.md:1)\n- Ports (README.md:5)\n- Licence (README.md:10)"
        );
        assert_eq!(from_file("a.txt", "\n\n", "what is in a.txt?"), "a.txt is empty.");
    }

    #[test]
    fn no_match_is_said_plainly() {
        let answer = from_file("a.txt", "one\n", "where is the elephant in a.txt?");
        assert_eq!(
            answer,
            "No line of a.txt has the words of the question. a.txt has 1 line; it begins:\n\n[1] a.txt:1\n> one"
        );
    }

    #[test]
    fn shown_line_numbers_are_used() {
        assert_eq!(numbered("  41\tone\n  42\ttwo"), [(41, "one"), (42, "two")]);
        assert_eq!(numbered("1: a\n2: b\n[8 lines more]"), [(1, "a"), (2, "b")]);
        assert_eq!(numbered("8080: http\n22: ssh"), [(1, "8080: http"), (2, "22: ssh")]);
        assert_eq!(numbered("plain\ntext"), [(1, "plain"), (2, "text")]);
    }

    #[test]
    fn long_quotes_are_cut_at_a_character() {
        let mut answer = String::new();
        quote(&mut answer, 1, "a", &"職".repeat(MAX_QUOTE_CHARS + 1));
        assert_eq!(answer, format!("[1] a\n> {} …", "職".repeat(MAX_QUOTE_CHARS)));
    }
}

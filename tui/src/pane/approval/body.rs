//! What one approval shows: the exact call, its diff, the reasons, and a warning where characters could
//! deceive. Every character of the call is drawn; nothing is folded away.

use ratatui::text::Line;
use tns_protocol::approval::{Risk, ToolApproveRequest};

use crate::sanitize::{self, Mode, push_escape};
use crate::text::{self, Row, Wrap};
use crate::theme::{Role, Theme};

/// One piece of the body with its look.
#[derive(Debug)]
struct Section {
    text: String,
    role: SectionRole,
    rows: Vec<Row>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SectionRole {
    Warning,
    Call,
    Diff,
    Reason,
    Covers,
}

/// The body of one request.
#[derive(Debug)]
pub(crate) struct Body {
    tool: String,
    covers: Section,
    sections: Vec<Section>,
    columns: usize,
}

impl Body {
    /// Makes the body of a request.
    pub(crate) fn new(request: &ToolApproveRequest) -> Self {
        let mut suspects = 0;
        let mut exact = |text: &str| {
            let clean = sanitize::clean(Mode::Exact, text);
            let (text, lookalikes) = show_lookalikes(&clean.text);
            suspects += clean.escaped + lookalikes;
            text
        };
        let call = exact(&request.summary);
        let tool = exact(&request.tool).replace('\n', "\\u{A}");
        let diff = request.diff.as_deref().map(&mut exact);
        let covers = request.always_covers.as_deref().map(&mut exact);
        let mut sections = Vec::new();
        if suspects > 0 {
            let what = if suspects == 1 { "1 character" } else { &format!("{suspects} characters") };
            let warning = format!("! {what} could hide or imitate something; shown as \\u{{…}}");
            sections.push(section(SectionRole::Warning, warning));
        }
        sections.push(section(SectionRole::Call, call));
        sections.extend(diff.map(|diff| section(SectionRole::Diff, diff)));
        sections.extend(
            request
                .reasons
                .iter()
                .map(|reason| section(SectionRole::Reason, format!("why: {}", sanitize::line(reason)))),
        );
        if let Some(expires) = request.expires_at {
            sections.push(section(SectionRole::Reason, format!("rejected by itself at {expires}")));
        }
        let covers = match covers {
            Some(covers) => format!("A also covers: {}", covers.replace('\n', "\\u{A}")),
            None => "A counts once: it covers nothing more".to_owned(),
        };
        Self { tool, covers: section(SectionRole::Covers, covers), sections, columns: 0 }
    }

    /// Returns the tool's name.
    pub(crate) fn tool(&self) -> &str {
        &self.tool
    }

    /// Breaks everything into rows of this width.
    pub(crate) fn lay_out(&mut self, columns: usize) {
        if self.columns == columns {
            return;
        }
        self.columns = columns;
        for section in self.sections.iter_mut().chain([&mut self.covers]) {
            // The call and the diff keep every space; what is prose breaks between words.
            let wrap = match section.role {
                SectionRole::Call | SectionRole::Diff => Wrap::Exact,
                SectionRole::Warning | SectionRole::Reason | SectionRole::Covers => Wrap::Words,
            };
            section.rows = text::wrap(&section.text, columns.max(1), wrap);
        }
    }

    /// Returns how many rows there are.
    pub(crate) fn rows(&self) -> usize {
        self.sections.iter().map(|section| section.rows.len()).sum()
    }

    /// Returns how many of them, at the front, are warning, call and diff.
    pub(crate) fn call_rows(&self) -> usize {
        let sections = self.sections.iter().filter(|section| section.role != SectionRole::Reason);
        sections.map(|section| section.rows.len()).sum()
    }

    /// Returns how many rows say what `always` covers; on the page they follow the others.
    pub(crate) fn covers_rows(&self) -> usize {
        self.covers.rows.len()
    }

    /// Returns one row as it is drawn, what `always` covers included.
    pub(crate) fn row(&self, index: usize, theme: Theme) -> Line<'_> {
        let mut index = index;
        for section in self.sections.iter().chain([&self.covers]) {
            if let Some(row) = section.rows.get(index) {
                let text = &section.text[row.start..row.end];
                return Line::styled(text, theme.style(section.look(row)));
            }
            index -= section.rows.len();
        }
        Line::default()
    }
}

impl Section {
    fn look(&self, row: &Row) -> Role {
        match self.role {
            SectionRole::Warning => Role::Bad,
            SectionRole::Call => Role::Strong,
            SectionRole::Reason | SectionRole::Covers => Role::Faint,
            SectionRole::Diff => {
                let line = self.text[..row.start].rfind('\n').map_or(0, |at| at + 1);
                match self.text.as_bytes().get(line) {
                    Some(b'+') => Role::Good,
                    Some(b'-') => Role::Bad,
                    _ => Role::Text,
                }
            }
        }
    }
}

fn section(role: SectionRole, text: String) -> Section {
    Section { text: text.trim_end_matches('\n').to_owned(), role, rows: Vec::new() }
}

/// Says how risky a request is: the label, and the class where it is known.
pub(crate) fn risk_label(request: &ToolApproveRequest) -> String {
    let label = match request.risk {
        Risk::Low => "low",
        Risk::Medium => "medium",
        Risk::High => "HIGH",
        Risk::Critical => "CRITICAL",
    };
    match request.risk_class {
        Some(class) => format!("{label} {}", class.as_str()),
        None => label.to_owned(),
    }
}

/// Escapes the Greek and Cyrillic letters of words that also have Latin ones, and of host names: there they
/// pass for Latin. Returns the text and how many there were.
fn show_lookalikes(text: &str) -> (String, usize) {
    let mut out = String::with_capacity(text.len());
    let mut count = 0;
    for token in text.split_inclusive(char::is_whitespace) {
        let is_address = token.contains("://");
        let mut rest = token;
        while let Some(first) = rest.chars().next() {
            let in_word = |c: char| c.is_alphabetic() || (is_address && !c.is_whitespace());
            let end = match in_word(first) {
                true => rest.find(|c| !in_word(c)).unwrap_or(rest.len()),
                false => rest.find(in_word).unwrap_or(rest.len()),
            };
            let (word, tail) = rest.split_at(end);
            let mixed = word.chars().any(|c| c.is_ascii_alphabetic());
            for c in word.chars() {
                if mixed && imitates_latin(c) {
                    push_escape(&mut out, c);
                    count += 1;
                } else {
                    out.push(c);
                }
            }
            rest = tail;
        }
    }
    (out, count)
}

fn imitates_latin(c: char) -> bool {
    matches!(c, '\u{370}'..='\u{3FF}' | '\u{400}'..='\u{52F}' | '\u{FF21}'..='\u{FF3A}' | '\u{FF41}'..='\u{FF5A}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_that_imitate_latin_ones_are_shown() {
        for (text, shown, count) in [
            ("curl https://ex\u{430}mple.org", "curl https://ex\\u{430}mple.org", 1),
            ("curl https://раура.com", "curl https://\\u{440}\\u{430}\\u{443}\\u{440}\\u{430}.com", 5),
            ("cat файл.txt", "cat файл.txt", 0),
            ("echo привет αβγ 职员 مرحبا naïve", "echo привет αβγ 职员 مرحبا naïve", 0),
            ("p\u{3B1}th", "p\\u{3B1}th", 1),
        ] {
            assert_eq!(show_lookalikes(text), (shown.to_owned(), count));
        }
    }
}

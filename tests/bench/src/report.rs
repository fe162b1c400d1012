//! Rows of measurements and what they must hold.

/// What was measured.
#[derive(Default)]
pub(crate) struct Report {
    rows: Vec<Row>,
}

struct Row {
    what: String,
    figure: String,
    against: String,
    ratio: Option<f64>,
    must: Option<Must>,
}

/// What a ratio must hold.
#[derive(Clone, Copy)]
pub(crate) enum Must {
    /// At most this.
    AtMost(f64),
    /// At least this.
    AtLeast(f64),
}

impl Must {
    fn holds(self, ratio: f64) -> bool {
        match self {
            Self::AtMost(limit) => ratio <= limit,
            Self::AtLeast(limit) => ratio >= limit,
        }
    }
}

impl Report {
    /// Adds a figure beside another of the same run.
    pub(crate) fn ratio(
        &mut self,
        what: &str,
        figure: String,
        against: String,
        ratio: f64,
        must: Option<Must>,
    ) {
        eprintln!("{what}: {figure} beside {against}, ratio {ratio:.2}");
        self.rows.push(Row { what: what.to_owned(), figure, against, ratio: Some(ratio), must });
    }

    /// Adds a figure on its own.
    pub(crate) fn figure(&mut self, what: &str, figure: String) {
        eprintln!("{what}: {figure}");
        self.rows.push(Row {
            what: what.to_owned(),
            figure,
            against: String::new(),
            ratio: None,
            must: None,
        });
    }

    /// Prints a Markdown table.
    pub(crate) fn print(&self) {
        println!("| measure | tns | beside | ratio | must |\n|---|---|---|---|---|");
        for row in &self.rows {
            let ratio = row.ratio.map(|ratio| format!("{ratio:.2}")).unwrap_or_default();
            let must = match row.must {
                Some(Must::AtMost(limit)) => format!("≤ {limit}{}", self.verdict(row)),
                Some(Must::AtLeast(limit)) => format!("≥ {limit}{}", self.verdict(row)),
                None => String::new(),
            };
            println!("| {} | {} | {} | {ratio} | {must} |", row.what, row.figure, row.against);
        }
    }

    fn verdict(&self, row: &Row) -> &'static str {
        if missed(row) { " **missed**" } else { "" }
    }

    /// Whether a ratio misses what it must hold.
    pub(crate) fn failed(&self) -> bool {
        self.rows.iter().any(missed)
    }
}

fn missed(row: &Row) -> bool {
    matches!((row.must, row.ratio), (Some(must), Some(ratio)) if !must.holds(ratio))
}

/// Returns the median.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[n / 2],
        n => f64::midpoint(sorted[n / 2 - 1], sorted[n / 2]),
    }
}

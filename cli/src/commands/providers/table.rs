//! Rows of text in columns, two spaces apart. A cell is one line whatever a provider wrote into it.

/// Returns the rows with their columns aligned.
pub(super) fn table<const COLUMNS: usize>(rows: impl IntoIterator<Item = [String; COLUMNS]>) -> String {
    let flat = |cell: String| cell.split_whitespace().collect::<Vec<_>>().join(" ");
    let rows: Vec<[String; COLUMNS]> = rows.into_iter().map(|row| row.map(flat)).collect();
    let mut widths = [0; COLUMNS];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let mut text = String::new();
    for row in &rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(widths) {
            line.push_str(cell);
            line.extend(std::iter::repeat_n(' ', width - cell.chars().count() + 2));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell_and_cells_are_one_line() {
        let rows = [["a", "é", "x"], ["bbb", "", ""], ["c", "two\n lines", "y"]];
        let rows = rows.map(|row| row.map(str::to_owned));
        assert_eq!(table(rows), "a    é          x\nbbb\nc    two lines  y\n");
        assert_eq!(table::<2>([]), "");
    }
}

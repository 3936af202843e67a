//! Tables as CSV (RFC 4180), for spreadsheets.

/// Rows of text under a heading.
#[derive(Debug, Clone)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new(heading: &[&str]) -> Self {
        Self { rows: vec![heading.iter().map(|name| (*name).to_owned()).collect()] }
    }

    /// As many cells as the heading has.
    pub fn row<const N: usize>(&mut self, cells: [String; N]) {
        debug_assert_eq!(Some(N), self.rows.first().map(Vec::len), "every row is as long as the heading");
        self.rows.push(cells.map(inert).to_vec());
    }

    pub fn csv(&self) -> Result<Vec<u8>, csv::Error> {
        let mut writer = csv::WriterBuilder::new().terminator(csv::Terminator::CRLF).from_writer(Vec::new());
        for row in &self.rows {
            writer.write_record(row)?;
        }
        writer.into_inner().map_err(|error| error.into_error().into())
    }
}

/// Text that a spreadsheet would run as a formula is made plain text; numbers stay what they are.
fn inert(cell: String) -> String {
    let formula = cell.starts_with(['=', '+', '-', '@', '\t', '\r']);
    let number = cell.strip_prefix('-').is_some_and(|rest| {
        rest.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') && !rest.is_empty()
    });
    if formula && !number { format!("'{cell}") } else { cell }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_quoted_and_formulas_are_text() {
        let mut table = Table::new(&["label", "amount"]);
        table.row(["=HYPERLINK(\"x\")".to_owned(), "-0.50".to_owned()]);
        table.row(["训练, 二".to_owned(), "9.999333".to_owned()]);
        let text = String::from_utf8(table.csv().unwrap()).unwrap();
        assert_eq!(text, "label,amount\r\n\"'=HYPERLINK(\"\"x\"\")\",-0.50\r\n\"训练, 二\",9.999333\r\n");
    }
}

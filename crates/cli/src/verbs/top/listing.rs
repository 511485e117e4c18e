//! A list on the screen: what it is sorted by, what it is narrowed to, and which line is chosen. Lines are known by
//! process id, so the choice stays with a run when others come before it.

/// What a line can be sorted by.
pub trait Line {
    /// The columns that can be sorted by, in the order in which they are gone through.
    type Column: Copy + PartialEq + 'static;
    const COLUMNS: &'static [Self::Column];

    fn pid(&self) -> u32;
    /// Words that a filter is looked for in.
    fn words(&self) -> String;
    /// Which comes first, the smaller.
    fn compare(&self, other: &Self, column: Self::Column) -> std::cmp::Ordering;
    /// Do large values come first?
    fn is_descending(column: Self::Column) -> bool;
}

/// How a list is shown.
#[derive(Debug, Clone, PartialEq)]
pub struct Listing<C> {
    pub column: C,
    pub is_reversed: bool,
    pub filter: String,
    chosen: Option<u32>,
}

impl<C: Copy + PartialEq + 'static> Listing<C> {
    pub fn by(column: C) -> Listing<C> {
        Listing {
            column,
            is_reversed: false,
            filter: String::new(),
            chosen: None,
        }
    }

    /// The lines that are shown, in order.
    pub fn lines<'a, L: Line<Column = C>>(&self, all: &'a [L]) -> Vec<&'a L> {
        let filter = self.filter.to_lowercase();
        let mut lines: Vec<&L> = all
            .iter()
            .filter(|line| line.words().to_lowercase().contains(&filter))
            .collect();
        lines.sort_by(|a, b| {
            let order = a.compare(b, self.column);
            let order = if L::is_descending(self.column) != self.is_reversed {
                order.reverse()
            } else {
                order
            };
            order.then(a.pid().cmp(&b.pid()))
        });
        lines
    }

    /// The number of the line that is chosen; the first one if it has gone.
    pub fn position<L: Line<Column = C>>(&self, all: &[L]) -> usize {
        let lines = self.lines(all);
        let position = lines
            .iter()
            .position(|line| Some(line.pid()) == self.chosen);
        position.unwrap_or(0)
    }

    /// The line that is chosen.
    pub fn chosen<'a, L: Line<Column = C>>(&self, all: &'a [L]) -> Option<&'a L> {
        self.lines(all).get(self.position(all)).copied()
    }

    /// Chooses another line, so many further down or up.
    pub fn step<L: Line<Column = C>>(&mut self, all: &[L], by: isize) {
        let lines = self.lines(all);
        let last = lines.len().saturating_sub(1);
        let wanted = self.position(all).saturating_add_signed(by).min(last);
        self.chosen = lines.get(wanted).map(|line| line.pid());
    }

    /// Sorts by the next column.
    pub fn next_column<L: Line<Column = C>>(&mut self) {
        let columns = L::COLUMNS;
        let position = columns.iter().position(|column| *column == self.column);
        let next = position.map_or(0, |position| (position + 1) % columns.len());
        if let Some(column) = columns.get(next) {
            self.column = *column;
        }
        self.is_reversed = false;
    }
}

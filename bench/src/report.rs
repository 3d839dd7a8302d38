//! What a run found: a table for people, the same as JSON for machines.

use std::fmt::{self, Write as _};

use serde::Serialize;

use crate::cases::Case;
use crate::machine::Machine;
use crate::measure::Stat;

/// One run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Where it ran.
    pub machine: Machine,
    /// A tiny run, whose numbers mean nothing.
    pub quick: bool,
    /// Rounds of each measurement.
    pub rounds: usize,
    /// The numbers, in the order they were measured.
    pub rows: Vec<Row>,
    /// Batches that were acknowledged and read back as they were written: all of them, or there is no report.
    pub verified_batches: u64,
    /// Bytes of their frames.
    pub verified_bytes: u64,
}

/// One number.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The case it belongs to.
    pub case: Case,
    /// What was done.
    pub name: String,
    /// What is counted.
    pub unit: &'static str,
    /// The same by plain system calls.
    pub raw: Option<Stat>,
    /// Ours.
    pub ours: Stat,
    /// `ours / raw`, round by round.
    pub ratio: Option<Stat>,
    /// What it should reach.
    pub goal: Option<Goal>,
    /// Whether it does.
    pub met: Option<bool>,
    /// Syncs of files and directories for each operation of ours.
    pub syncs_per_op: Option<f64>,
}

/// What a row's median should reach.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Goal {
    /// Of the ratio.
    RatioAtLeast(f64),
    /// Of ours.
    AtLeast(f64),
    /// Of ours.
    AtMost(f64),
}

impl Row {
    /// A row of `ours` alone.
    #[must_use]
    pub fn new(case: Case, name: impl Into<String>, unit: &'static str, ours: &[f64]) -> Self {
        let ours = Stat::of(ours);
        Self {
            case,
            name: name.into(),
            unit,
            raw: None,
            ours,
            ratio: None,
            goal: None,
            met: None,
            syncs_per_op: None,
        }
    }

    /// Adds the raw side, measured in the same rounds.
    #[must_use]
    pub fn against(mut self, ours: &[f64], raw: &[f64]) -> Self {
        self.raw = Some(Stat::of(raw));
        self.ratio = Some(Stat::of_ratios(ours, raw));
        self
    }

    /// Adds what it should reach.
    #[must_use]
    pub fn goal(mut self, goal: Goal) -> Self {
        self.met = Some(match goal {
            Goal::RatioAtLeast(least) => self.ratio.is_some_and(|ratio| ratio.median >= least),
            Goal::AtLeast(least) => self.ours.median >= least,
            Goal::AtMost(most) => self.ours.median <= most,
        });
        self.goal = Some(goal);
        self
    }

    /// Adds how often the disk was synced.
    #[must_use]
    pub fn syncs(mut self, syncs: u64, operations: u64) -> Self {
        // Both are far below what an f64 holds exactly.
        #[allow(clippy::cast_precision_loss)]
        let per_op = syncs as f64 / operations.max(1) as f64;
        self.syncs_per_op = Some(per_op);
        self
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let machine = &self.machine;
        let memory_gib = machine.memory_bytes >> 30;
        writeln!(f, "{} x {}, {memory_gib} GiB, {}", machine.cores, machine.processor, machine.kernel)?;
        writeln!(f, "{}, load {} at the start", machine.file_system, machine.load)?;
        let quick = if self.quick { ", quick: the numbers mean nothing" } else { "" };
        writeln!(
            f,
            "medians of {} rounds (least to most), in turns with the raw side{quick}\n",
            self.rounds
        )?;
        let head =
            ["case", "what", "unit", "raw", "ours", "least", "most", "ours/raw", "goal", "", "syncs/op"];
        let mut table = vec![head.map(str::to_owned)];
        table.extend(self.rows.iter().map(Row::cells));
        let widths: Vec<_> = (0..head.len())
            .map(|column| table.iter().map(|row| row[column].len()).max().unwrap_or(0))
            .collect();
        for row in &table {
            let mut line = String::new();
            for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
                if column < 3 {
                    write!(line, "{cell:<width$}  ")?;
                } else {
                    write!(line, "{cell:>width$}  ")?;
                }
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        let mib = self.verified_bytes >> 20;
        writeln!(f, "\nread back and compared: {} batches, {mib} MiB", self.verified_batches)
    }
}

impl Row {
    fn cells(&self) -> [String; 11] {
        let goal = match self.goal {
            Some(Goal::RatioAtLeast(least)) => format!(">= {} raw", number(least)),
            Some(Goal::AtLeast(least)) => format!(">= {}", number(least)),
            Some(Goal::AtMost(most)) => format!("<= {}", number(most)),
            None => String::new(),
        };
        let met = match self.met {
            Some(true) => "met",
            Some(false) => "MISSED",
            None => "",
        };
        [
            self.case.name().to_owned(),
            self.name.clone(),
            self.unit.to_owned(),
            self.raw.map_or_else(String::new, |raw| number(raw.median)),
            number(self.ours.median),
            number(self.ours.min),
            number(self.ours.max),
            self.ratio.map_or_else(String::new, |ratio| format!("{:.3}", ratio.median)),
            goal,
            met.to_owned(),
            self.syncs_per_op.map_or_else(String::new, |syncs| format!("{syncs:.3}")),
        ]
    }
}

/// Three digits or so, whatever the size.
fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 || size == 0.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_are_judged_by_the_median() {
        let row = || Row::new(Case::Append, "x", "1/s", &[9.0, 10.0, 20.0]);
        assert_eq!(row().goal(Goal::AtLeast(10.0)).met, Some(true));
        assert_eq!(row().goal(Goal::AtLeast(10.1)).met, Some(false));
        assert_eq!(row().goal(Goal::AtMost(9.9)).met, Some(false));
        let slower = row().against(&[9.0, 10.0, 20.0], &[10.0, 12.5, 20.0]);
        assert_eq!(slower.clone().goal(Goal::RatioAtLeast(0.9)).met, Some(true));
        assert_eq!(slower.goal(Goal::RatioAtLeast(0.95)).met, Some(false));
    }

    #[test]
    fn numbers_keep_their_digits() {
        assert_eq!([0.0, 0.5, 2.345, 12.34, 1234.5].map(number), ["0", "0.50", "2.35", "12.3", "1234"]);
    }
}

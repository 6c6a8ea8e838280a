//! A plan for a person, a screenful for a pool of a few nodes.

use core::fmt;

use super::{Basis, Evenness, Fate, Moves, Plan, PlannedLoss, PlannedNode, PlannedSlots};

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "pool {}, epoch {} -> {}, {}",
            self.pool,
            self.epoch,
            self.epoch.next(),
            self.generator
        )?;
        for edit in &self.edits {
            writeln!(f, "  {}. {}", edit.id, edit.text)?;
        }
        writeln!(f, "nodes")?;
        let longest = self
            .nodes
            .iter()
            .map(|node| node.id.as_str().len())
            .max()
            .unwrap_or(0);
        for node in &self.nodes {
            write_node(f, node, longest)?;
        }
        for domain in &self.domains {
            writeln!(
                f,
                "  {}/  {}, {} -> {} of the copies",
                domain.path,
                Counted(domain.nodes, "node"),
                Percent(domain.share_before),
                Percent(domain.share_after)
            )?;
        }
        write_moves(f, &self.moves, self.replicas)?;
        write_evenness(f, "load", &self.balance_before, &self.balance_after)?;
        if let (Some(before), Some(after)) = (&self.copies_before, &self.copies_after) {
            write_evenness(f, "copies", before, after)?;
        }
        if let Some(slots) = &self.slots {
            write_slots(f, slots)?;
        }
        let worst = self
            .losses
            .iter()
            .max_by(|a, b| a.worst_over_mean.total_cmp(&b.worst_over_mean));
        if let Some(loss) = worst {
            write_loss(f, loss)?;
        }
        if let Some(eta_ms) = self.eta_ms {
            writeln!(f, "copying takes {} at the throttle", Duration(eta_ms))?;
        }
        for warning in &self.warnings {
            writeln!(f, "warning: {warning}")?;
        }
        for refusal in &self.refusals {
            writeln!(f, "refused: {refusal}")?;
        }
        Ok(())
    }
}

fn write_node(f: &mut fmt::Formatter<'_>, node: &PlannedNode, longest: usize) -> fmt::Result {
    let sign = match node.fate {
        Fate::Joins => '+',
        Fate::Stays => ' ',
        Fate::Leaves => '-',
        Fate::Lost => '!',
    };
    write!(
        f,
        "  {sign} {:longest$}  weight {}  owns {} -> {}",
        node.id,
        node.weight,
        Percent(node.share_before),
        Percent(node.share_after)
    )?;
    if let Some(keys) = node.keys {
        write!(f, "  {keys} keys")?;
    }
    if node.domain.depth() > 0 {
        write!(f, "  {}", node.domain)?;
    }
    writeln!(f)
}

fn write_moves(f: &mut fmt::Formatter<'_>, moves: &Moves, replicas: u8) -> fmt::Result {
    if moves.flows.is_empty() && moves.copies == 0.0 {
        return writeln!(f, "moves nothing: it holds at once");
    }
    let about = match moves.basis {
        Basis::Exact => "",
        Basis::Sampled { .. } => "about ",
        Basis::AtMost => "at most ",
    };
    if moves.flows.is_empty() {
        write!(f, "moves no key to another first owner: it holds at once")?;
    } else {
        write!(f, "moves {about}{} of keys", Percent(moves.share))?;
        write_amounts(f, moves.keys, moves.bytes)?;
    }
    if let Some(count @ 1..) = moves.intervals_count {
        write!(f, ", {}", Counted(count, "interval"))?;
    }
    writeln!(f)?;
    if replicas > 1 {
        write!(
            f,
            "  copies {about}{}, least possible",
            Percent(moves.copies)
        )?;
    } else {
        write!(f, "  least possible")?;
    }
    write!(f, " {}", Percent(moves.copies_least))?;
    if let Some(needless) = moves.copies_needless {
        write!(f, ", needless {}", Percent(needless))?;
    }
    if moves.modulo > 0.0 {
        write!(f, "; modulo would move {}", Percent(moves.modulo))?;
    }
    writeln!(f)?;
    for flow in &moves.flows {
        write!(
            f,
            "  {} -> {}  {about}{}",
            flow.source,
            flow.target,
            Percent(flow.share)
        )?;
        write_amounts(f, flow.keys, flow.bytes)?;
        writeln!(f)?;
    }
    Ok(())
}

fn write_amounts(f: &mut fmt::Formatter<'_>, keys: Option<u64>, bytes: Option<u64>) -> fmt::Result {
    if let Some(keys) = keys {
        write!(f, ", {keys} keys")?;
    }
    if let Some(bytes) = bytes {
        write!(f, ", {}", Bytes(bytes))?;
    }
    Ok(())
}

fn write_evenness(
    f: &mut fmt::Formatter<'_>,
    what: &str,
    before: &Evenness,
    after: &Evenness,
) -> fmt::Result {
    write!(
        f,
        "{what} max/mean {:.3} -> {:.3}",
        before.max_over_mean, after.max_over_mean
    )?;
    write!(
        f,
        ", min/mean {:.3} -> {:.3}",
        before.min_over_mean, after.min_over_mean
    )?;
    if let Some(expected) = after.cv_expected {
        write!(
            f,
            ", spread {} where chance gives {}",
            Percent(after.cv),
            Percent(expected)
        )?;
    }
    writeln!(f)
}

fn write_slots(f: &mut fmt::Formatter<'_>, slots: &PlannedSlots) -> fmt::Result {
    writeln!(
        f,
        "optimum max/mean {:.3} of the copies, by weights and failure domains",
        slots.optimum_over_mean
    )?;
    if slots.copies_left > 0.0 {
        writeln!(
            f,
            "{} of the copies still have to move after this step, when the same slots are asked for again",
            Percent(slots.copies_left)
        )?;
    }
    Ok(())
}

fn write_loss(f: &mut fmt::Formatter<'_>, loss: &PlannedLoss) -> fmt::Result {
    match &loss.worst {
        None => writeln!(f, "if {} is lost, nobody is left", loss.node),
        Some(worst) => writeln!(
            f,
            "worst loss: {} -> {worst} at {:.2} times its fair part, {}",
            loss.node,
            loss.worst_over_mean,
            Counted(loss.heirs, "heir")
        ),
    }
}

/// So many of something, which takes an s.
struct Counted(u64, &'static str);

impl fmt::Display for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {}{}",
            self.0,
            self.1,
            if self.0 == 1 { "" } else { "s" }
        )
    }
}

/// A part of a whole with one decimal.
struct Percent(f64);

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} %", self.0 * 100.0)
    }
}

/// Bytes in the largest unit that leaves a whole part.
struct Bytes(u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(u64, &str); 4] = [
            (1 << 40, "TiB"),
            (1 << 30, "GiB"),
            (1 << 20, "MiB"),
            (1 << 10, "KiB"),
        ];
        match UNITS.iter().find(|(size, _)| self.0 >= *size) {
            None => write!(f, "{} B", self.0),
            Some((size, unit)) => {
                let tenths = u128::from(self.0) * 10 / u128::from(*size);
                write!(f, "{}.{} {unit}", tenths / 10, tenths % 10)
            }
        }
    }
}

/// Milliseconds as hours, minutes and seconds.
struct Duration(u64);

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.div_ceil(1_000);
        let (hours, minutes) = (seconds / 3_600, seconds / 60 % 60);
        match (hours, minutes) {
            (0, 0) => write!(f, "{seconds} s"),
            (0, _) => write!(f, "{minutes} m {} s", seconds % 60),
            _ => write!(f, "{hours} h {minutes} m"),
        }
    }
}

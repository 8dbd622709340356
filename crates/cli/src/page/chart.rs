//! Line charts over epochs, as SVG.

use super::escape;
use crate::train::live::metric_text;
use firebrand::train::Metrics;
use std::fmt::Write;

/// One line of a chart: a name and a value for every epoch.
struct Series {
    name: String,
    values: Vec<f64>,
    /// Which color, and whether the line is dashed.
    color: usize,
    dashed: bool,
}

impl Series {
    fn class(&self) -> String {
        format!("c{}{}", self.color % COLORS, if self.dashed { " dashed" } else { "" })
    }
}

/// Number of distinct line colors.
const COLORS: usize = 8;

/// The next of 1, 2, 5, 10, 20, 50, … times a power of ten.
fn round_up(v: f64) -> f64 {
    let power = 10f64.powf(v.max(1e-9).log10().floor());
    [1.0, 2.0, 5.0, 10.0].iter().map(|m| m * power).find(|&c| c >= v * (1.0 - 1e-9)).unwrap_or(v)
}

/// A vertical axis: its ticks in ascending order, and whether it is logarithmic.
struct Axis {
    marks: Vec<f64>,
    logarithmic: bool,
}

impl Axis {
    /// Four to six ticks at round numbers, from `low` to beyond `high`.
    fn linear(low: f64, high: f64) -> Axis {
        let step = round_up((high - low).max(1e-9) / 5.0);
        let count = ((high - low) / step - 1e-9).ceil().max(1.0) as u32;
        Axis { marks: (0..=count).map(|k| low + step * f64::from(k)).collect(), logarithmic: false }
    }

    /// Linear for values of similar magnitude; otherwise logarithmic, at powers of ten, with 2 and 5 between them if they are few.
    fn of_sizes(values: impl Iterator<Item = f64> + Clone) -> Axis {
        let known = values.filter(|v| v.is_finite());
        let (high, low) = (known.clone().fold(0.0, f64::max), known.fold(f64::INFINITY, f64::min));
        if low <= 0.0 || high < 15.0 * low {
            return Axis::linear(low.min(0.0), high);
        }
        let decades = low.log10().floor() as i32..=high.log10().ceil() as i32;
        let between: &[f64] = if decades.clone().count() > 4 { &[1.0] } else { &[1.0, 2.0, 5.0] };
        let all: Vec<f64> = decades.flat_map(|d| between.iter().map(move |m| m * 10f64.powi(d))).collect();
        let first = all.iter().rposition(|&m| m <= low).unwrap_or(0);
        let last = all.iter().position(|&m| m >= high).unwrap_or(all.len() - 1);
        Axis { marks: all[first..=last].to_vec(), logarithmic: true }
    }

    /// For fractions: down to a round number whose distance to 100% divides into round steps.
    fn of_shares(values: impl Iterator<Item = f64>) -> Axis {
        let low = values.filter(|v| v.is_finite()).fold(1.0, f64::min);
        Axis::linear(1.0 - round_up((1.0 - low).max(0.05)), 1.0)
    }

    /// The position of a value, from 0 at the lowest tick to 1 at the highest.
    fn share(&self, v: f64) -> f64 {
        let (low, high) = (self.marks[0], self.marks[self.marks.len() - 1]);
        let v = v.clamp(low, high);
        if self.logarithmic { (v / low).ln() / (high / low).ln() } else { (v - low) / (high - low) }
    }
}

/// A line chart over epochs.
fn chart(title: &str, series: &[Series], axis: &Axis, label: impl Fn(f64) -> String) -> String {
    const LEFT: f64 = 60.0;
    const TOP: f64 = 14.0;
    const WIDTH: f64 = 420.0;
    const HEIGHT: f64 = 200.0;
    let count = series.iter().map(|s| s.values.len()).max().unwrap_or(0);
    let x = |i: usize| LEFT + WIDTH * if count > 1 { i as f64 / (count - 1) as f64 } else { 0.5 };
    let y = |v: f64| TOP + HEIGHT * (1.0 - axis.share(v));
    let title = escape(title);
    let mut svg = format!("<figure><figcaption>{title}");
    // Above the chart, where no line crosses the names.
    for s in series.iter().filter(|s| !s.name.is_empty()) {
        let mark = if s.dashed { "╌" } else { "●" };
        let _ = write!(svg, " <span class='c{}'>{mark} {}</span>", s.color % COLORS, escape(&s.name));
    }
    let _ = write!(svg, "</figcaption><svg viewBox='0 0 500 240' role='img' aria-label='{title}'>");
    for &v in &axis.marks {
        let at = y(v);
        let _ = write!(
            svg,
            "<line class='grid' x1='{LEFT}' x2='{}' y1='{at:.1}' y2='{at:.1}'/><text x='{}' y='{:.1}' text-anchor='end'>{}</text>",
            LEFT + WIDTH,
            LEFT - 6.0,
            at + 4.0,
            label(v)
        );
    }
    let below = TOP + HEIGHT + 18.0;
    // With one epoch there is no range to label.
    let ends = if count > 1 { vec![(0, "start"), (count - 1, "end")] } else { Vec::new() };
    for (i, anchor) in ends {
        let _ = write!(svg, "<text x='{:.1}' y='{below}' text-anchor='{anchor}'>{}</text>", x(i), i + 1);
    }
    let _ = write!(svg, "<text x='{}' y='{below}' text-anchor='middle'>epoch</text>", LEFT + WIDTH / 2.0);
    for s in series {
        let class = s.class();
        // A NaN interrupts the line.
        for run in s.values.iter().enumerate().collect::<Vec<_>>().split(|(_, v)| !v.is_finite()) {
            let points: Vec<String> = run.iter().map(|(i, v)| format!("{:.1},{:.1}", x(*i), y(**v))).collect();
            if points.len() > 1 {
                let _ = write!(svg, "<polyline class='{class}' points='{}'/>", points.join(" "));
            }
        }
        if let Some((i, &last)) = s.values.iter().enumerate().rfind(|(_, v)| v.is_finite()) {
            let shown = format!("{} {}", s.name, label(last));
            let _ = write!(
                svg,
                "<circle class='{class}' cx='{:.1}' cy='{:.1}' r='3'><title>{}</title></circle>",
                x(i),
                y(last),
                escape(&shown)
            );
        }
    }
    svg + "</svg></figure>"
}

/// The values of a metric, epoch by epoch; none if no epoch has it.
fn values(history: &[Metrics], name: &str) -> Option<Vec<f64>> {
    let values: Vec<f64> = history.iter().map(|m| m.get(name).copied().unwrap_or(f64::NAN)).collect();
    values.iter().any(|v| !v.is_nan()).then_some(values)
}

/// The title of a chart.
fn title_of(metric: &str) -> String {
    let name = metric.strip_prefix("val_").unwrap_or(metric);
    match name {
        "loss" => "Loss".into(),
        "lr" => "Learning rate".into(),
        "f1" => "F1 (mean over classes)".into(),
        "mae" => "Mean absolute error".into(),
        "rmse" => "Root mean squared error".into(),
        other => {
            let words = match other.strip_prefix("top") {
                Some(k) => format!("top-{k}"),
                None => other.to_string(),
            };
            let words = words.replace('_', " ");
            let mut letters = words.chars();
            letters.next().map_or(String::new(), |c| c.to_uppercase().chain(letters).collect())
        }
    }
}

/// Charts of everything that was measured in these runs, one per metric; training and validation loss share one. With several
/// runs, lines are labeled with the runs' names.
pub(crate) fn metric_charts(runs: &[(String, &[Metrics])]) -> String {
    let mut names: Vec<&String> = Vec::new();
    for (_, history) in runs {
        for name in history.iter().flat_map(|m| m.keys()) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
    }
    let several = runs.len() > 1;
    let line = |run: &str, part: &str| match (several, part) {
        (false, part) => part.to_string(),
        (true, "") => run.to_string(),
        (true, part) => format!("{run} {part}"),
    };
    let mut charts = String::new();
    let mut loss = Vec::new();
    // A run has one color in all charts.
    for (k, (run, history)) in runs.iter().enumerate() {
        for (j, (metric, part)) in [("train_loss", "train"), ("val_loss", "validation")].into_iter().enumerate() {
            let (color, dashed) = if several { (k, j == 0) } else { (j, false) };
            loss.extend(values(history, metric).map(|values| Series { name: line(run, part), values, color, dashed }));
        }
    }
    let shown = |v: f64| {
        if v != 0.0 && v.abs() < 1e-3 {
            return format!("{v:.0e}");
        }
        format!("{v:.6}").trim_end_matches('0').trim_end_matches('.').to_string()
    };
    if !loss.is_empty() {
        let axis = Axis::of_sizes(loss.iter().flat_map(|s| s.values.iter().copied()));
        let title = if axis.logarithmic { "Loss (log scale)" } else { "Loss" };
        charts += &chart(title, &loss, &axis, shown);
    }
    // The learning rate comes last: it is the least informative.
    let others = names.iter().filter(|n| !n.ends_with("loss") && **n != "lr");
    for metric in others.chain(names.iter().filter(|n| **n == "lr")) {
        let series: Vec<Series> = runs
            .iter()
            .enumerate()
            .filter_map(|(k, (run, history))| {
                let validation = metric.starts_with("val_");
                let name = line(run, if validation && !several { "validation" } else { "" });
                // Validation has the color it has in the chart of the losses.
                let color = if several { k } else { usize::from(validation) };
                values(history, metric).map(|values| Series { name, values, color, dashed: false })
            })
            .collect();
        let all = || series.iter().flat_map(|s| s.values.iter().copied());
        if series.is_empty() {
            continue;
        }
        let title = title_of(metric);
        if *metric == "lr" {
            let high = all().filter(|v| v.is_finite()).fold(0.0, f64::max);
            charts += &chart(&title, &series, &Axis::linear(0.0, high), shown);
        } else if metric_text(metric, 1.0).ends_with('%') {
            charts += &chart(&title, &series, &Axis::of_shares(all()), |v| format!("{:.0}%", 100.0 * v));
        } else {
            let axis = Axis::of_sizes(all().collect::<Vec<_>>().into_iter());
            charts += &chart(&title, &series, &axis, shown);
        }
    }
    charts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_have_round_marks() {
        let marks = |values: &[f64]| {
            let marks = Axis::of_sizes(values.iter().copied()).marks;
            marks.iter().map(|m| format!("{m:.4}").trim_end_matches("000").to_string()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(marks(&[0.9, 0.31]), "0.0 0.2 0.4 0.6 0.8 1.0");
        assert_eq!(marks(&[2.3, 0.06]), "0.0500 0.1 0.2 0.5 1.0 2.0 5.0");
        assert_eq!(marks(&[30.0, 0.0007, f64::NAN]), "0.0001 0.0010 0.0100 0.1 1.0 10.0 100.0");
        assert_eq!(Axis::of_sizes([0.0].into_iter()).marks.len(), 2);
        let axis = Axis::of_sizes([2.3, 0.06].into_iter());
        assert!(axis.logarithmic && (axis.share(0.5) - 0.5).abs() < 1e-12 && axis.share(5.0) == 1.0);
        assert_eq!(Axis::linear(0.9, 1.0).marks.len(), 6);
    }

    #[test]
    fn every_metric_has_a_chart() {
        let epoch = |loss: f64| {
            let pairs =
                [("train_loss", loss), ("lr", 0.1), ("val_loss", loss), ("val_accuracy", 0.5), ("val_mae", f64::NAN)];
            Metrics::from_iter(pairs.map(|(n, v)| (n.to_string(), v)))
        };
        let history = [epoch(1.0), epoch(0.5)];
        let one = metric_charts(&[("a".into(), &history[..])]);
        assert_eq!(one.matches("<figure>").count(), 3, "loss, accuracy and rate; nothing was measured of mae");
        let two = metric_charts(&[("<a>".into(), &history[..]), ("b".into(), &history[..1])]);
        assert!(two.contains("&lt;a> train") && two.contains("b validation"), "{two}");
        // The second run alone has a rate in the last epoch, and its own color there too.
        assert!(two.contains("class='c0 dashed'") && two.contains("<span class='c1'>● b</span>"), "{two}");
    }
}
